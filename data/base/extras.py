"""The modules that each extra of the package brings, and the sentence where it is absent."""

import re
import shlex
import sys
from importlib import import_module
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path

from data.base.errors import SettingsError

EXTRAS = {
    "auth": "authlib.integrations.starlette_client",
    "kubernetes": "kubernetes.config",
    "mcp": "mcp",
    "pages": "streamlit",
    "postgres": "psycopg",
    "prophet": "prophet",
    "ray": "ray",
}
"""The module that is used; authlib alone imports without its HTTP client."""
_SLOW = frozenset({"pages", "prophet", "ray"})
"""Extras whose module takes a second to import: it is looked for, and not imported."""
_ROOT = Path(__file__).resolve().parents[2]
"""The clone, or the folder of the installed package."""


def absent_module(extra: str) -> str:
    """Return the module that an extra lacks, '' where it is installed."""
    module = EXTRAS[extra]
    try:
        if extra in _SLOW:
            return "" if find_spec(module) else module
        import_module(module.partition(".")[0])
        import_module(module)
    except ImportError as error:
        return error.name or module
    return ""


def require_extra(extra: str, why: str) -> None:
    """Refuse (SettingsError) to go on without an extra; `why` says what asks for it."""
    if absent := absent_module(extra):
        raise SettingsError(
            f"{why}, and a library for it is not installed: {absent}",
            install_command(extra),
        )


def install_command(extra: str) -> str:
    """Return how to add an extra to the Trimtab that runs, as a sentence.

    It names the libraries, by Trimtab's own metadata: in a package index the name `trimtab` may be
    somebody else's.
    """
    if (_ROOT / "Makefile").is_file():
        return f"Install the extra {extra!r}: make setup, in {_ROOT}."
    mark = re.compile(rf"""extra == ['"]{extra}['"]""")
    libraries = [
        line.partition(";")[0].strip() for line in requires("trimtab") or () if mark.search(line)
    ]
    words = shlex.join(["pip", "--python", sys.executable, "install", *libraries])
    return f"Install the libraries of the extra {extra!r}: {words}"
