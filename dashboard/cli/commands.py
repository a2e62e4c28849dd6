"""How commands are added to a parser; nothing heavy is imported before one runs."""

import argparse
import importlib
from collections.abc import Callable


def deferred(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    """Return the function of a module, which is imported when it runs."""

    def run(options: argparse.Namespace) -> int:
        command = getattr(importlib.import_module(f"dashboard.cli.{module}"), function)
        return int(command(options))

    return run


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
