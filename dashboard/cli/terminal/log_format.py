"""Log lines as text or JSON: time, level, logger, cycle, message."""

import argparse
import io
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from datetime import UTC, datetime
from typing import Any, TextIO

from dashboard.common.cycle_id import cycle_mark
from dashboard.common.escaping import shown
from data.base.clock import utc_now

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
_PACKAGES = ("collectors", "dashboard", "data", "forecasting", "planner")
_NOISY_LIBRARIES = ("numba", "matplotlib", "PIL", "fontTools", "asyncio", "cmdstanpy")
"""Libraries whose debug lines, megabytes of them, tell nobody what we did."""
TEXT = "%(asctime)s %(levelname)s %(name)s%(in_cycle)s: %(message)s"


class OneLine(logging.LogRecord):
    """Log record, ours or a library's: no name in it forges a line or speaks to a terminal."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.in_cycle = f" [{mark}]" if (mark := cycle_mark()) else ""

    def getMessage(self) -> str:  # noqa: N802 - the name that logging asks for
        """Return the message as one line."""
        return shown(super().getMessage())


class JsonLines(logging.Formatter):
    """An object a line. `cycle` is what the id of the cycle begins with, or null."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON."""
        entry = _entry(record.created, record.levelname, record.name, record.getMessage())
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


class _JsonStream(io.TextIOBase):
    """Makes an entry of every line that is written past the log, such as where a server listens."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._begun = ""

    def write(self, text: str) -> int:
        """Write the lines that end in this text."""
        *lines, self._begun = (self._begun + text).split("\n")
        for line in filter(str.strip, lines):
            entry = _entry(utc_now().timestamp(), "INFO", "stderr", shown(line))
            self._stream.write(json.dumps(entry, ensure_ascii=False) + "\n")
        return len(text)

    def flush(self) -> None:
        """Write out what was written."""
        self._stream.flush()

    def fileno(self) -> int:
        """Return the descriptor below."""
        return self._stream.fileno()


def _entry(at: float, level: str, name: str, message: str) -> dict[str, str | None]:
    """Return the fields of a line; `at` in seconds since 1970."""
    return {
        "time": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"),
        "level": level.lower(),
        "logger": name,
        "cycle": cycle_mark() or None,
        "message": message,
    }


@contextmanager
def logging_as(options: argparse.Namespace) -> Iterator[None]:
    """Log in the level and format of the options; for JSON, all of stderr is such lines."""
    as_json = options.log_format == "json"
    level = "debug" if options.debug else options.log_level
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter(TEXT, datefmt="%Y-%m-%dT%H:%M:%S%z")
    handler.setFormatter(JsonLines() if as_json else text)
    logging.setLogRecordFactory(OneLine)
    # Libraries say at INFO what no operator asks for.
    root = logging.WARNING if level in (None, "info") else getattr(logging, level.upper())
    logging.basicConfig(level=root, handlers=[handler])
    # What keeps running logs each cycle, decision, step and outcome.
    keeps_running = getattr(options, "keeps_running", False) and not options.quiet
    if level == "info" or (level is None and keeps_running):
        for package in _PACKAGES:
            logging.getLogger(package).setLevel(logging.INFO)
    # Its debug lines hold whole addresses, and a webhook's address is a secret.
    logging.getLogger("urllib3").setLevel(max(root, logging.INFO))
    for library in _NOISY_LIBRARIES:
        logging.getLogger(library).setLevel(max(root, logging.WARNING))
    with redirect_stderr(_JsonStream(sys.stderr)) if as_json else nullcontext():
        yield
