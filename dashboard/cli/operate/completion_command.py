"""`trimtab completion`: what a shell learns from the parser."""

import argparse
from collections.abc import Iterator

import shtab

_FILES = ("FILE", "PATH", "MAP.toml", "JOB.toml", "MODEL_CONFIG")
"""Metavars whose values are files."""


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
