"""A store whose files cannot grow: what was kept stays, and writing goes on when there is room."""

import json
import os
from pathlib import Path

import pytest
from beds.forked_trimtab import fork_trimtab
from reliability import Measured

PROGRAM = Path(__file__).parents[1] / "beds" / "store_without_room.py"
ROWS = PROGRAM.with_name("rows_without_room.py")


def run(program: Path, folder: Path, argument: str) -> str:
    """Run a program on a store of a folder to its good end; return what it said."""
    log, place = folder / "said.log", folder / "store"
    place.mkdir()
    process = fork_trimtab(
        [str(place), argument], script=program, folder=folder, environ={**os.environ}, log=log
    )
    status = process.wait(timeout=300)
    said = log.read_text(encoding="utf-8")
    assert status == 0, said[-2000:]
    return said


@pytest.mark.slow
@pytest.mark.parametrize("left_kib", [0, 100, 1000, 3000])
def test_a_store_that_cannot_grow_loses_nothing_and_goes_on(
    tmp_path: Path, left_kib: int, measured: Measured
) -> None:
    """Writes fail by name, reading goes on; with room again the same process writes again."""
    told = json.loads(run(PROGRAM, tmp_path, str(left_kib)))
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
    assert "space" in run(ROWS, tmp_path, kind)
