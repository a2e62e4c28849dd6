"""The waterfall from idle to freed: the same figures on the page, in the picture and by command."""

import json

import pytest
from browser.conftest import fill

from dashboard.charts.idle_waterfall import idle_waterfall
from dashboard.cli import main
from dashboard.idle_sum import IDLE_COLUMNS, idle_sum
from data.records.plans import IdleCause, Plan
from data.store import open_store


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two days of a small fleet and one cycle on them."""
    url = f"duckdb:///{tmp_path_factory.mktemp('idle')}/t.duckdb"
    fill(url, nodes=3, days=2)
    return url


def latest(url: str) -> Plan:
    """The plan as the store gives it back."""
    with open_store(url) as store:
        plan = store.reader.latest_plan()
    assert plan is not None
    return plan


def test_the_picture_ends_with_what_is_freed(url: str) -> None:
    """Each bar begins where the one above it ends."""
    found = idle_sum(latest(url))
    (bars,) = idle_waterfall(found).data
    steps = dict(zip(bars.y, zip(bars.base, bars.x, strict=True), strict=True))
    assert steps["held by jobs"][1] == pytest.approx(found.work + found.idle)
    assert steps["idle"][1] == pytest.approx(found.idle)
    assert sum(steps["needed at peaks"]) == pytest.approx(found.idle)
    lowest = min(start for name, (start, _w) in steps.items() if name in set(IdleCause) - {""})
    assert lowest == pytest.approx(steps["freed by recommendations"][1])


def test_the_command_tells_every_job_and_the_sum(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As JSON with unknown as null, as a table with the sentence."""
    plan = latest(url)
    assert main(["--store", url, "recommendations", "idle", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["job"] for row in rows} == {job.job_id for job in plan.jobs}
    assert all(set(row) == set(IDLE_COLUMNS) for row in rows)
    assert main(["--store", url, "recommendations", "idle"]) == 0
    assert idle_sum(plan).sentence() in capsys.readouterr().out


def test_before_the_first_cycle_there_is_nothing(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the command says what to do."""
    url = f"duckdb:///{tmp_path_factory.mktemp('none')}/t.duckdb"
    open_store(url).close()
    assert main(["--store", url, "recommendations", "idle"]) == 0
    assert "No plan yet: run `trimtab cycle`." in capsys.readouterr().err
