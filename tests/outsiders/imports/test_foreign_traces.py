"""Foreign trace files: what is stored is what the file means, or the import says what is not."""

import contextlib
import io
import math
import re
import tempfile
from pathlib import Path

import duckdb
from outsiders.campaign import run_campaign
from outsiders.imports.foreign_traces import BUSY, Scenario, draw, expected, written
from reliability import Measured

from dashboard.cli import main

TOLD = re.compile(
    r"([\d,]+) new samples? of ([\d,]+) rows? and [\d,]+ jobs? kept from .*; "
    r"repeated: (\d+); dropped: (.*)\."
)


def stored(path: Path) -> tuple[float, float, set[float]]:
    """Return (kWh, board hours, utilizations seen) of all boards as the store has them."""
    with duckdb.connect(str(path), read_only=True) as database:
        found = database.execute(
            "SELECT coalesce(sum(joules), 0) / 3.6e6, coalesce(sum(board_seconds), 0) / 3600 "
            "FROM hourly"
        ).fetchone()
        seen = database.execute("SELECT DISTINCT utilization_ratio FROM samples").fetchall()
    assert found is not None
    return float(found[0]), float(found[1]), {entry for (entry,) in seen if entry is not None}


def broken_promise(scenario: Scenario) -> str | None:
    """Import one foreign file; return what is wrong with what came of it, None if nothing is."""
    with tempfile.TemporaryDirectory() as folder:
        path, mapping, meaning = written(scenario, Path(folder))
        kwh, hours, dropped = expected(meaning)
        rows = len(meaning.rows) + meaning.broken
        store = Path(folder) / "t.duckdb"
        out, err = io.StringIO(), io.StringIO()
        arguments = ["--quiet", "--store", f"duckdb:///{store}", "import", str(path)]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([*arguments, "--map", str(mapping)])
        if "Traceback" in err.getvalue():
            return f"a traceback: {err.getvalue()[-300:]}"
        if code in (1, 2):
            return _judge_refusal(scenario, err.getvalue(), sum(dropped.values()), rows)
        told = TOLD.search(out.getvalue())
        if told is None:
            return f"rc {code} without a word of what was kept: {out.getvalue()!r}"
        new, read, repeated = (int(count.replace(",", "")) for count in told.groups()[:3])
        lost = {
            name: int(count)
            for count, name in (
                part.split(" ", 1) for part in told[4].split(", ") if part != "none"
            )
        }
        if new + repeated + sum(lost.values()) != read:
            return f"rows do not add up: {told[0]}"
        if scenario.shape != "cut" and (read != rows or lost != dict(dropped)):
            return f"{told[0]} where the file has {rows} rows and {dict(dropped)}"
        if (code == 3) != (2 * sum(lost.values()) > read) and "refused" not in err.getvalue():
            return f"rc {code} with {sum(lost.values())} of {read} rows lost"
        near = 2e-3 if scenario.numbers == "float16" else 1e-6
        *found, seen = stored(store)
        if not seen <= BUSY:
            return f"utilizations {sorted(seen - BUSY)[:3]} stored, the file means {sorted(BUSY)}"
        if scenario.shape == "cut" or all(
            math.isclose(entry, other, rel_tol=near, abs_tol=1e-9)
            for entry, other in zip(found, (kwh, hours), strict=True)
        ):
            return None
        return f"stored {tuple(found)}, the file means {(kwh, hours)}: {told[0]}"


def _judge_refusal(scenario: Scenario, message: str, lost: int, rows: int) -> str | None:
    if scenario.is_sound and lost < rows / 2 and "could be kept" not in message:
        return f"refused although nothing is wrong: {message}"
    named = ("column", "trace", "row", "format", "map", "UTF-8", "start", "unit")
    return None if any(word in message for word in named) else f"refused without a name: {message}"


def test_foreign_traces(measured: Measured) -> None:
    """Kept + repeated + dropped are the rows; energy and hours are those that the file means."""
    run_campaign("imports", draw, broken_promise, default=4, measured=measured)
