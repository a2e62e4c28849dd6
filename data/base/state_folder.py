"""The folder of what Trimtab keeps: the user's, or one that an earlier version made right here."""

from collections.abc import Mapping
from pathlib import Path

USUAL = "~/.local/state/trimtab"
"""Name of the folder in defaults of settings."""
EARLIER = ".trimtab"
"""The folder of earlier versions, in whatever directory they were started in."""


def state_folder(environ: Mapping[str, str]) -> str:
    """Return `.trimtab` where the working directory has one, else the folder of this user.

    That is $XDG_STATE_HOME/trimtab; as its specification has it, a relative path is not taken.
    Where the store lies there alone, a `.trimtab` that holds other files does not hide it.
    """
    usual = _usual(environ)
    hides = _has_store(usual) and not _has_store(EARLIER)
    return EARLIER if Path(EARLIER).is_dir() and not hides else usual


def _has_store(folder: str) -> bool:
    try:
        return Path(folder, "trimtab.duckdb").is_file()
    except OSError:  # of another account, such as under sudo: who opens the store says why
        return False


def _usual(environ: Mapping[str, str]) -> str:
    home = environ.get("XDG_STATE_HOME", "")
    if home.startswith("/"):
        return f"{home.rstrip('/')}/trimtab"
    try:
        return str(Path(USUAL).expanduser())
    except RuntimeError:  # an account without a home, as in some containers
        return EARLIER
