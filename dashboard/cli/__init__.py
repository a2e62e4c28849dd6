"""The command line: stdout carries data only, logs and progress go to stderr.

Exit codes: 0 ok, 1 error, 2 usage, 3 findings or partial. A traceback only with --debug.
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from dashboard.background import end_process
from dashboard.cli.parser import build_parser
from dashboard.foreign_text import shown
from data.errors import MORE_MEMORY, OUT_OF_MEMORY, SettingsError, TrimtabError, lacks_memory

logger = logging.getLogger(__name__)
_PACKAGES = ("collectors", "dashboard", "data", "forecasting", "planner")
EXIT_ERROR = 1
EXIT_USAGE = 2
_STDERR = 2
_TALKATIVE = ("numba", "matplotlib", "PIL", "fontTools", "asyncio", "cmdstanpy")
"""Libraries whose debug lines, megabytes of them, tell nobody what we did."""
_NO_MEMORY = f"trimtab: {OUT_OF_MEMORY}. {MORE_MEMORY}\n".encode()
"""Made beforehand, and written past the streams: saying it takes no memory."""


class OneLine(logging.LogRecord):
    """What is logged, by us or a library: no name in it forges a line or speaks to a terminal."""

    def getMessage(self) -> str:  # noqa: N802 - the name that logging asks for
        """Return the message as one line."""
        return shown(super().getMessage())


def program() -> NoReturn:
    """Run the command that this process was started for, and end the process."""
    try:
        code = main()
    except SystemExit as end:  # of a server told to stop, or of the parser
        code = end.code if isinstance(end.code, int) else EXIT_ERROR
    end_process(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = build_parser().parse_args(arguments)
    level = logging.DEBUG if options.debug else logging.WARNING
    logging.setLogRecordFactory(OneLine)
    logging.basicConfig(
        level=level,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S%z",
    )
    # What keeps running logs each cycle, decision, step and outcome.
    if getattr(options, "keeps_running", False) and not (options.debug or options.quiet):
        for name in _PACKAGES:
            logging.getLogger(name).setLevel(logging.INFO)
    # Its debug lines hold whole addresses, and a webhook's address is a secret.
    logging.getLogger("urllib3").setLevel(logging.INFO)
    for library in _TALKATIVE:
        logging.getLogger(library).setLevel(logging.WARNING)
    try:
        return _run(options)
    except Exception as failure:
        if options.debug or not lacks_memory(failure):
            raise
        os.write(_STDERR, _NO_MEMORY)
        return EXIT_ERROR


def _run(options: argparse.Namespace) -> int:
    """Run the command, and say what ended it that has words of its own."""
    if getattr(options, "renamed", ""):
        logger.warning("%s: the next release refuses the old name", options.renamed)
    try:
        return int(options.run(options))
    except TrimtabError as error:
        if options.debug:
            raise
        print(f"trimtab: {shown(error)}", file=sys.stderr)
        return EXIT_USAGE if isinstance(error, SettingsError) else EXIT_ERROR
    except KeyboardInterrupt:
        print("trimtab: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output went away, such as `head`: not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
