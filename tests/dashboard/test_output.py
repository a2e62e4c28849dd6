"""Rows on stdout: hostile cells stay cells."""

import csv
import io
import json

import pytest

from dashboard.cli.terminal.output import print_rows

ROWS = [
    {"job": "=HYPERLINK(1)", "gpus": 4, "power": None},
    {"job": "a\x1b[31m,b", "gpus": -1, "power": 3.14159},
]


def test_csv_cells_are_no_formulas(capsys: pytest.CaptureFixture[str]) -> None:
    """Text that a spreadsheet would run is prefixed; numbers stay numbers."""
    print_rows(ROWS, "csv", columns=("job", "gpus", "power"), empty="")
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert rows[1] == ["'=HYPERLINK(1)", "4", ""]
    assert rows[2][1] == "-1"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_csv_moves_no_cursor_and_a_file_gets_the_text_as_it_came(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool
) -> None:
    """What a terminal would obey is replaced there alone."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    print_rows(ROWS, "csv", columns=("job", "gpus"), empty="")
    assert ("\x1b" in capsys.readouterr().out) != is_terminal


def test_json_keeps_the_text_and_null(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON needs no escaping of ours; unknown is null."""
    print_rows(ROWS, "json", columns=("job",), empty="")
    assert json.loads(capsys.readouterr().out) == ROWS


def test_table_shows_unknown_and_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    """A job name cannot move the cursor of a terminal."""
    print_rows(ROWS, "table", columns=("job", "gpus", "power"), empty="")
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "—" in out


def test_empty_table_says_what_to_do_next(capsys: pytest.CaptureFixture[str]) -> None:
    """Stdout stays empty, the hint goes to stderr."""
    print_rows([], "table", columns=("job",), empty="Run trimtab cycle.")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "Run trimtab cycle.\n")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (2_121_356.78, "2,121,357"), (-12_345.6, "-12,346"), (9_999.4, "9999"),
        (9_999.6, "10,000"), (1_024_000.0, "1,024,000"), (0.01234, "0.01234"), (0.0, "0"),
    ],
)  # fmt: skip
def test_a_table_tells_large_numbers_without_powers_of_ten(
    value: float, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A currency of small units has large sums: 2.121e+06 is no amount."""
    print_rows([{"cost": value}], "table", columns=["cost"], empty="")
    assert capsys.readouterr().out.split() == ["cost", told]
