"""Digests: stable names for values, so that an approval means exactly one recommendation."""

import hashlib
import json
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

SHORT_ID_LENGTH = 12


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        # Not `asdict`, which copies every leaf of the tree: two thirds of the time of a digest.
        return {field.name: getattr(value, field.name) for field in fields(value) if field.init}
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"cannot digest a {type(value).__name__}")


def canonical_json(value: Any) -> str:
    """Return one JSON text for one value: sorted keys, no spaces, times in ISO 8601."""
    return json.dumps(
        value,
        default=_plain,
        sort_keys=True,
        separators=(",", ":"),
        allow_nan=False,
        ensure_ascii=False,
    )


def digest_of(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON of a record or plain value, as 64 hex digits."""
    return digest_of_text(canonical_json(value))


def digest_of_text(text: str) -> str:
    """Return the SHA-256 of a text, such as the canonical JSON that a record is kept as."""
    return hashlib.sha256(text.encode()).hexdigest()
