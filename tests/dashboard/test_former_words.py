"""`trimtab recommendations` is `trimtab findings` for one more release."""

import json
from pathlib import Path

import pytest
from beds.stores import cycle
from factories import make_recommendation

from dashboard.cli import main
from dashboard.cli.parser.parser import build_parser
from dashboard.decisions.decision_table import WishKind
from data.base.clock import utc_now
from data.store import open_store

SAID = "`trimtab recommendations` is `trimtab findings` now\n"


@pytest.mark.parametrize(
    ("words", "wish"),
    [
        ("approve", WishKind.APPROVE),
        ("reject", WishKind.REJECT),
        ("apply", WishKind.APPLY_OR_WRITE),
        ("apply --file", WishKind.WRITE),
        ("rollback", WishKind.ROLL_BACK),
        ("rollback --undo", WishKind.MAKE_AGAIN),
        ("keep", WishKind.KEEP),
    ],
)
def test_a_former_action_is_todays(
    words: str, wish: WishKind, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever stands before the command, and one line says so."""
    given = f"--quiet recommendations {words} TT-1 --by recommendations".split()
    options = build_parser().parse_args(given)
    assert (options.decision, options.id, options.by) == (wish, "TT-1", "recommendations")
    assert capsys.readouterr() == ("", SAID)


def test_another_command_may_hold_the_word(capsys: pytest.CaptureFixture[str]) -> None:
    """A value is no command."""
    options = build_parser().parse_args(["--settings", "recommendations", "jobs"])
    assert (options.settings, capsys.readouterr().err) == ("recommendations", "")


@pytest.mark.parametrize("words", ["list", "list --state proposed", "show TT-1", "idle"])
def test_what_is_printed_is_what_findings_prints(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As JSON, with all that the former lists held of a recommendation."""
    url = f"duckdb:///{tmp_path}/t.duckdb"
    with open_store(url) as store:
        cycle(store, 0, make_recommendation(), at=utc_now())
    printed = []
    for command in ("recommendations", "findings"):
        assert main(["--store", url, command, *words.split(), "--format", "json"]) == 0
        printed.append(capsys.readouterr())
    assert printed[0].out == printed[1].out
    assert (printed[0].err, printed[1].err) == (SAID, "")
    if words != "idle":
        answer = json.loads(printed[0].out)
        (row,) = answer if isinstance(answer, list) else [answer]
        assert row["state"] == "open"
        assert row["revision"]["state"] == "proposed"
        assert {"id", "digest", "target", "savings", "evidence", "decided_by", "decided_at",
                "comment"} <= row["revision"].keys()  # fmt: skip


def test_an_option_that_is_gone_says_what_answers_now(capsys: pytest.CaptureFixture[str]) -> None:
    """As a usage error, before anything is read."""
    with pytest.raises(SystemExit) as ended:
        main(["--quiet", "forecast", "--backtest"])
    assert ended.value.code == 2
    assert "`trimtab forecast --backtest` is gone" in capsys.readouterr().err
