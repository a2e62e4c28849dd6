"""How a command asks the process that holds a DuckDB file for a backup of it.

DuckDB locks a file against every other process, so its holder makes the backup. The request is a
file beside the store and so is the answer: whoever may write there as the store's owner could open
the store itself, and no port, token or sign-in is involved.
"""

import json
import os
import secrets
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from data.errors import StoreBusyError, StoreError, TrimtabError
from data.store.backup import back_up
from data.store.copy_store import TableProof
from data.store.engine import open_engine
from data.store.private_files import write_private
from data.store.store import Store

_MAX_BYTES = 65_536
_LOOK_EVERY = timedelta(milliseconds=200)
_TAKEN_WITHIN = timedelta(seconds=20)
_ALIVE_EVERY = timedelta(seconds=5)


def _request_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.backup-request")


def _answer_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.backup-answer")


def answer_request(store: Store) -> bool:
    """Make the backup that somebody asks for, if anybody does; False: nothing more to do."""
    path = store.file
    if path is None or (request := _taken(_request_of(path))) is None:
        return False
    try:
        proofs = back_up(store, Path(str(request["file"])), progress=lambda *_state: None)
        said: dict[str, object] = {"proofs": [asdict(proof) for proof in proofs]}
    except TrimtabError as error:
        said = {"message": error.message, "hint": error.hint}
    with suppress(OSError):
        write_private(_answer_of(path), json.dumps(said | {"id": request["id"]}).encode())
    return False


def _taken(path: Path) -> dict[str, str] | None:
    """Take a request away and return it; None where there is none or it is not our own user's."""
    if not path.exists():
        return None
    with suppress(OSError, ValueError, TypeError, KeyError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(handle)
            ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
            said = json.loads(file.read(_MAX_BYTES)) if ours else {}
        path.unlink()
        return {name: str(said[name]) for name in ("id", "file")}
    return None


def ask_holder(
    path: Path, file: Path, *, busy: StoreBusyError, pause: Callable[[float], None] = time.sleep
) -> tuple[TableProof, ...]:
    """Have the process that holds the store at `path` write a backup to `file`; give its proof.

    `busy` is how the store refused. Errors: StoreBusyError when the holder takes no requests,
    StoreError when it fails or ends meanwhile.
    """
    name = secrets.token_hex(8)
    request, answer = _request_of(path), _answer_of(path)
    write_private(request, json.dumps({"id": name, "file": str(file.absolute())}).encode())
    begun = looked = time.monotonic()
    try:
        while (said := _said(answer, name)) is None:
            pause(_LOOK_EVERY.total_seconds())
            now = time.monotonic()
            if request.exists() and now - begun > _TAKEN_WITHIN.total_seconds():
                raise StoreBusyError(
                    f"{busy.message}, which takes no request for a backup",
                    "Wait until that command has ended; `trimtab serve` backs up while it runs.",
                )
            if now - looked > _ALIVE_EVERY.total_seconds():
                looked = now
                _require_held(path)
    finally:
        for used in (request, answer):
            with suppress(OSError):
                used.unlink(missing_ok=True)
    if "proofs" not in said:
        raise StoreError(str(said.get("message")), str(said.get("hint")))
    return tuple(TableProof(**proof) for proof in said["proofs"])


def _said(answer: Path, name: str) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        said = json.loads(answer.read_bytes())
        if said.get("id") == name:
            return dict(said)
    return None


def _require_held(path: Path) -> None:
    try:
        open_engine(path, create=False).dispose()
    except StoreBusyError:
        return
    raise StoreError(
        f"the process that held {path} ended before the backup was whole",
        "Nothing was written; give the command again.",
    )
