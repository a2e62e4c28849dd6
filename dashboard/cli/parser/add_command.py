"""Functions that add commands to a parser; nothing heavy is imported before one runs."""

import argparse
import importlib
from collections.abc import Callable, Sequence

from dashboard.cli.terminal.option_types import row_count, utc_time

_READERS = frozenset(
    {
        "show.energy_command",
        "decide.decision_commands",
        "decide.finding_commands",
        "show.forecast_command",
        "show.list_commands",
        "show.memory_command",
        "show.plan_command",
        "show.savings_command",
        "show.statement_command",
        "decide.token_command",
    }
)
"""Modules whose commands need a store that is there: they say so before they are imported."""


_BY_RESOURCES = frozenset(
    {
        ("show.list_commands", "jobs"), ("show.list_commands", "list_"),
        ("decide.finding_commands", "list_"), ("decide.finding_commands", "show"),
        ("decide.finding_commands", "idle"), ("show.plan_command", "plan"),
        ("show.memory_command", "memory"), ("show.samples_command", "samples"),
        ("show.forecast_command", "forecast"), ("show.energy_command", "energy"),
        ("show.statement_command", "statement"), ("show.savings_command", "savings"),
        ("show.report_command", "weekly"), ("show.serving_command", "services"),
    }
)  # fmt: skip
"""Commands that read the table of resources, of a store or of a server."""


def deferred(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    """Return the function of a module, which is imported when it runs."""

    def run(options: argparse.Namespace) -> int:
        values = vars(options)
        if values.get("server") is not None or values.get("token_file") is not None:
            _require_server(options, module, function)
        elif module in _READERS and function != "settings":
            from dashboard.cli.terminal.context import require_a_store

            require_a_store(options)
        command = getattr(importlib.import_module(f"dashboard.cli.{module}"), function)
        return int(command(options))

    return run


def _require_server(options: argparse.Namespace, module: str, function: str) -> None:
    """Refuse a server that cannot be asked, and a command that needs the store itself."""
    from dashboard.cli.terminal.remote_server import not_on_a_server, server_of

    server_of(options)
    if "decision" in vars(options):  # asks the server by `context.ask`
        if vars(options).get("matching") is not None:
            not_on_a_server("--matching", "by the API's /dismissals")
    elif (module, function) not in _BY_RESOURCES:
        not_on_a_server("this command")


def add_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    target: tuple[str, str],
    summary: str,
    *,
    lists: bool = False,
) -> argparse.ArgumentParser:
    """Add a command, with `--format` where it lists; `target` is (module, function)."""
    parser = commands.add_parser(name, help=summary, description=summary)
    parser.set_defaults(run=deferred(*target))
    if lists:
        parser.add_argument("--format", choices=("table", "json", "csv"), default="table")
    return parser


def add_selectors(
    parser: argparse.ArgumentParser, *, without: Sequence[str] = (), sorts: bool = True
) -> None:
    """Add what every list is chosen and ordered by, but for the options that it has itself."""
    for name, meaning in (
        ("cluster", "only what is in this cluster"),
        ("namespace", "only of this namespace"),
        ("owner", "only of this owner"),
        ("model", "only on this GPU model"),
        ("node", "only on this node"),
    ):
        if name not in without:
            parser.add_argument(f"--{name}", default="", metavar=name.upper(), help=meaning)
    parser.add_argument(
        "--since", type=utc_time, metavar="TIME", help="only what was seen since (ISO, UTC)"
    )
    parser.add_argument("--limit", type=row_count, metavar="N", help="so many rows at most")
    if sorts:
        parser.add_argument(
            "--sort", default="", metavar="COLUMN", help="by a column; -COLUMN the largest first"
        )
