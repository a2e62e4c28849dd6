"""Compiled code is kept by the state of the sources, so that no stale code runs."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as drawn
from numba import njit

from data.base import compiled


def test_a_changed_kernel_has_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One character in any kernel moves the cache; other files do not."""
    package = tmp_path / "planner" / "deep"
    package.mkdir(parents=True)
    kernel = package / "some_kernel.py"
    kernel.write_text("A = 1\n", encoding="utf-8")
    monkeypatch.setattr(compiled, "_ROOT", tmp_path)
    before = compiled.cache_folder()
    assert before == compiled.cache_folder()
    (package / "other.py").write_text("B = 1\n", encoding="utf-8")
    assert compiled.cache_folder() == before
    kernel.write_text("A = 2\n", encoding="utf-8")
    assert compiled.cache_folder() != before


def test_what_is_compiled_is_counted_once() -> None:
    """A function of ours and the one it calls count, what numba compiles for them does not."""

    @njit
    def inside(values: np.ndarray) -> float:
        return float(np.zeros(len(values)).sum() + values[0])

    @njit
    def outside(values: np.ndarray) -> float:
        return inside(values)

    told: list[int] = []
    with compiled.compiling(told.append):
        assert outside(np.ones(3)) == 1.0
        assert outside(np.ones(4)) == 1.0
    outside(np.ones(3, dtype=np.float32))
    assert told == [1, 2]


def test_the_users_own_folder_is_respected(tmp_path: Path) -> None:
    """NUMBA_CACHE_DIR is where a user wants it."""
    script = "import numba, data.base.compiled; print(numba.config.CACHE_DIR)"
    for environment, expected in (
        ({"NUMBA_CACHE_DIR": str(tmp_path)}, str(tmp_path)),
        ({"XDG_CACHE_HOME": str(tmp_path)}, str(tmp_path / "trimtab")),
    ):
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": "", **environment},
            cwd=Path(__file__).parents[2],
        )
        assert done.stdout.strip().startswith(expected)


@compiled.inner
def _step(total: float, value: float) -> float:
    if value > 1e6:
        raise ValueError("too large")
    return total + value / 3.0


@compiled.inner
def _steps(values: npt.NDArray[np.float64]) -> float:
    kept = np.empty(values.shape)
    compiled.copy_into(kept, values)
    total = 0.0
    for place in range(len(kept)):
        total = _step(total, kept[place])
    return total


@compiled.outer
def _forward(values: npt.NDArray[np.float64]) -> float:
    return _steps(values)


@compiled.compiled
def _both_ways(values: npt.NDArray[np.float64]) -> float:
    return _steps(values[::-1]) - _forward(values)


@compiled.inner
def _refuse(value: float) -> float:
    if value > 1.0:
        raise ValueError(value)
    return value


@compiled.outer
def _refusing(value: float) -> float:
    return _refuse(value)


@given(drawn.arrays(np.float64, st.integers(0, 9), elements=st.floats(-1e6, 1e6)))
def test_inner_functions_give_in_every_caller_what_python_gives(
    values: npt.NDArray[np.float64],
) -> None:
    """Two callers hold the same inner functions, one calls the other: equal to the last bit."""

    def by_python(numbers: list[float]) -> float:
        total = 0.0
        for number in numbers:
            total = total + number / 3.0
        return total

    forward = by_python(values.tolist())
    assert _forward(values) == forward
    assert _both_ways(values) == by_python(values[::-1].tolist()) - forward


def test_an_error_of_an_inner_function_reaches_python() -> None:
    """It is raised through all compiled callers; one that holds a value is no error of its own."""
    for caller in (_forward, _both_ways):
        with pytest.raises(ValueError, match="too large"):
            caller(np.array([0.0, 2e6]))
    with pytest.raises((RuntimeError, ValueError)):
        _refusing(2.0)


_ONE_KERNEL = """
import numba
{changed}
from data.base import compiled

@compiled.inner
def third(value):
    return value / 3.0

@numba.njit
def both(value):
    return third(value) + third(-value / 2.0)

print(both(1.0), third._compiler.pipeline_class.__name__)
"""


@pytest.mark.parametrize(
    ("changed", "compiler"),
    [
        ("", "LateCompiler"),
        ("numba.__version__ = '0.69.0'", "Compiler"),
        ("import numba.core.typed_passes as passes; del passes.AnnotateTypes", "Compiler"),
    ],
    ids=["the numba we know", "another numba", "one that lacks a name"],
)
def test_another_numba_compiles_as_it_does_by_itself(changed: str, compiler: str) -> None:
    """The result is the same, only later; the installed numba is the one that the hook knows."""
    done = subprocess.run(
        [sys.executable, "-c", _ONE_KERNEL.format(changed=changed)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.split() == [str(1.0 / 3.0 - 0.5 / 3.0), compiler]


@pytest.mark.parametrize("shape", [(0,), (4,), (3, 2), (2, 3, 2)])
def test_arrays_are_copied_whole(shape: tuple[int, ...]) -> None:
    """Whatever their dimensions and strides."""

    @njit
    def copied(target: npt.NDArray[np.float64], source: npt.NDArray[np.float64]) -> None:
        compiled.copy_into(target, source)

    source = np.arange(2.0 * np.prod(shape)).reshape((*shape, 2))[..., 0]
    target = np.zeros(shape)
    copied(target, source)
    assert np.array_equal(target, source)


_KEPT_KERNEL = """
from data.base import compiled

@compiled.outer
def half(value):
    return value / 2.0

count = []
with compiled.compiling(count.append):
    print(half(3.0), end=" ")
print(len(count))
"""


def test_what_an_image_was_shipped_with_is_not_compiled_again(tmp_path: Path) -> None:
    """For the same CPU name; for another the same answer is compiled, and a folder is kept."""
    script = tmp_path / "half_kernel.py"
    script.write_text(_KEPT_KERNEL, encoding="utf-8")

    def run(cache: str, shipped: str = "", cpu_name: str = "generic") -> list[str]:
        environment = os.environ | {
            "XDG_CACHE_HOME": str(tmp_path / cache),
            "NUMBA_CACHE_DIR": "",
            "NUMBA_CPU_NAME": cpu_name,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "COMPILED_TRIMTAB": str(tmp_path / shipped / "trimtab") if shipped else "",
        }
        done = subprocess.run(
            [sys.executable, script], capture_output=True, text=True, check=True, env=environment
        )
        return done.stdout.split()

    assert run("image") == ["1.5", "1"]
    assert run("pod", "image") == ["1.5", "0"]
    assert run("pod", "image") == ["1.5", "0"]
    assert run("other cpu", "image", "x86-64-v2" if platform.machine() == "x86_64" else "") == [
        "1.5",
        "1",
    ]
    assert run("nothing shipped", "nowhere") == ["1.5", "1"]
    (tmp_path / "own" / "trimtab" / compiled.cache_folder().name).mkdir(parents=True)
    assert run("own", "image") == ["1.5", "1"]


MAX_FUNCTIONS = 120
_COUNTED = """
import json
import planner.solver.warm_up
from numba.core import event
with event.install_recorder("numba:compile") as recorder:
    planner.solver.warm_up.warm_up()
names = [each.data["dispatcher"].py_func.__module__ for _at, each in recorder.buffer if each.is_end]
print(json.dumps(names))
"""


@pytest.mark.slow
def test_a_first_plan_compiles_no_text_and_no_more_than_its_budget(tmp_path: Path) -> None:
    """`target[:] = source` would compile how to print shapes; 100 functions of numba's own do."""
    done = subprocess.run(
        [sys.executable, "-c", _COUNTED],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path), "NUMBA_CACHE_DIR": ""},
        cwd=Path(__file__).parents[2],
    )
    modules = json.loads(done.stdout.splitlines()[-1])
    assert not [module for module in modules if module == "numba.cpython.unicode"]
    assert len(modules) <= MAX_FUNCTIONS
