"""The page Costs: parts that add up to the statement, months, ways down, and unknown prices."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from beds.page_world import page_at, register_world
from factories import H100, make_collected, make_job, make_samples
from streamlit.testing.v1 import AppTest

from dashboard.accounting.cost.charges import STATES
from dashboard.accounting.cost.statement import make_cost_statement
from dashboard.charts.cost_days import COLOURS
from dashboard.web.access.identity import current_world
from data.base.errors import NotSignedInError
from data.facts.jobs import SchedulerFacts
from data.settings.access import AccessSettings
from data.settings.all_settings import Settings
from data.settings.statements import Budget, GpuPrice, StatementSettings
from data.store import Store, open_store

pytestmark = pytest.mark.slow
APP = Path(__file__).parents[2] / "dashboard/web/app.py"
NOW = datetime(2026, 3, 20, 12, tzinfo=UTC)
BEGIN = datetime(2026, 2, 10, tzinfo=UTC)
MARCH = datetime(2026, 3, 1, tzinfo=UTC)
PRICED = Settings(
    statement=StatementSettings(
        prices=(GpuPrice(gpu_model=H100, per_gpu_hour=2.0),),
        budgets=(Budget(tenant="search", per_month=1_500.0), Budget(tenant="ads", per_month=1e6)),
    )
)
UNPRICED = Settings(
    statement=StatementSettings(prices=(GpuPrice(gpu_model="Voodoo2", per_gpu_hour=2.0),))
)
HELD = (
    ("search/ranker", "ranker", 0.5), ("search/embed", "embed", 0.0), ("ads/x", "", 0.9),
    ("", "", 0.0),
)  # fmt: skip
"""Job, its application and activity of each board; nobody holds the last."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Four boards since February 10th, that of `ads` since March 9th."""
    times = pd.date_range(BEGIN, NOW, freq="5min").as_unit("us")
    frames = [
        make_samples(
            minutes=len(times), end=NOW, job_id=job, utilization_ratio=used,
            gpu_uuid=f"GPU-{number}",
            memory_used_mib=20_000.0 if job else 0.0, power_watts=400.0 if job else 60.0,
        ).assign(sampled_at=times)
        for number, (job, _workload, used) in enumerate(HELD)
    ]  # fmt: skip
    frames[2] = frames[2][frames[2]["sampled_at"] >= MARCH + timedelta(days=8)]
    jobs = tuple(
        make_job(job, namespace=job.partition("/")[0], scheduler=SchedulerFacts(workload=workload))
        for job, workload, _used in HELD
        if job
    )
    with open_store(f"duckdb:///{tmp_path_factory.mktemp('costs')}/t.duckdb") as opened:
        opened.keep(make_collected(pd.concat(frames, ignore_index=True), jobs))
        yield opened


@pytest.fixture
def draw(store: Store, monkeypatch: pytest.MonkeyPatch) -> "Draw":
    """Draws the page."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    return Draw(store)


class Draw:
    """The page under some settings and by some address."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def page(self, settings: Settings = PRICED, page: str = "costs", **asked: str) -> AppTest:
        """What is drawn."""
        register_world(self.store, settings, clock=lambda: NOW)
        app = page_at(page, **asked)
        app.run()
        assert not app.exception
        return app


def answer(app: AppTest) -> str:
    """The page's sentence, without the marks of Markdown."""
    (found,) = [entry.value for entry in app.markdown if entry.value.startswith("# ")]
    return str(found[2:].replace("\\", ""))


def rows(app: AppTest) -> pd.DataFrame:
    """The page's table by its first column."""
    (found,) = [entry.value for entry in app.dataframe]
    return found.set_index(found.columns[0])


def whole(store: Store, start: datetime, end: datetime) -> float:
    """The oracle: the statement by command."""
    cost = make_cost_statement(store.reader, PRICED, start=start, end=end).total.cost
    assert cost is not None
    return cost


def test_the_month_is_the_statement_in_parts(draw: Draw) -> None:
    """Used, idle and free of every tenant are its cost, all of them the statement's."""
    app = draw.page()
    shown = rows(app)
    assert list(shown.index) == ["search", "ads", "(not allocated)"]
    parts = [name for name in shown.columns if name.removesuffix(" (EUR)") in STATES]
    assert parts == ["used (EUR)", "idle (EUR)", "free (EUR)"]
    # Shown are three digits.
    assert list(shown[parts].sum(axis=1)) == pytest.approx(list(shown["cost (EUR)"]), rel=0.01)
    total = whole(draw.store, MARCH, NOW)
    assert shown["cost (EUR)"].sum() == pytest.approx(total, rel=0.01)
    assert shown.loc["search", "idle (EUR)"] > shown.loc["search", "used (EUR)"]
    said = answer(app)
    assert said.startswith(f"March 2026 so far costs {total:,.0f} EUR, ")
    assert said.endswith("over budget: search (1 of 2 budgets).")
    assert shown.loc["search", "of budget (%)"] > 100
    assert shown.loc["ads", "of budget (%)"] < 1
    weeks = {"search": 0, "ads": 100 * (7 / 4 - 1)}  # of the week before it, ads ran four days
    for tenant, change in weeks.items():
        assert shown.loc[tenant, "week over week (%)"] == pytest.approx(change, abs=0.5)


def test_last_month_is_in_the_address(draw: Draw) -> None:
    """Its cost is the statement's, without a forecast of what is past."""
    app = draw.page(month="last month")
    assert answer(app).startswith(f"February 2026 cost {whole(draw.store, BEGIN, MARCH):,.0f} EUR,")
    assert not [name for name in rows(app).columns if "month end" in name]


def test_a_tenant_is_told_apart_by_application_and_job(draw: Draw) -> None:
    """No row of another, and the same sum one level up; an only application is no level."""
    up = rows(draw.page()).loc["search", "cost (EUR)"]
    app = draw.page(tenant="search")
    assert list(rows(app).index) == ["embed", "ranker"] or list(rows(app).index) == [
        "ranker", "embed"
    ]  # fmt: skip
    assert rows(app)["cost (EUR)"].sum() == pytest.approx(up, rel=0.01)
    assert "its budget of 1,500 EUR was spent by 2026-03-" in answer(app)
    app = draw.page(tenant="search", application="embed")
    assert list(rows(app).index.str.endswith("search%2Fembed")) == [True]
    app = draw.page(tenant="search", application="embed", job="search/embed")
    assert list(rows(app).index) == [H100]
    assert rows(draw.page(tenant="ads")).index.name == "job"
    assert list(rows(draw.page(tenant="(not allocated)")).index) == [H100]


@pytest.mark.parametrize(
    "asked", [{"tenant": "<b>"}, {"application": "x"}, {"tenant": "ads", "job": "search/embed"}]
)
def test_an_address_of_nothing_shows_nothing_of_others(draw: Draw, asked: dict[str, str]) -> None:
    """A sentence and no table, or the whole where no tenant is named."""
    app = draw.page(**asked)
    if "tenant" in asked:
        assert "no GPU was allocated or watched in March 2026." in answer(app)
        assert not app.dataframe
    else:
        assert answer(app).startswith("March 2026 so far")


@pytest.mark.parametrize("page", ["costs", "savings", "energy", "reports"])
def test_one_month_is_chosen_for_the_whole_page(draw: Draw, page: str) -> None:
    """Each tab is of the month that the header asks for, up to its end or the newest sample."""
    for month, title, end in (
        ({}, "March 2026", NOW),
        ({"month": "last month"}, "February 2026", MARCH),
        ({"month": "<b>"}, "March 2026", NOW),
    ):
        app = draw.page(page=page, **month)
        (choice,) = [radio for radio in app.radio if radio.label == "Month"]
        assert choice.value == ("last month" if end == MARCH else "this month")
        if page == "reports":
            assert any(f"to {end:%Y-%m-%d %H:%M} UTC, 168 h" in text.value for text in app.caption)
        else:
            assert title in answer(app)


@pytest.mark.parametrize("page", ["costs", "energy"])
def test_who_held_nothing_is_told_no_other_reason(draw: Draw, page: str) -> None:
    """Prices are set and power was reported: nothing was held of what was asked for."""
    app = draw.page(page=page, tenant="<b>", namespace="ads", month="last month")
    told = [text.value.replace("\\", "") for text in (*app.markdown, *app.caption)]
    assert any("o GPU was allocated or watched" in text for text in told)
    assert not [text for text in told if "price is set" in text or "was never reported" in text]


def test_without_a_price_the_cost_is_unknown(draw: Draw) -> None:
    """The sentence and a line name the setting; hours stay known."""
    app = draw.page(UNPRICED)
    assert answer(app) == (
        "What March 2026 costs is unknown: none of its GPUs has a price. Set statement.prices."
    )
    # No week and no forecast of the electricity alone.
    assert [metric.value for metric in app.metric] == ["—", "—"]
    told = "\n".join(entry.value for entry in app.markdown).replace("\\", "")
    assert f"({H100}): state it in statement.prices" in told
    shown = rows(app)
    assert list(shown.columns) == [
        "electricity alone (EUR)", "GPU-hours", "GPU-hours without a price"
    ]  # fmt: skip
    assert list(shown["GPU-hours without a price"]) == list(shown["GPU-hours"])
    assert shown["GPU-hours"].sum() == pytest.approx(
        (4 * (NOW - MARCH) - timedelta(days=8)) / timedelta(hours=1), rel=0.01
    )


def test_every_state_has_a_colour() -> None:
    """A state without one would be left out of the bars."""
    assert tuple(COLOURS) == STATES


def test_a_budget_that_is_exceeded_stands_above_the_page_and_leads_to_its_tenant(
    draw: Draw,
) -> None:
    """With the time at which it was spent; one that holds is not named."""
    (strip,) = [entry.value for entry in draw.page().error if "**Urgent**" in entry.value]
    assert strip.replace("\\", "").startswith(
        "**Urgent** (1): search: its budget of 1,500 EUR is spent since 2026"
    )
    assert "([Account](account?tenant=search))" in strip


@pytest.mark.parametrize("mode", ["proxy", "local"])
def test_a_thread_behind_the_page_sees_no_rows_of_others(store: Store, mode: str) -> None:
    """Where nobody can be signed in there is no world, except the one of who is alone."""
    access = AccessSettings(mode=mode, proxy_addresses="10.0.0.5" if mode == "proxy" else "")
    register_world(store, replace(PRICED, access=access), clock=lambda: NOW)
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(current_world)
        if mode == "local":
            assert found.result().store is store
        else:
            with pytest.raises(NotSignedInError):
                found.result()
