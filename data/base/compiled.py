"""Compilation of numeric kernels: once for each state of the sources, in the user's cache.

Divisions of `inner` and `outer` follow NumPy (no check for zero); no fast-math, so unknown values
stay unknown; `reordering` alone takes sums in another order. An `inner` function becomes machine
code only within what calls it: numba by itself optimizes and emits each function alone, and again
in every function between it and Python. numba notices that a kernel's file changed, but not that a
function it calls from another file did; so the folder it keeps compiled code in is named after all
kernels' sources.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import njit
from numba.core import event

_F = TypeVar("_F", bound=Callable[..., Any])

_COMMON: dict[str, Any] = {"error_model": "numpy"}
# Without what Python needs to call a function, this compiles in half the time.
_BARE: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
# C calls none of them.
_OPTIONS: dict[str, Any] = {"no_cfunc_wrapper": True, "nogil": True}
_ROOT = Path(__file__).parents[2]
_PACKAGES = ("data", "forecasting", "planner", "benchmarks")


def compiled(function: _F) -> _F:
    """Compile a function that Python and compiled functions call."""
    return _cached(function, _OPTIONS | {"error_model": "python"})


def inner(function: _F) -> _F:
    """Compile a function that only compiled ones call: with each of them, and kept with them."""
    return cast(_F, njit(**_COMMON, **_BARE, **_late())(function))


def reordering(function: _F) -> _F:
    """Compile as `inner` does, with sums in any order: several of their terms are added at once.

    A product that is added is not rounded before.
    """
    return cast(_F, njit(**_COMMON, **_BARE, **_late(), fastmath={"reassoc", "contract"})(function))


def outer(function: _F) -> _F:
    """Compile a function that Python calls; other threads may run meanwhile."""
    return _cached(function, _COMMON | _OPTIONS)


def cache_folder() -> Path:
    """Return the folder for compiled code of exactly these sources, in the user's cache."""
    digest = hashlib.sha256(numba.__version__.encode())
    for package in _PACKAGES:
        for path in sorted((_ROOT / package).rglob("*kernel.py")):
            digest.update(path.read_bytes())
    for name in ("compiled.py", "late_code.py"):
        digest.update(Path(__file__).with_name(name).read_bytes())
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "trimtab" / f"kernels-{digest.hexdigest()[:16]}"


@contextmanager
def compiling(note: Callable[[int], None]) -> Iterator[None]:
    """Call `note` with the number so far whenever a function of ours was compiled, not read.

    It is called in the thread that compiles, and must not raise.
    """
    ended = _Compiled(note)
    with event.install_listener("numba:compile", ended):
        yield


class _Compiled(event.Listener):
    """Counts the ends of compilations, but of numba's own functions."""

    def __init__(self, note: Callable[[int], None]) -> None:
        self._note = note
        self._count = 0

    def on_start(self, event: object) -> None:
        """Wait for the end."""

    def on_end(self, event: Any) -> None:
        """Count it, and tell."""
        if not event.data["dispatcher"].py_func.__module__.startswith("numba."):
            self._count += 1
            self._note(self._count)


def _late() -> dict[str, Any]:
    """Return the options that make an inner function late; none for a numba that is not known."""
    try:
        from data.base.late_code import LateCompiler
    except ImportError:
        return {}
    return {"pipeline_class": LateCompiler}


def _cached(function: _F, options: dict[str, Any]) -> _F:
    try:
        return cast(_F, njit(**options, cache=True)(function))
    except RuntimeError:
        # numba finds no folder that it may write, as on a read-only root: compile in every process.
        return cast(_F, njit(**options)(function))


@inner
def copy_into(target: Any, source: Any) -> None:
    """Copy an array into one of its shape, which is not checked.

    For `target[:] = source` numba compiles how to print two shapes: 3.5 CPU s in a process.
    """
    for place in np.ndindex(source.shape):
        target[place] = source[place]


def begin_with_shipped(folder: Path) -> None:
    """Fill the folder for compiled code, where there is none yet, with what an image came with.

    That is in $COMPILED_TRIMTAB (TRIMTAB_… are settings), in a folder of the same name. numba reads
    of it what was compiled for this CPU name (NUMBA_CPU_NAME) from these files, and compiles the
    rest.
    """
    shipped = Path(os.environ.get("COMPILED_TRIMTAB") or "/nowhere") / folder.name
    if folder.exists() or not shipped.is_dir():
        return
    with suppress(OSError):  # nowhere to write, or another process was faster
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            # numba replaces files of it, so they must belong to who runs it.
            copied = shutil.copytree(shipped, Path(scratch) / folder.name)
            copied.rename(folder)


if not os.environ.get("NUMBA_CACHE_DIR"):
    begin_with_shipped(_folder := cache_folder())
    numba.config.CACHE_DIR = str(_folder)  # type: ignore[attr-defined]
