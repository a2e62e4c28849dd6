"""The command line: stdout carries data only, logs and progress go to stderr.

Exit codes: 0 ok, 1 error, 2 usage, 3 findings or partial. A traceback only with --debug.
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from dashboard.cli.parser.parser import build_parser
from dashboard.cli.terminal.log_format import logging_as
from dashboard.common.escaping import shown
from dashboard.common.threads import end_process
from data.base.errors import MORE_MEMORY, OUT_OF_MEMORY, SettingsError, TrimtabError, lacks_memory

logger = logging.getLogger(__name__)
EXIT_ERROR = 1
EXIT_USAGE = 2
_STDERR = 2
_NO_MEMORY = f"trimtab: {OUT_OF_MEMORY}. {MORE_MEMORY}\n".encode()
"""Made beforehand, and written past the streams: saying it takes no memory."""


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
    try:
        with logging_as(options):
            return _run(options)
    except Exception as failure:
        if options.debug or not lacks_memory(failure):
            raise
        os.write(_STDERR, _NO_MEMORY)
        return EXIT_ERROR


def _run(options: argparse.Namespace) -> int:
    """Run the command, and say what ended it that has words of its own."""
    try:
        return int(options.run(options))
    except TrimtabError as error:
        if options.debug:
            raise
        if options.log_format == "json":
            logger.error("%s", error)  # noqa: TRY400 - people need no traceback of it
        else:
            print(f"trimtab: {shown(error)}", file=sys.stderr)
        return EXIT_USAGE if isinstance(error, SettingsError) else EXIT_ERROR
    except KeyboardInterrupt:
        print("trimtab: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output went away, such as `head`: not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
