"""The help texts are part of the interface: they change only on purpose."""

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboard.cli.parser.add_command import examples
from dashboard.cli.parser.parser import build_parser

GOLDEN = Path(__file__).with_name("golden")


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and all parsers of its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in dict.fromkeys(action.choices.values()):  # one may have two names
                yield from parsers(child)


def test_help_is_golden(
    golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command's help is what tests/golden/help.txt holds."""
    monkeypatch.setenv("COLUMNS", "100")
    text = "\n".join(parser.format_help() for parser in parsers(build_parser()))
    if sys.version_info[:2] == (3, 11):
        golden("help.txt", text)
    else:  # later releases of argparse break some lines elsewhere
        assert text.split() == (GOLDEN / "help.txt").read_text(encoding="utf-8").split()


def commands(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The words of every command that can be run."""
    for argument_parser in parsers(parser):
        if not any(
            isinstance(action, argparse._SubParsersAction) for action in argument_parser._actions
        ):
            yield argument_parser.prog.removeprefix("trimtab ")


def target(run: Any) -> Any:
    """What a command runs: a function, or the names of one that is imported when it runs."""
    return [cell.cell_contents for cell in run.__closure__] if run.__closure__ else run


@pytest.mark.parametrize("command", sorted(commands(build_parser())))
def test_every_command_has_examples_that_it_takes(command: str) -> None:
    """Each is of this command, and no word of it is refused."""
    parser = build_parser()
    run = {
        argument_parser.prog.removeprefix("trimtab "): argument_parser.get_default("run")
        for argument_parser in parsers(parser)
    }
    for example in examples()[command]:
        words = shlex.split(re.split(r" [|>]", example)[0])
        assert words[0] == "trimtab"
        options = build_parser().parse_args(words[1:])
        assert target(options.run) == target(run[command])


def test_there_is_no_example_of_what_is_no_command() -> None:
    """What is renamed takes its examples along."""
    assert set(examples()) == set(commands(build_parser()))
