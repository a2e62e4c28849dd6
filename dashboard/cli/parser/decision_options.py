"""Commands of decisions, from the table of decisions; nothing heavy is imported here."""

import argparse

from dashboard.cli.parser.add_command import add_command
from dashboard.cli.terminal.option_types import utc_time
from dashboard.decisions.decision_table import COMMANDS, WishKind
from data.records.findings import DismissalReason

_ID = "its number (TT-12), or the first characters of an id"
_REASONS = [str(reason) for reason in DismissalReason]


def add_decision(actions: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str) -> None:
    """Add the command of a decision: whom it is about, who decides, and the fields it takes."""
    (row,) = (row for row in COMMANDS if row.command == name)
    module, function = ("apply", "change") if row.changes else ("decision", name)
    values = {"words": name, "help": row.help, "run": f"decide.{module}_commands:{function}"}
    reads = {"reads": "server" if row.changes else "store or server"}
    action = add_command(actions, values | reads | {"defaults": {"decision": row.wish}})
    action.add_argument("id", help=_ID)
    action.add_argument("--by", required=True, metavar="NAME", help="who decides")
    action.add_argument("--comment", default="", help="why")
    if "reason" in row.fields:
        action.add_argument("--reason", choices=_REASONS, help="why it is dismissed")
    if "until" in row.fields:
        span = action.add_mutually_exclusive_group(required=True)
        span.add_argument("--days", type=float, help="for so many days")
        span.add_argument(
            "--until", type=utc_time, metavar="TIME", help="until this time (ISO, UTC)"
        )
    if "change_digest" in row.fields:
        words = "look at the target first, print the steps, and approve these alone"
        action.add_argument("--look", action="store_true", help=words)
    if row.wish is WishKind.APPLY_OR_WRITE:
        words, write = "only write the change file", WishKind.WRITE
        action.add_argument(
            "--file", dest="decision", action="store_const", const=write, help=words
        )
