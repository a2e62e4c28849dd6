"""A store whose files cannot grow: what was kept stays, and writing goes on when there is room."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from reliability import Measured

PROGRAM = Path(__file__).parents[1] / "beds" / "store_without_room.py"
ROWS = PROGRAM.with_name("rows_without_room.py")


@pytest.mark.slow
@pytest.mark.parametrize("left_kib", [0, 100, 1000, 3000])
def test_a_store_that_cannot_grow_loses_nothing_and_goes_on(
    tmp_path: Path, left_kib: int, measured: Measured
) -> None:
    """Writes fail by name, reading goes on; with room again the same process writes again."""
    done = subprocess.run(
        [sys.executable, PROGRAM, tmp_path, str(left_kib)],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert told["counted"] == told["kept"]
    assert "space" in told["refusal"]
    assert told["after"] == told["reopened"] == told["kept"] + 1
    measured(f"{told['kept']} batches kept before the disk was full, none lost, writing went on")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["audit", "job", "node", "retention", "told"])
def test_a_row_that_is_written_again_without_room_ends_no_process(
    tmp_path: Path, kind: str
) -> None:
    """A refusal, and the next write holds: DuckDB ends a process that inserts a deleted key."""
    done = subprocess.run(
        [sys.executable, ROWS, tmp_path, kind],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "space" in done.stdout
