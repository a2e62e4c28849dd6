"""numba's compiler without its end: functions that become machine code only within their callers.

It relies on what numba 0.68 does and promises nobody:
* lowering goes into `state.library` where an earlier pass has set one, which need not be kept;
* `finalize` links in what the function calls, then does `_optimize_final_module`, then
  `_finalize_final_module`, which emits the code and sets `_finalized`; a caller needs neither;
* without wrappers for Python and C, only `codegen.set_env` is called on what is finalized:
  a function may raise constants, but an error that holds a value becomes a RuntimeError.
Errors: importing this raises ImportError under another numba, or one without these names.
"""

from typing import Any

import numba
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.typed_passes import AnnotateTypes

SUPPORTED_NUMBA = "0.68."

if not numba.__version__.startswith(SUPPORTED_NUMBA):
    raise ImportError(f"numba {numba.__version__} may compile otherwise than {SUPPORTED_NUMBA}x")


class _Unplaced:
    """Stands for the engine of a function that is nowhere in memory by itself."""

    def set_env(self, _name: str, _environment: object) -> None:
        """Leave it to the callers, in whose code the function is."""


class _LateCode(JITCodeLibrary):
    """A function with what it calls, neither optimized nor emitted."""

    codegen = _Unplaced()

    def _optimize_final_module(self) -> None:
        """Leave it to the callers."""

    def _finalize_final_module(self) -> None:
        self._finalized = True


@register_pass(mutates_CFG=False, analysis_only=False)
class _LatePass(LoweringPass):
    _name = "trimtab_late_code"

    def __init__(self) -> None:
        LoweringPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Say into what the function is lowered."""
        codegen = state.targetctx.codegen()
        state.library = _LateCode(codegen, state.func_id.func_qualname)  # type: ignore[no-untyped-call]
        return True


class LateCompiler(Compiler):
    """Compiles as far as a caller needs; for functions with neither wrapper."""

    def define_pipelines(self) -> list[Any]:
        """Return numba's own pipeline with that pass before the lowering."""
        (pipeline,) = super().define_pipelines()  # type: ignore[no-untyped-call]
        pipeline.add_pass_after(_LatePass, AnnotateTypes)
        pipeline.finalize()
        return [pipeline]
