"""Quoted fields of CSV, looked at before the file is read: a stray quote swallows whole rows.

A field of several lines that holds as many delimiters as a row is no field of the file: rows that
one quote swallows add up to one of the right width only so, and would be lost without a word. Nor
is one after whose last quote the text goes on.
"""

import re
from pathlib import Path

from data.errors import UnexpectedAnswerError

MAX_ROW_BYTES = 4 * 2**20
"""A row of CSV has at most this size."""


def row_too_long(path: Path) -> UnexpectedAnswerError:
    """Return the error of a row that is larger than a row may be."""
    return UnexpectedAnswerError(
        f"{path} has a row of more than {MAX_ROW_BYTES // 2**20} MiB",
        "Is a quote left open, or is this no CSV?",
    )


class QuotedFields:
    """The quoted fields of a text that comes piece by piece, its lines ended by line feeds."""

    def __init__(self, path: Path, delimiter: str, width: int) -> None:
        """Take a file whose header has `width` columns."""
        self._path, self._delimiter = path, delimiter
        self._row = max(1, width - 1)
        begun = rf'"(?<=[\n{re.escape(delimiter)}]")'
        self._quoted = re.compile(begun + r'([^"]*+(?:""[^"]*+)*+)("?)')
        self._unread = "\n"
        self._line = 0

    def read(self, piece: str) -> None:
        """Look at the next piece. Errors: UnexpectedAnswerError naming the line of the quote."""
        text, last = self._unread + piece, len(self._unread + piece) - 1
        # A quote that ends the piece may be the first of two that stand for a quote.
        for field in self._quoted.finditer(text):
            if "\n" in field[1]:
                self._require_field(text, field)
            if field.end() == len(text):
                last = field.start() - 1
        self._line += text.count("\n", 0, last)
        self._unread = text[last:]
        if len(self._unread) > MAX_ROW_BYTES:
            raise row_too_long(self._path)

    def _require_field(self, text: str, field: re.Match[str]) -> None:
        after, what = text[field.end() : field.end() + 1], "a quoted field of several lines"
        if field[1].count(self._delimiter) >= self._row:
            what += f" that holds {self._row} {self._delimiter!r} or more, as a row does"
        elif after not in ("", "\n", self._delimiter):
            what += f" that is followed by {after!r}, not by {self._delimiter!r} or a line break"
        else:
            return
        raise self._error(text, field, what)

    def end(self) -> None:
        """Say that no piece follows. Errors: UnexpectedAnswerError for a quote left open."""
        field = self._quoted.match(self._unread, 1)
        if field and not field[2]:
            raise self._error(self._unread, field, "a quote that nothing closes")

    def _error(self, text: str, field: re.Match[str], what: str) -> UnexpectedAnswerError:
        line = self._line + text.count("\n", 0, field.start())
        return UnexpectedAnswerError(
            f"line {line} of {self._path} opens {what}",
            "Close the quote in that line, or take it out; write a field of several lines in one.",
        )
