"""The kill switch: a file. While it exists nothing is applied, whoever made it and however.

A file works when the store is held by another process, when the dashboard hangs, and from any
shell: `touch` stops, `rm` resumes. It is asked before every command that is sent. Others may write
its folder: a link there stops, and leads to no other file.
"""

import json
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Lock

from data.base.clock import utc_now
from data.base.errors import ApplyError, scrub
from data.base.files import open_unlinked, read_small_file

_REPLACING = Lock()
"""Held while the file is written, or compared and removed."""
_SEEN_FOLDERS: set[Path] = set()
"""Folders of stop files that were there in this process: one that is gone may have held a stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """Stop of applying: by whom, when and why; unknown is ''."""

    by: str = ""
    at: str = ""
    reason: str = ""

    def describe(self) -> str:
        """Return it in words for page, command line and audit."""
        by = f" by {self.by}" if self.by else ""
        at = f" at {self.at}" if self.at else ""
        return f"applying is stopped{by}{at}" + (f": {self.reason}" if self.reason else "")


def stopped(path: Path) -> Stopped | None:
    """Tell whether applying is stopped, as by what cannot be read or a folder that is gone."""
    folder = path.absolute().parent
    try:
        text = read_small_file(path, linked=False).decode()
        _SEEN_FOLDERS.add(folder)
    except FileNotFoundError:
        if folder.is_dir():
            _SEEN_FOLDERS.add(folder)
        elif folder in _SEEN_FOLDERS:
            return Stopped(reason=f"the folder {folder} of the stop file was there and is gone")
        return None
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or type(error).__name__
        return Stopped(reason=f"{path} cannot be read ({problem})")
    try:
        data = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):  # also a number of thousands of digits
        data = {"reason": text}
    if not isinstance(data, dict):
        data = {"reason": text}
    parts = {name: scrub(str(data.get(name, ""))) for name in ("by", "at", "reason")}
    return Stopped(**parts)


def stop(path: Path, *, by: str, reason: str, at: datetime | None = None) -> Stopped:
    """Stop applying. Errors: ApplyError when the file cannot be made."""
    state = Stopped(by=by, at=f"{at or utc_now():%Y-%m-%d %H:%M:%S} UTC", reason=reason)
    text = json.dumps({"by": state.by, "at": state.at, "reason": state.reason}, ensure_ascii=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _REPLACING:
            handle = open_unlinked(path, os.O_WRONLY | os.O_CREAT)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.truncate(0)
                file.write(text + "\n")
    except OSError as error:
        if stopped(path) is not None:  # whatever stands there stops as it is
            return state
        raise ApplyError(
            f"cannot make the stop file {path}: {error.strerror}",
            "Make it by hand where apply.stop_file points, or set apply.enabled to false.",
        ) from error
    return state


def version_of(path: Path) -> tuple[int, int]:
    """Return the file and its last change, which every stop moves; zeros where nothing is."""
    try:
        state = path.lstat()
    except OSError:
        return (0, 0)
    return (state.st_ino, state.st_mtime_ns)


def resume(path: Path, version: tuple[int, int] | None = None) -> bool:
    """Remove the stop file, of this version alone where one is given.

    Tell whether there was one. Errors: ApplyError.
    """
    try:
        with _REPLACING:
            if version not in (None, version_of(path)):
                return True  # a later stop, which nobody has taken back
            path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ApplyError(
            f"cannot remove the stop file {path}: {error.strerror}", "Remove it by hand."
        ) from error
    return True
