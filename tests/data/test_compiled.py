"""Compiled code is kept by the state of the sources, so that no stale code runs."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import njit

from data import compiled


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
    script = "import numba, data.compiled; print(numba.config.CACHE_DIR)"
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
