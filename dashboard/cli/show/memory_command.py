"""`trimtab memory`: which job runs out of GPU memory, and where room has become free."""

import argparse
from dataclasses import asdict

from dashboard.cli.terminal.ask import answer_of
from dashboard.cli.terminal.output import FINDINGS, print_rows
from dashboard.resources.memory_rows import MEMORY, MemoryRow
from data.base.rows import columns_of


def memory(options: argparse.Namespace) -> int:
    """List the memory of every running job; 3 when one is likely to run out."""
    answer = answer_of(options, MEMORY)
    rows = [asdict(row) for row in answer]
    runs_out = any(row["probability"] is not None for row in rows)
    if options.format != "json":
        rows = [row | {"advice": "; ".join(row["advice"])} for row in rows]
    empty = "No running job has a memory forecast yet: run `trimtab cycle`."
    print_rows(rows, options.format, columns=columns_of(MemoryRow), empty=empty)
    return FINDINGS if runs_out else 0
