"""The one decorator of compiled functions: typed, cached on disk, free of the interpreter lock."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Give the function compiled at its first call; later processes load it from the cache.

    A changed callee in another file is not seen by the cache: kernels call only functions of
    their own file, or of files that change with them.
    """
    return cast(Function, njit(cache=True, nogil=True)(function))
