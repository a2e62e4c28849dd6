"""How numeric kernels are compiled: once, kept beside the source.

Divisions follow NumPy (no check for zero); no fast-math, so unknown values stay unknown. A trap:
numba sees that a file changed, not that a function imported from another file did; after editing
one, remove the *.nbi files beside the source.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

_F = TypeVar("_F", bound=Callable[..., Any])

_COMMON: dict[str, Any] = {"error_model": "numpy"}
# Without what Python needs to call a function, this compiles in half the time.
_BARE: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def inner(function: _F) -> _F:
    """Compile a function that only compiled ones call."""
    return _compiled(function, _COMMON | _BARE)


def outer(function: _F) -> _F:
    """Compile a function that Python calls; other threads may run meanwhile."""
    return _compiled(function, _COMMON | {"nogil": True})


def _compiled(function: _F, options: dict[str, Any]) -> _F:
    try:
        return cast(_F, njit(**options, cache=True)(function))
    except RuntimeError:
        # numba finds no folder that it may write, as on a read-only root: compile in every process.
        return cast(_F, njit(**options)(function))
