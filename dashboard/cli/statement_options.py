"""The command `trimtab statement` and its options; nothing heavy is imported."""

import argparse

from dashboard.cli.commands import add_command
from dashboard.cli.option_types import utc_time
from dashboard.statement.groups import GROUPS

FORMATS = ("table", "csv", "json", "focus-csv", "focus-parquet", "opencost")


def _groups(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    unknown = [part for part in found if part not in GROUPS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(GROUPS)}")
    return found


def add_statement(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command: what rows are told apart by, the range, and the format."""
    summary = "what the fleet costs, by whom: showback, budgets and FOCUS charges"
    parser = add_command(commands, "statement", ("statement_command", "statement"), summary)
    parser.add_argument(
        "--by",
        type=_groups,
        default=("tenant",),
        metavar="GROUPS",
        help=f"rows by these together, comma-separated: {', '.join(GROUPS)} (default tenant)",
    )
    parser.add_argument(
        "--every",
        choices=("total", "hour", "day", "week", "month"),
        help="each group by period, in the zone report.timezone (default total; FOCUS: day)",
    )
    parser.add_argument(
        "--from",
        dest="since",
        type=utc_time,
        metavar="TIME",
        help="default: the calendar month of --to",
    )
    parser.add_argument(
        "--to", dest="until", type=utc_time, metavar="TIME", help="default: the newest sample"
    )
    parser.add_argument(
        "--budgets",
        action="store_true",
        help="the month so far and its forecast end by tenant, at the time of --to",
    )
    parser.add_argument("--format", choices=FORMATS, default="table")
    parser.add_argument("--out", metavar="FILE", help="write here instead of stdout")
