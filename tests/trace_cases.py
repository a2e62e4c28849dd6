"""Traces in CSV with their map, and the command that imports them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dashboard.cli import main

START = datetime(2026, 1, 5, 12, tzinfo=UTC)
TIME = '[time]\ncolumn = "at"\n'
COLUMNS = """
[columns.job_id]
column = "job"
[columns.gpu_uuid]
column = "gpu"
"""
UTIL = '[columns.utilization_ratio]\ncolumn = "util"\nunit = "{}"\n'
WATTS = '[columns.power_watts]\ncolumn = "power"\nunit = "{}"\n'
CONSTANTS = '[constants]\nnode = "n1"\ngpu_model = "H100-SXM5-80GB"\n'
PLAIN = TIME + COLUMNS + UTIL.format("percent") + WATTS.format("watts") + CONSTANTS


def rows(count: int = 40, **cells: object) -> str:
    """CSV of a busy board, a row a minute; `cells` replaces columns by a value or a function."""
    lines = ["at,job,gpu,util,power"]
    for number in range(count):
        row: dict[str, object] = {
            "at": (START + timedelta(minutes=number)).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "job": "team/a",
            "gpu": "GPU-1",
            "util": 20 + number,
            "power": 300 + number,
        }
        for name, value in cells.items():
            row[name] = value(number) if callable(value) else value
        lines.append(",".join(str(row[name]) for name in ("at", "job", "gpu", "util", "power")))
    return "\n".join(lines) + "\n"


def imported(
    folder: Path, capsys: pytest.CaptureFixture[str], trace: str | bytes, mapping: str = PLAIN
) -> tuple[int, str, str]:
    """The exit code and what was said, on both streams."""
    path, where = folder / "trace", folder / "map.toml"
    path.write_bytes(trace if isinstance(trace, bytes) else trace.encode())
    where.write_text(mapping)
    store = f"duckdb:///{folder}/t.duckdb"
    code = main(["--quiet", "--store", store, "import", str(path), "--map", str(where)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err
