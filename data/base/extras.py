"""The modules that each extra of the package brings, and the sentence where it is absent."""

from importlib import import_module
from importlib.util import find_spec

from data.base.errors import SettingsError

EXTRAS = {
    "auth": "authlib.integrations.starlette_client",
    "kubernetes": "kubernetes.config",
    "mcp": "mcp",
    "postgres": "psycopg",
    "ray": "ray",
}
"""The module that is used; authlib alone imports without its HTTP client."""
_FROM_AFAR = frozenset({"ray"})
"""Modules for a process of their own: they are looked for, and not imported."""


def require_extra(extra: str, why: str) -> None:
    """Refuse (SettingsError) to go on without an extra; `why` says what asks for it."""
    module, absent = EXTRAS[extra], ""
    try:
        if extra not in _FROM_AFAR:
            import_module(module.partition(".")[0])
            import_module(module)
        elif find_spec(module) is None:
            absent = module
    except ImportError as error:
        absent = error.name or module
    if absent:
        raise SettingsError(
            f"{why}, and a library for it is not installed: {absent}",
            f"Install the extra: pip install 'trimtab[{extra}]'.",
        )
