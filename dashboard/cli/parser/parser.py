"""The commands and their options. Nothing heavy is imported before a command runs."""

import argparse
import difflib
import re
from importlib.metadata import version
from typing import NoReturn

from dashboard.cli.parser.add_command import add_command, command_table, examples
from dashboard.cli.parser.decision_options import add_decision
from dashboard.cli.parser.former_words import CommandWords
from dashboard.cli.terminal.log_format import FORMATS, LEVELS

_NO_CHOICE = re.compile(
    r"invalid choice: (['\"])(?P<given>.*)\1 \(choose from (?P<known>.*)\)$", re.DOTALL
)
_MISPLACED_OPTION = re.compile(
    r"unrecognized arguments: "
    r"(--(?:settings|store|server|token-file|debug|quiet|log-level|log-format))\b"
)
_WORD = re.compile(r"[\w.-]+")


class HelpfulParser(argparse.ArgumentParser):
    """Names the nearest word where one of a few was meant, and ends its help with examples."""

    def format_help(self) -> str:
        """Return the help."""
        lines = examples().get(self.prog.removeprefix("trimtab "), ())
        end = "".join(f"  {example}\n" for example in lines)
        return super().format_help() + (f"\nexamples:\n{end}" if end else "")

    def error(self, message: str) -> NoReturn:
        """End with a usage error."""
        match = _NO_CHOICE.search(message)
        if match is not None:
            choices = _WORD.findall(match["known"])
            similar = difflib.get_close_matches(match["given"], choices, n=1, cutoff=0.5)
            if similar:
                begin = message[: match.start()]
                message = f"{begin}{match['given']!r} is unknown; did you mean {similar[0]}?"
        late = _MISPLACED_OPTION.match(message)
        if late is not None:
            message = f"{message}; {late[1]} stands before the command: trimtab {late[1]} … jobs"
        super().error(message)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of `trimtab`."""
    parser: argparse.ArgumentParser = HelpfulParser(
        prog="trimtab",
        description="Watch a GPU fleet, forecast what every job needs, plan allocations over time, "
        "and trim the fleet once a person approves.",
    )
    parser.add_argument("--settings", metavar="FILE", help="settings file (default trimtab.toml)")
    parser.add_argument("--store", metavar="URL", help="duckdb:///PATH or postgresql+psycopg://…")
    parser.add_argument("--server", metavar="URL", help="ask this server instead of a store")
    parser.add_argument("--token-file", metavar="FILE", help="the token for --server")
    parser.add_argument("--debug", action="store_true", help="tracebacks and debug logs")
    parser.add_argument(
        "--log-level", choices=LEVELS, help="default: warning; info for what keeps running"
    )
    parser.add_argument("--log-format", choices=FORMATS, default="text", help="of stderr's lines")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    parser.add_argument("--version", action="version", version=f"trimtab {version('trimtab')}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, action=CommandWords)
    groups = {"": commands}
    for row in command_table()["command"]:
        group = groups[row["words"].rpartition(" ")[0]]
        if "decision" in row:
            add_decision(group, row["decision"])
            continue
        command = add_command(group, row)
        if "actions" in row:
            groups[row["words"]] = command.add_subparsers(
                metavar=row["actions"], required=row.get("required", False)
            )
    return parser
