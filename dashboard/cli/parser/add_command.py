"""Commands as rows of `commands.toml`, and the parsers of them; nothing heavy is imported."""

import argparse
import importlib
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from dashboard.cli.terminal.option_types import TYPES


@cache
def command_table() -> Mapping[str, Any]:
    """Return the table of commands: `command`, a row each, and `sets` of options."""
    text = files("dashboard.cli.parser").joinpath("commands.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def examples() -> dict[str, list[str]]:
    """Return the examples of every command, by its words."""
    rows = command_table()["command"]
    return {row["words"]: row["examples"] for row in rows if "examples" in row}


def deferred(target: str, reads: str) -> Callable[[argparse.Namespace], int]:
    """Return the function `module:function` of the command line, which is imported when it runs."""

    def run(options: argparse.Namespace) -> int:
        values = vars(options)
        if values.get("server") is not None or values.get("token_file") is not None:
            from dashboard.cli.terminal.remote_server import refuse_remote, server_of

            server_of(options)
            if "server" not in reads:
                refuse_remote("this command")
        elif "store" in reads:
            from dashboard.cli.terminal.context import require_a_store

            require_a_store(options)
        module, _, function = target.partition(":")
        command = getattr(importlib.import_module(f"dashboard.cli.{module}"), function)
        return int(command(options))

    return run


def add_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", row: Mapping[str, Any]
) -> argparse.ArgumentParser:
    """Add the command of a row; a group of commands has no description of its own."""
    parser = commands.add_parser(
        row["words"].rpartition(" ")[2],
        aliases=row.get("aliases", ()),
        help=row["help"],
        description=None if "actions" in row else row["help"],
    )
    if "run" in row:
        run = deferred(row["run"], row.get("reads", ""))
        parser.set_defaults(run=run, **row.get("defaults", {}))
    _add_options(parser, row.get("options", ()))
    return parser


def _add_options(
    parser: argparse.ArgumentParser, options: Iterable[str | Mapping[str, Any]]
) -> None:
    for option in options:
        if isinstance(option, str):
            _add_options(parser, command_table()["sets"][option])
            continue
        values = dict(option)
        if "type" in values:
            values["type"] = TYPES[values["type"]]
        parser.add_argument(*values.pop("flag").split(), **values)
