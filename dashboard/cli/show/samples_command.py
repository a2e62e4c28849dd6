"""`trimtab samples`: what figures are made of, down to the readings."""

import argparse
from dataclasses import asdict
from typing import Any

from dashboard.cli.terminal.context import asks_a_server, open_for_reading, settings_of
from dashboard.cli.terminal.output import print_rows
from dashboard.cli.terminal.remote_server import RemoteServer, server_of
from dashboard.resources.sample_rows import (
    ReadingRow,
    SlotRow,
    reading_rows,
    slot_rows,
    traced_range,
)
from data.base.errors import SettingsError
from data.base.rows import columns_of

_MAX_ROWS = 10_000_000
_NONE = "Nothing of it is stored in this range."


def samples(options: argparse.Namespace) -> int:
    """Print the readings of a board, or the slots of a board or a job."""
    _require_a_board(options)
    if asks_a_server(options):
        return _remote_samples(options, server_of(options))
    with open_for_reading(settings_of(options)) as store:
        span = traced_range(
            store.reader,
            start=options.since,
            end=options.until,
            gpu_uuid=options.gpu,
            job_id=options.job,
        )
        read = slot_rows if options.slots else reading_rows
        entries: list[Any] = list(read(store.reader, span, most=_MAX_ROWS))
    return _print(options, entries)


def _remote_samples(options: argparse.Namespace, server: RemoteServer) -> int:
    """Print them as a server tells them."""
    values = {
        "gpu": options.gpu,
        "from": options.since and options.since.isoformat(),
        "to": options.until and options.until.isoformat(),
    }
    if options.slots:
        values["job"] = options.job
    query = {name: value for name, value in values.items() if value}
    path, kind = ("slots", SlotRow) if options.slots else ("samples", ReadingRow)
    return _print(options, server.rows(path, kind, query))


def _require_a_board(options: argparse.Namespace) -> None:
    if options.job and not options.slots:
        raise SettingsError(
            "--job has no readings of its own: whose they are is what slots tell",
            "Give --slots with --job, or --gpu.",
        )
    if not options.job and not options.gpu:
        raise SettingsError(
            "neither a GPU nor a job is named", "Give --gpu, or --job with --slots."
        )


def _print(options: argparse.Namespace, entries: list[Any]) -> int:
    kind = SlotRow if options.slots else ReadingRow
    rows = [asdict(row) for row in entries]
    print_rows(rows, options.format, columns=columns_of(kind), empty=_NONE)
    return 0
