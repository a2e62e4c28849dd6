"""`trimtab energy` and `trimtab score`: the energy and ESG statement of a range; its work."""

import argparse
import sys
from dataclasses import asdict

from dashboard.accounting.energy.build import asked_statement
from dashboard.accounting.energy.export import statement_csv, statement_document
from dashboard.accounting.energy.periods import WHOLE_RANGE, Calendar
from dashboard.accounting.energy.statement import StatementRow, covered
from dashboard.cli.terminal.ask import answer_of, print_document
from dashboard.cli.terminal.context import asks_a_server, open_for_reading, settings_of
from dashboard.cli.terminal.output import NOT_OBSERVED, PARTIAL, print_json, print_rows, range_text

_COLUMNS = (
    "period",
    "group",
    "board-hours",
    "GPU-hours",
    "idle",
    "measured",
    "GPU energy",
    "location-based",
    "market-based",
    "embodied",
    "SCI",
)


def energy(options: argparse.Namespace) -> int:
    """Print the statement; what is unknown goes to stderr. 3 when no energy was measured at all."""
    if asks_a_server(options):
        return print_document(
            options, "energy", by=options.by, every=options.every, start=options.since,
            end=options.until,
        )  # fmt: skip
    loaded = settings_of(options)
    with open_for_reading(loaded) as store:
        statement = asked_statement(
            store.reader,
            loaded.settings,
            by=options.by,
            every=options.every,
            start=options.since,
            end=options.until,
        )
    if options.format == "json":
        print_json(statement_document(statement))
    elif options.format == "csv":
        sys.stdout.write(statement_csv(statement))
    else:
        rows = [_row(row, statement.calendar, row.measured_ratio) for row in statement.rows]
        ratio = statement.completeness_ratio
        total = _row(statement.total, WHOLE_RANGE, ratio) if rows else None
        print_rows(
            [*rows, *([total] if total else [])],
            "table",
            columns=_COLUMNS,
            empty=NOT_OBSERVED,
        )
        for line in statement.unknown:
            print(f"unknown: {line}", file=sys.stderr)
    return PARTIAL if statement.total.gpu_energy_kwh is None else 0


def score(options: argparse.Namespace) -> int:
    """Print the score and its parts; 3 where nothing is known of it."""
    from dashboard.resources.documents import SCORE

    answer = answer_of(options, SCORE, start=options.since, end=options.until)
    if options.format == "json":
        print_json(answer)
        return PARTIAL if answer.share is None else 0
    parts = [
        {"GPU-hours": name.removesuffix("_hours"), "hours": hours, "of bought (%)": share}
        for name, hours in asdict(answer).items()
        if name.endswith("_hours")
        for share in [100 * hours / answer.bought_hours if answer.bought_hours else None]
    ]
    if options.format == "table":
        print(
            f"{range_text(answer.share) or 'unknown how much'} of the GPU-hours bought from "
            f"{answer.start:%Y-%m-%d %H:%MZ} to {answer.end:%Y-%m-%d %H:%MZ} did work; "
            f"{range_text(answer.before) or 'unknown'} in as long a time before."
        )
    print_rows(parts, options.format, columns=tuple(parts[0]), empty=NOT_OBSERVED)
    return PARTIAL if answer.share is None else 0


def _row(row: StatementRow, calendar: Calendar, ratio: float | None) -> dict[str, object]:
    return {
        "period": calendar.name_of(row.start),
        "group": row.name,
        "board-hours": row.board_hours,
        "GPU-hours": row.gpu_hours,
        "idle": row.idle_gpu_hours,
        "measured": "" if ratio is None else f"{100 * ratio:.1f} %",
        "GPU energy": range_text(row.gpu_energy_kwh),
        "location-based": range_text(row.location_kgco2e),
        "market-based": range_text(row.market_kgco2e),
        "embodied": covered(range_text(row.embodied_kgco2e), row.embodied_ratio),
        "SCI": covered(range_text(row.sci_gco2e), row.scored_ratio),
    }
