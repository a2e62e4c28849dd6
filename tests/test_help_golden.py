"""The help texts are part of the interface: they change only on purpose."""

import argparse
from collections.abc import Callable, Iterator

import pytest

from dashboard.cli.parser import build_parser


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and all parsers of its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from parsers(child)


def test_help_is_golden(
    golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command's help is what tests/golden/help.txt holds."""
    monkeypatch.setenv("COLUMNS", "100")
    golden("help.txt", "\n".join(parser.format_help() for parser in parsers(build_parser())))
