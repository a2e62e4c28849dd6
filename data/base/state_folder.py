"""The folder of what Trimtab keeps for a user."""

from collections.abc import Mapping
from pathlib import Path

DEFAULT_FOLDER = "~/.local/state/trimtab"
"""Name of the folder in defaults of settings."""
LOCAL_FOLDER = ".trimtab"
"""The folder of an account without a home, in the directory that it works in."""


def state_folder(environ: Mapping[str, str]) -> str:
    """Return the folder of this user: $XDG_STATE_HOME/trimtab, else that below the home.

    As the specification of that variable has it, a relative path is not taken.
    """
    home = environ.get("XDG_STATE_HOME", "")
    if home.startswith("/"):
        return f"{home.rstrip('/')}/trimtab"
    try:
        return str(Path(DEFAULT_FOLDER).expanduser())
    except RuntimeError:  # an account without a home, as in some containers
        return LOCAL_FOLDER
