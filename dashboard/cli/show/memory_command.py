"""`trimtab memory`: which job runs out of GPU memory, and where room has become free."""

import argparse
from dataclasses import asdict

from dashboard.cli.terminal.context import open_for_reading, settings_of
from dashboard.cli.terminal.output import FINDINGS, print_rows
from dashboard.resources.memory_rows import MemoryRow, memory_rows
from dashboard.resources.rows import columns_of


def memory(options: argparse.Namespace) -> int:
    """List the memory of every running job; 3 when one is likely to run out."""
    loaded = settings_of(options)
    with open_for_reading(loaded) as store:
        seconds = loaded.settings.planning.slot_minutes * 60
        rows = list(map(asdict, memory_rows(store.reader, slot_seconds=seconds)))
    runs_out = any(row["probability"] is not None for row in rows)
    if options.format != "json":
        rows = [row | {"advice": "; ".join(row["advice"])} for row in rows]
    empty = "No running job has a memory forecast yet: run `trimtab cycle`."
    print_rows(rows, options.format, columns=columns_of(MemoryRow), empty=empty)
    return FINDINGS if runs_out else 0
