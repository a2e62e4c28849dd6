"""Quotes of CSV: a field that swallows rows is refused by its line, not one of two lines."""

import csv
import io
import random
from pathlib import Path

import pytest
from trace_cases import PLAIN, imported, rows

from collectors.trace.tables import QuotedFields
from data.base.errors import UnexpectedAnswerError


def _with_stray(*places: tuple[int, str, str], count: int = 120) -> str:
    """Return CSV in which the text of a line, counted from 1, is replaced."""
    lines = rows(count).splitlines(keepends=True)
    for number, old, new in places:
        assert old in lines[number - 1]
        lines[number - 1] = lines[number - 1].replace(old, new)
    return "".join(lines)


@pytest.mark.parametrize(
    ("trace", "line"),
    [
        (_with_stray((61, ",team/a", ',"team/a')), 61),
        (_with_stray((31, ",team/a", ',"team/a'), (120, ",team/a", ',"team/a')), 31),
        (_with_stray((31, ",team/a", ',"team/a'), (32, ",team/a", ',"team/a')), 31),
        (_with_stray((31, ",team/a", ',"'), (33, ",team/a", ',"')), 31),
        (_with_stray((31, ",team/a", ',"team/a""'), (32, "2026", '"2026')), 31),
        (_with_stray((121, "team/a", '"team/a')), 121),
        (_with_stray((1, "job", '"job')), 1),
        (_with_stray((61, ",team/a", ',"team/a')).replace("\n", "\r\n"), 61),
        (_with_stray((61, ",team/a", ',"team/a')).replace("\n", "\r"), 61),
        (_with_stray((15_001, ",GPU-1", ',"GPU-1'), count=40_000), 15_001),
    ],
)
def test_a_quoted_field_that_swallows_rows_is_refused_by_its_line(
    trace: str, line: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is kept: rows would be lost without a word."""
    code, _out, err = imported(tmp_path, capsys, trace)
    assert code == 1
    assert f"line {line} " in err
    assert "quote" in err
    assert not (tmp_path / "t.duckdb").exists()


@pytest.mark.parametrize(
    "cell",
    [
        '"team\n/a"',
        '"team\r\n\r\n/a"',
        '"team ""a"""',
        '""',
        '5" disk',
        '"a, b, c, d, e, f, g"',
        '"a"b',
        '"one, two\nthree"',
    ],
)
def test_quotes_that_swallow_nothing_stay(
    cell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Line breaks, doubled quotes, commas and quotes inside of a cell are all of one field."""
    code, out, err = imported(tmp_path, capsys, rows(job=cell))
    assert code == 0, err
    assert out.startswith("40 new samples of 40 rows")


def test_quotes_in_another_encoding_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines are counted in the text, not in its bytes."""
    trace = _with_stray((61, ",team/a", ',"team/a')).encode("utf-16")
    code, _out, err = imported(tmp_path, capsys, trace, '[file]\nencoding = "utf-16"\n' + PLAIN)
    assert code == 1
    assert "line 61 " in err


@pytest.mark.parametrize("seed", range(20))
def test_no_row_is_lost_in_silence(seed: int) -> None:
    """Where random stray quotes pass, every row that is lost has a broken one to tell of it.

    Whatever the size of the pieces in which the text comes.
    """
    drawn = random.Random(seed)  # noqa: S311 a draw, no secret
    for _trial in range(200):
        lines = [",".join(drawn.choice(("a", "b c", '"d"', '"e""f"')) for _ in range(4))] * 8
        text = list("\n".join(lines) + "\n")
        for _quote in range(drawn.randint(1, 2)):
            text.insert(drawn.randrange(len(text)), '"')
        trace, size = "".join(text), drawn.randint(1, 40)
        fields = QuotedFields(Path("t.csv"), ",", 4)
        try:
            for start in range(0, len(trace), size):
                fields.read(trace[start : start + size])
            fields.end()
        except UnexpectedAnswerError:
            continue
        found = list(csv.reader(io.StringIO(trace, newline="")))
        whole = sum(len(row) == 4 for row in found)
        broken = len(found) - whole
        assert whole + 2 * broken >= 8, trace
