"""Small JSON documents in files that others could write: signed, whole, and never followed.

A document is `{"payload": TEXT, "signature": HEX}`; the signature is HMAC-SHA256 over its purpose
and the payload's very bytes, so that a report can never pass for an order.
"""

import contextlib
import hashlib
import hmac
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

from data.base.errors import ApplyError
from data.base.files import read_small_file

MAX_BYTES = 256 * 1024
MIN_SECRET_BYTES = 32


class NotTrustedError(ApplyError):
    """A document that is missing its signature, its form or its place."""


def read_secret(path: Path) -> bytes:
    """Return the secret of a file that others cannot read or write. Errors: ApplyError."""
    try:
        mode = path.stat().st_mode
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ApplyError(
            f"cannot read the secret {path}: {error.strerror}",
            "Make one with `head -c 32 /dev/urandom | base64` and set apply_power.secret_file.",
        ) from error
    if mode & 0o027:
        raise ApplyError(
            f"the secret {path} can be read or written by others (mode {stat.S_IMODE(mode):o})",
            f"Run `chmod 600 {path}`.",
        )
    if len(secret) < MIN_SECRET_BYTES:
        raise ApplyError(
            f"the secret {path} is shorter than {MIN_SECRET_BYTES} bytes",
            "Make one with `head -c 32 /dev/urandom | base64`.",
        )
    return secret


def write_signed(path: Path, payload: dict[str, Any], *, purpose: str, secret: bytes) -> None:
    """Write a document whole or not at all, and return once the disk has it. Errors: OSError."""
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"), allow_nan=False)
    document = json.dumps({"payload": text, "signature": _signature(text, purpose, secret)})
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(document)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_signed(path: Path, *, purpose: str, secret: bytes) -> dict[str, Any] | None:
    """Return the payload, None when there is no file. Errors: NotTrustedError."""
    try:
        document = json.loads(read_small_file(path, max_bytes=MAX_BYTES, linked=False))
        text, signature = document["payload"], document["signature"]
        if not hmac.compare_digest(_signature(text, purpose, secret), str(signature)):
            raise NotTrustedError(
                f"the signature of {path} is wrong", "Do both sides have the same secret?"
            )
        payload = json.loads(text)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NotTrustedError(f"{path} is no signed document: {error}", "Who wrote it?") from error
    if not isinstance(payload, dict):
        raise NotTrustedError(f"{path} holds no object", "Who wrote it?")
    return payload


def _signature(text: str, purpose: str, secret: bytes) -> str:
    return hmac.new(secret, f"{purpose}\n{text}".encode(), hashlib.sha256).hexdigest()
