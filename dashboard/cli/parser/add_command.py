"""Functions that add commands to a parser; nothing heavy is imported before one runs."""

import argparse
import importlib
from collections.abc import Callable

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


def deferred(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    """Return the function of a module, which is imported when it runs."""

    def run(options: argparse.Namespace) -> int:
        values = vars(options)
        if values.get("server") is not None or values.get("token_file") is not None:
            return _on_a_server(options, module, function)
        if module in _READERS and function != "settings":
            from dashboard.cli.terminal.context import require_a_store

            require_a_store(options)
        command = getattr(importlib.import_module(f"dashboard.cli.{module}"), function)
        return int(command(options))

    return run


def _on_a_server(options: argparse.Namespace, module: str, function: str) -> int:
    from dashboard.cli.parser.remote_commands import run_remote
    from dashboard.cli.terminal.remote_server import server_of

    return run_remote(options, server_of(options), module, function)


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
