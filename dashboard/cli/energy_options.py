"""The options of `trimtab energy`; nothing heavy is imported."""

import argparse

from dashboard.cli.option_types import utc_time

GROUPS = ("tenant", "namespace", "account", "owner", "job", "model", "node", "cluster", "fleet")
PERIODS = ("hour", "day", "week")


def add_energy_options(parser: argparse.ArgumentParser) -> None:
    """Add what the statement is told apart by, and its range."""
    parser.add_argument(
        "--by",
        choices=(*GROUPS, *PERIODS),
        default="tenant",
        help="rows; hour, day or week: of the whole fleet (default tenant)",
    )
    parser.add_argument(
        "--every",
        choices=("total", *PERIODS),
        default="total",
        help="each group by period, in the zone report.timezone (default total)",
    )
    parser.add_argument(
        "--from", dest="since", type=utc_time, metavar="TIME", help="default: 7 days before --to"
    )
    parser.add_argument(
        "--to", dest="until", type=utc_time, metavar="TIME", help="default: the newest sample"
    )
