"""Names in a trace: words that say there is none, and boards that are written in several ways."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from trace_cases import PLAIN, START, imported, rows

from data.store import StoreReader, open_store

NOTHING = ["", " ", "-", "null", "None", "NaN", "nan", "N/A", "NA", r"\N", " NULL ", "<NA>"]
BOARD = "GPU-0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"


def hourly_kwh(reader: StoreReader, by: str) -> dict[str, float]:
    """The energy of the hour that the trace covers, by what it was used for."""
    found = reader.energy(start=START, end=START + timedelta(hours=1), by=by)
    return dict(zip(found["key"], found["energy_kwh"], strict=True))


def test_a_word_for_no_value_is_no_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The rows stay, their board is held by none, and the import counts them."""
    trace = rows(job=lambda n: NOTHING[n - 28] if n >= 28 else "team/a")
    code, out, _err = imported(tmp_path, capsys, trace)
    assert (code, "and 1 job kept" in out) == (0, True)
    assert "12 rows name no job" in out
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        assert [job.job_id for job in store.reader.jobs()] == ["team/a"]
        by_job = hourly_kwh(store.reader, "job")
    assert set(by_job) == {"team/a", "(unattributed)"}


def test_a_word_for_no_value_is_no_board(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such a row is dropped under its reason, not kept for a board that is called so."""
    code, out, _err = imported(
        tmp_path, capsys, rows(gpu=lambda n: NOTHING[n - 28] if n >= 28 else "GPU-1")
    )
    assert (code, "dropped: 12 no-uuid" in out) == (0, True)
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        assert [gpu.gpu_uuid for gpu in store.reader.gpus()] == ["GPU-1"]


def test_names_that_hold_such_a_word_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only a whole cell says that there is none; what was read so is told."""
    names = ["Na-7", "nano", "none-such", "nullable", "team/null", "N/A/1"]
    code, out, _err = imported(tmp_path, capsys, rows(42, job=lambda n: [*names, "Na"][n % 7]))
    assert code == 0
    assert "6 rows name no job ('Na')" in out
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        assert sorted(job.job_id for job in store.reader.jobs()) == sorted(names)


def written(board: str, number: int) -> str:
    """A board's UUID in one of the ways in which exporters and people write it."""
    bare = board.removeprefix("GPU-")
    ways = [board, board.upper(), board.lower(), f" {board}", f"{board.upper()} ", f"gpu-{bare}"]
    return ways[number % len(ways)]


def test_a_board_is_one_however_its_uuid_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its energy counts once, and no reading is lost."""
    code, out, _err = imported(tmp_path, capsys, rows(gpu=lambda n: written(BOARD, n), power=600))
    assert (code, out.startswith("40 new samples of 40 rows")) == (0, True)
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        assert [gpu.gpu_uuid for gpu in store.reader.gpus()] == [BOARD]
        assert [job.gpu_count for job in store.reader.jobs()] == [1]
        assert sum(hourly_kwh(store.reader, "job").values()) == pytest.approx(0.6 * 39 / 60)


def two_nodes(order: str, seconds: int, job: str) -> str:
    """One board that two nodes report all the time, the second one `seconds` later."""
    lines = []
    for number in range(40):
        for node, late, name in (("n1", 0, "team/a"), ("n2", seconds, job)):
            at: datetime = START + timedelta(minutes=number, seconds=late)
            lines.append((node, f"{at:%Y-%m-%dT%H:%M:%SZ},{name},{BOARD},50,600,{node}"))
    if order == "by node":
        lines.sort(key=lambda pair: pair[0])
    return "\n".join(["at,job,gpu,util,power,node", *(line for _node, line in lines)]) + "\n"


ON_NODES = PLAIN.replace('node = "n1"\n', "") + '[columns.node]\ncolumn = "node"\n'


@pytest.mark.parametrize(
    ("order", "seconds", "job"),
    [
        ("by time", 0, "team/a"),
        ("by node", 30, "team/a"),
        ("by time", 30, "team/b"),
        ("by node", 0, "team/b"),
        ("by node", 30, ""),
    ],
)
def test_a_board_on_two_nodes_at_once_is_told_and_counts_once(
    order: str, seconds: int, job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever pieces of the file its rows come in, and whoever holds it."""
    trace = two_nodes(order, seconds, job)
    code, _out, err = imported(tmp_path, capsys, trace, ON_NODES)
    assert code == 0
    assert f"two nodes at once report 1 board, such as {BOARD} by n1 and n2" in err
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        energy = sum(hourly_kwh(store.reader, "job").values())
    assert energy == pytest.approx(0.6 * (39 + seconds / 60) / 60)


def test_a_board_that_moves_is_no_contradiction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """To another node and back, in a file that is sorted by node."""
    lines = []
    for number in range(60):
        node = "n2" if 20 <= number < 40 else "n1"
        at = START + timedelta(minutes=number)
        lines.append((node, f"{at:%Y-%m-%dT%H:%M:%SZ},team/a,{BOARD},50,600,{node}"))
    lines.sort(key=lambda pair: pair[0])
    trace = "\n".join(["at,job,gpu,util,power,node", *(line for _node, line in lines)])
    code, _out, err = imported(tmp_path, capsys, trace, ON_NODES)
    assert (code, "two nodes" in err) == (0, False)
