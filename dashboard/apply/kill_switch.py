"""The kill switch: a file. While it exists nothing is applied, whoever made it and however.

A file works when the store is held by another process, when the dashboard hangs, and from any
shell: `touch` stops, `rm` resumes. It is asked before every command that is sent.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from data.clock import utc_now
from data.errors import ApplyError, scrub


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """Who stopped applying, when and why; unknown is ''."""

    by: str = ""
    at: str = ""
    reason: str = ""

    def describe(self) -> str:
        """Return it in words for page, command line and audit."""
        by = f" by {self.by}" if self.by else ""
        at = f" at {self.at}" if self.at else ""
        return f"applying is stopped{by}{at}" + (f": {self.reason}" if self.reason else "")


def stopped(path: Path) -> Stopped | None:
    """Tell whether applying is stopped. A file that cannot be read stops it too."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if not path.is_symlink():
            return None
        return Stopped(reason=f"{path} leads to a file that is not there")
    except (OSError, UnicodeDecodeError) as error:
        return Stopped(reason=f"{path} cannot be read ({type(error).__name__})")
    try:
        said = json.loads(text) if text.strip() else {}
    except json.JSONDecodeError:
        said = {"reason": text}
    if not isinstance(said, dict):
        said = {"reason": text}
    known = {name: scrub(str(said.get(name, ""))) for name in ("by", "at", "reason")}
    return Stopped(**known)


def stop(path: Path, *, by: str, reason: str, at: datetime | None = None) -> Stopped:
    """Stop applying. Errors: ApplyError when the file cannot be made."""
    made = Stopped(by=by, at=f"{at or utc_now():%Y-%m-%d %H:%M:%S} UTC", reason=reason)
    text = json.dumps({"by": made.by, "at": made.at, "reason": made.reason}, ensure_ascii=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ApplyError(
            f"cannot make the stop file {path}: {error.strerror}",
            "Make it by hand where apply.stop_file points, or set apply.enabled to false.",
        ) from error
    return made


def resume(path: Path) -> bool:
    """Remove the stop file; tell whether there was one. Errors: ApplyError."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ApplyError(
            f"cannot remove the stop file {path}: {error.strerror}", "Remove it by hand."
        ) from error
    return True
