"""What the log's lines look like, as text and as JSON, and which of them are written."""

import json
import logging
import os
import re
import subprocess
import sys
from contextvars import Context
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dashboard.cli.terminal.log_format import TEXT, JsonLines, OneLine
from dashboard.common.cycle_id import begin_cycle, cycle_mark

NOW = datetime(2026, 11, 24, 9, tzinfo=UTC)
KEYS = {"time", "level", "logger", "cycle", "message"}
HOSTILE = "a\nERROR forged \x1b[2J"
LINES = """
import logging, sys
from dashboard.cli import main
main([*sys.argv[1:], "settings"])
for name in ("dashboard.cycle.run_cycle", "library", "matplotlib"):
    for level in ("debug", "info", "warning", "error"):
        getattr(logging.getLogger(name), level)("said")
"""


def said(*words: str, script: str = "", cwd: Path | None = None, code: int = 0) -> tuple[str, str]:
    """What a process of `trimtab` writes on stdout and on stderr."""
    start = script or "from dashboard.cli import program; program()"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", start, *words],
        cwd=cwd, env=os.environ | {"PYTHONPATH": str(root)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    ("options", "ours", "theirs"),
    [
        ((), "warning error", "warning error"),
        (("--log-level", "info"), "info warning error", "warning error"),
        (("--log-level", "warning"), "warning error", "warning error"),
        (("--log-level", "error"), "error", "error"),
        (("--log-level", "debug"), "debug info warning error", "debug info warning error"),
        (("--debug",), "debug info warning error", "debug info warning error"),
    ],
)
def test_a_level_is_chosen_without_tracebacks(
    options: tuple[str, ...], ours: str, theirs: str
) -> None:
    """INFO is ours alone; the megabytes of matplotlib stay out at any level."""
    _out, err = said(*options, script=LINES)
    lines = re.findall(r"(?m)^\S+ ([A-Z]+) ([\w.]+): said$", err)
    found = {
        name: [level.lower() for level, logger in lines if logger == name]
        for name in ("dashboard.cycle.run_cycle", "library", "matplotlib")
    }
    quiet = "error" if "error" in options else "warning error"
    assert {name: " ".join(levels) for name, levels in found.items()} == {
        "dashboard.cycle.run_cycle": ours, "library": theirs, "matplotlib": quiet,
    }  # fmt: skip


def record(message: str, **more: object) -> logging.LogRecord:
    """A record as the program's loggers make it."""
    made = OneLine("dashboard.x", logging.WARNING, "", 0, message, (), None)
    made.__dict__.update(more)
    return made


def test_a_line_names_the_cycle_of_its_thread() -> None:
    """Within a cycle and after it; elsewhere nothing stands in its place."""

    def in_a_cycle() -> tuple[str, str, str]:
        mark = begin_cycle(NOW)
        assert cycle_mark() == mark
        made = record("said")
        return mark, logging.Formatter(TEXT).format(made), JsonLines().format(made)

    mark, text, line = Context().run(in_a_cycle)
    assert re.fullmatch(r"[0-9a-f]{6}", mark)
    assert text.endswith(f" WARNING dashboard.x [{mark}]: said")
    assert json.loads(line)["cycle"] == mark
    outside = Context().run(record, "said")
    assert logging.Formatter(TEXT).format(outside).endswith(" WARNING dashboard.x: said")
    assert json.loads(Context().run(JsonLines().format, outside))["cycle"] is None


def test_two_moments_are_two_cycles_and_one_moment_is_one() -> None:
    """The mark comes from the time alone, as the plan is not there yet."""
    moments = (NOW, NOW, NOW.replace(second=1))
    first, again, later = (Context().run(begin_cycle, moment) for moment in moments)
    assert first == again != later


def test_an_entry_holds_time_level_logger_and_a_message_of_one_line() -> None:
    """The time is that of the record, in UTC; a traceback stands in a key of its own."""
    try:
        int(HOSTILE)
    except ValueError:
        failed = sys.exc_info()
    line = JsonLines().format(record(HOSTILE, created=NOW.timestamp() + 0.25, exc_info=failed))
    entry = json.loads(line)
    assert "\n" not in line
    assert entry.keys() == KEYS | {"traceback"}
    assert entry["time"] == "2026-11-24T09:00:00.250+00:00"
    assert entry["level"] == "warning"
    assert entry["logger"] == "dashboard.x"
    assert entry["message"].isprintable()
    assert "ValueError" in entry["traceback"]


def test_an_error_of_a_command_is_an_entry_too(tmp_path: Path) -> None:
    """All that a command writes to stderr parses, and stdout holds data alone."""
    out, err = said(
        "--log-format", "json", "--store", f"duckdb:///{tmp_path}/none.duckdb", "jobs", code=1
    )
    (entry,) = map(json.loads, err.splitlines())
    assert out == ""
    assert entry["level"] == "error"
    assert "none.duckdb" in entry["message"]


@pytest.mark.slow
def test_every_line_of_a_cycle_as_json_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its id begins with what stands in the log from its first line on."""
    for name, value in {
        "SIMULATED_FLEET_ENABLED": "true", "SIMULATED_FLEET_NODES": "1",
        "PROMETHEUS_LOOKBACK_HOURS": "2", "PLANNING_HORIZON_SLOTS": "8", "PLANNING_WORKERS": "1",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"TRIMTAB_{name}", value)
    store = f"duckdb:///{tmp_path}/t.duckdb"
    out, err = said(
        "--log-format", "json", "--log-level", "info", "--store", store,
        "cycle", "--format", "json",
    )  # fmt: skip
    cycle_id = json.loads(out)["outcome"]["cycle_id"]
    entries = [json.loads(line) for line in err.splitlines()]
    own = [entry for entry in entries if entry["logger"] == "dashboard.cycle.run_cycle"]
    assert own[0]["message"].startswith("cycle started")
    assert {entry["cycle"] for entry in own} == {cycle_id[:6]}
    assert all(entry.keys() == KEYS for entry in entries)
