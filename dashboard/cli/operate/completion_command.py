"""`trimtab completion` and `trimtab manual`: what a shell and `man` learn from the parser."""

import argparse
from collections.abc import Iterator
from datetime import date
from importlib.metadata import version

import shtab

from data.base.clock import utc_now

_FILES = ("FILE", "PATH", "MAP.toml", "JOB.toml", "MODEL_CONFIG")
"""Metavars whose values are files."""
_TAIL = r"""
.SH EXIT STATUS
0 ok, 1 error, 2 usage or settings, 3 findings or a partial result.
.SH ENVIRONMENT
Each setting has a variable: planning.slot_minutes is TRIMTAB_PLANNING_SLOT_MINUTES.
.B trimtab settings
lists all settings.
.SH FILES
.TP
.I trimtab.toml
settings, in the working directory unless \-\-settings names another file
.TP
.I $XDG_STATE_HOME/trimtab
the store, by default ~/.local/state/trimtab
"""


def parsers_of(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser and, below it, those of its commands."""
    yield parser
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to its commands
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - the same
            for child in dict.fromkeys(action.choices.values()):  # one may have two names
                yield from parsers_of(child)


def completion(options: argparse.Namespace) -> int:
    """Print what makes a shell complete commands, options, choices and files."""
    from dashboard.cli.parser.parser import build_parser

    parser = build_parser()
    for argument_parser in parsers_of(parser):
        for action in argument_parser._actions:  # noqa: SLF001 - the same
            if action.metavar in _FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell=options.shell))
    return 0


def manual(_options: argparse.Namespace) -> int:
    """Print the manual page."""
    from dashboard.cli.parser.parser import build_parser

    print(manual_page(build_parser(), made_on=utc_now().date()))
    return 0


def manual_page(parser: argparse.ArgumentParser, *, made_on: date) -> str:
    """Return the manual page of a parser as roff: each command with its help."""
    root, *commands = parsers_of(parser)
    lines = [
        f'.TH TRIMTAB 1 {made_on} "trimtab {version("trimtab")}" "User Commands"',
        f".SH NAME\ntrimtab \\- {_escaped(str(root.description))}",
        f".SH SYNOPSIS\n.nf\n{_escaped(root.format_usage().removeprefix('usage: '))}.fi",
        f".SH OPTIONS AND COMMANDS\n.nf\n{_body(root)}.fi\n.SH EACH COMMAND",
    ]
    lines += [f".SS {_escaped(command.prog)}\n.nf\n{_body(command)}.fi" for command in commands]
    return "\n".join(lines) + _TAIL.rstrip()


def _body(parser: argparse.ArgumentParser) -> str:
    """Return the help of a parser without the word that introduces its usage."""
    return _escaped(parser.format_help().removeprefix("usage: "))


def _escaped(text: str) -> str:
    """Return a text as roff shows it: no line is a request, no dash becomes a hyphen."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "".join(
        f"\\&{line}" if line.startswith((".", "'")) else line
        for line in text.splitlines(keepends=True)
    )
