"""Budgets: the month so far, its forecast end with an interval that holds, and the weeks."""

import csv
import io
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from drawn import examples
from factories import H100, make_collected, make_job, make_samples
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.accounting.cost.budgets import FLEET, budget_rows, drivers_text, month_row
from dashboard.accounting.cost.export import COLUMNS
from dashboard.accounting.cost.focus import (
    FORECAST_BY,
    FORECAST_COLUMNS,
    focus_csv,
    focus_parquet,
    forecast_rows,
)
from dashboard.accounting.cost.statement import (
    CostRow,
    CostStatement,
    make_cost_statement,
    month_of,
)
from dashboard.accounting.energy.periods import Calendar, PeriodLength
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.all_settings import Settings
from data.settings.energy import PUE_UNCERTAINTY, EnergySettings
from data.settings.reports import ReportSettings
from data.settings.statements import Budget, GpuPrice, StatementSettings
from data.store import Store, open_store
from forecasting.series.day_sums import days_ahead

NOW = datetime(2026, 2, 20, 12, tzinfo=UTC)
BEGIN = NOW - timedelta(days=20, hours=12)
SETTINGS = Settings(
    statement=StatementSettings(
        charge_electricity=False,
        prices=(GpuPrice(gpu_model=H100, per_gpu_hour=1.0),),
        budgets=(
            Budget(tenant="search", per_month=500.0), Budget(tenant="new", per_month=10.0)
        ),
    )
)  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """From January 31st: search holds one board, and since a week two; dark has no price."""
    whole = round((NOW - BEGIN) / timedelta(minutes=5)) + 1
    week = 7 * 288 + 144 + 1
    boards = [("search/a", whole, H100), ("search/b", week, H100), ("dark/c", whole, "Voodoo2")]
    frames = []
    for number, (job, readings, model) in enumerate(boards):
        frame = make_samples(
            minutes=readings, end=NOW, job_id=job, gpu_uuid=f"GPU-{number}", gpu_model=model
        )
        times = pd.date_range(end=NOW, periods=readings, freq="5min").as_unit("us")
        frames.append(frame.assign(sampled_at=times))
    folder = tmp_path_factory.mktemp("budgets")
    with open_store(f"duckdb:///{folder}/t.duckdb") as opened:
        jobs = tuple(make_job(name) for name, _readings, _model in boards)
        opened.keep(make_collected(pd.concat(frames, ignore_index=True), jobs))
        yield opened


def test_a_month_by_hand(store: Store) -> None:
    """24 a day for 12 days, 48 for 7, a half day of 24, and 8.5 days to come at 48 each."""
    rows = {row.tenant: row for row in budget_rows(store.reader, SETTINGS, at=NOW)}
    search = rows["search"]
    assert search.month_to_date == pytest.approx(12 * 24 + 7 * 48 + 24)
    assert search.month_end is not None
    assert search.month_end.central == pytest.approx(12 * 24 + 7 * 48 + 24 + 8.5 * 48)
    assert search.month_end.low < search.month_end.central < search.month_end.high
    assert search.over_ratio == pytest.approx(search.month_end.central / 500.0)
    # 288 until the 13th, 48 a day since.
    spent = datetime(2026, 2, 13, tzinfo=UTC) + timedelta(days=(500 - 288) / 48)
    assert search.spent_at is not None
    assert abs(search.spent_at - spent) < timedelta(minutes=1)
    assert (search.last_week, search.week_before) == (pytest.approx(336.0), pytest.approx(168.0))
    assert search.week_over_week == pytest.approx(1.0)


def test_a_tenant_without_a_price_has_no_cost_and_one_not_seen_has_none_to_pay(
    store: Store,
) -> None:
    """Unknown is None and counted; a tenant that held nothing costs nothing."""
    rows = {row.tenant: row for row in budget_rows(store.reader, SETTINGS, at=NOW)}
    dark, new = rows["dark"], rows["new"]
    assert (dark.month_to_date, dark.month_end, dark.last_week) == (None, None, None)
    assert dark.unpriced_hours == pytest.approx(24 * 19.5)  # of February, not of January 31st
    assert new.month_to_date == 0.0
    assert (new.per_month, new.over_ratio, new.spent_at) == (10.0, 0.0, None)


def test_nothing_is_forecast_of_less_than_a_week(store: Store) -> None:
    """The month so far is known, its end is not."""
    early = BEGIN + timedelta(days=5)
    (search,) = [
        row for row in budget_rows(store.reader, SETTINGS, at=early) if row.tenant == "search"
    ]
    assert search.month_to_date == pytest.approx(4 * 24)
    assert search.month_end is None
    assert (search.last_week, search.week_over_week) == (None, None)


def test_both_months_in_money_energy_and_emissions(store: Store) -> None:
    """By hand: next month is 31 days at the mean of the week; the factors' ranges are in each."""
    rows = {row.tenant: row for row in budget_rows(store.reader, SETTINGS, at=NOW)}
    search, fleet = rows["search"], rows[FLEET]
    assert search.next_month is not None
    assert search.next_month.central == pytest.approx(31 * 48)
    # Of February's 1,056: 31 days for 28, and 48 GPU-hours a day for its mean of 37.7.
    this = 12 * 24 + 7 * 48 + 24 + 8.5 * 48
    assert search.more_by_days == pytest.approx((31 / 28 - 1) * this)
    assert search.more_by_gpu_hours == pytest.approx(31 * 48 - 31 / 28 * this)
    assert search.more_by_prices == pytest.approx(0, abs=1e-9)
    assert drivers_text(search, [search, rows["dark"]], "EUR") == (
        "Next month against this one: +432 EUR: days +113, GPU-hours +319 (search +319), models, "
        "prices and power +0. GPUs that are freed stay in the bill until they are returned."
    )
    assert drivers_text(rows["dark"], [], "EUR") == ""
    pue = EnergySettings().pue
    for month, days in ((search.kwh, 12 + 7 * 2 + 1 + 8.5 * 2), (search.next_kwh, 31 * 2)):
        assert month is not None
        assert month.central == pytest.approx(days * 24 * 0.4 * pue)
        assert month.high >= month.central * (pue + PUE_UNCERTAINTY) / pue * (1 - 1e-9)
    assert search.kgco2e is not None
    assert search.kwh is not None
    grid = load_carbon_table().get(SETTINGS.energy.region)
    assert search.kgco2e.central == pytest.approx(search.kwh.central * grid.gco2e_per_kwh / 1000)
    assert (fleet.by, search.by, fleet.kwh is not None) == ("fleet", "tenant", True)
    assert search.over_chance == 1.0
    assert search.next_over_chance is not None
    assert 0.75 < search.next_over_chance < 0.9
    assert (rows["new"].over_chance, rows["dark"].over_chance) == (0.0, None)


def test_models_and_services_have_bills_that_add_up(store: Store) -> None:
    """Months of groups are the fleet's, whatever they are by."""
    (whole,) = (row for row in budget_rows(store.reader, SETTINGS, at=NOW) if row.by == "fleet")
    assert whole.month_end is not None
    for by in ("model", "application", "tenant"):
        rows = budget_rows(store.reader, SETTINGS, at=NOW, by=(by,))
        parts = [row.month_end for row in rows if row.by == by]
        total = sum(part.central for part in parts if part is not None)
        assert total == pytest.approx(whole.month_end.central)


@settings(max_examples=examples(60), deadline=None)
@given(amounts=st.lists(st.floats(1, 100), min_size=30, max_size=56), limit=st.floats(0.3, 3.0))
def test_the_chance_is_that_of_the_interval(amounts: list[float], limit: float) -> None:
    """A tenth above its high, a half at its centre, nine tenths at its low; falling in between."""
    spans = Calendar(every=PeriodLength.DAY).spans(NOW - timedelta(days=len(amounts) + 0.5), NOW)
    days = [day_row(start, end, cost) for (start, end), cost in zip(spans, amounts, strict=False)]
    made = replace(EMPTY, start=days[0].start, rows=tuple(days))
    month = month_row("a", days, made, SETTINGS).month_end
    assert month is not None

    def chance(budget: float) -> float:
        told = month_row("a", days, made, SETTINGS, per_month=budget)
        assert told.over_chance is not None
        return told.over_chance

    if month.high - month.central > 1e-6 * month.central:
        assert chance(month.high) == pytest.approx(0.1, abs=1e-3)
    assert chance(limit * month.central) >= chance((limit + 0.1) * month.central)


ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Pacific/Apia",
         "Africa/Casablanca", "Australia/Lord_Howe")  # fmt: skip


@settings(max_examples=examples(150), deadline=None)
@given(
    zone=st.sampled_from(ZONES),
    minutes=st.integers(0, 365 * 288).map(lambda slots: 5 * slots),
    cost=st.floats(0.5, 5000),
    spends=st.floats(0.05, 40),
)
def test_equal_days_make_a_month_of_any_zone(
    zone: str, minutes: int, cost: float, spends: float
) -> None:
    """Its end is its days, whatever its clocks do; so many of them spend a budget."""
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    calendar = Calendar(every=PeriodLength.DAY, zone=zone)
    first = datetime.combine(
        (at - timedelta(days=65)).date(), datetime.min.time(), tzinfo=ZoneInfo(zone)
    ).astimezone(UTC)
    rows = tuple(
        day_row(start, end, cost * ((end - start) / (whole_end(start, zone) - start)))
        for start, end in calendar.spans(first, at)
    )
    made = replace(EMPTY, start=first, end=at, calendar=calendar, rows=rows)
    own = replace(SETTINGS, report=ReportSettings(timezone=zone))
    found = month_row("a", rows, made, own, per_month=cost * spends)
    month = month_of(own, at).astimezone(ZoneInfo(zone))
    days = monthrange(month.year, month.month)[1]
    assert found.month_end is not None
    assert found.month_end.central == pytest.approx(cost * days)
    assert (found.last_week, found.week_over_week) == (
        pytest.approx(7 * cost), pytest.approx(0.0, abs=1e-9)
    )  # fmt: skip
    if abs(spends - days) < 1e-6:
        return
    assert (found.spent_at is None) == (spends > days)
    if found.spent_at is not None:
        day = (month + timedelta(days=int(spends))).astimezone(UTC)  # of the wall clock
        spent = day + (whole_end(day, zone) - day) * (spends % 1)
        assert abs(found.spent_at - spent) < timedelta(seconds=1)


def whole_end(start: datetime, zone: str) -> datetime:
    """The midnight that ends a day of the zone."""
    after = start.astimezone(ZoneInfo(zone)).date() + timedelta(days=1)
    return datetime.combine(after, datetime.min.time(), tzinfo=ZoneInfo(zone)).astimezone(UTC)


def day_row(start: datetime, end: datetime, cost: float) -> CostRow:
    """A day that costs so much."""
    hours = dict.fromkeys((name for name in COLUMNS if name.endswith("hours")), 0.0)
    amounts: dict[str, Any] = {name: None for name in COLUMNS if name != "cost"} | hours
    return CostRow(start=start, end=end, names=(), **(amounts | {"gpu_cost": cost}))


EMPTY = CostStatement(
    start=NOW, end=NOW, as_of=NOW, by=(), tenant_is="namespace",
    calendar=Calendar(every=PeriodLength.DAY), currency="EUR", rows=(),
    total=day_row(NOW, NOW, 0.0), unobserved_hours=0.0, invoices=(), charges=pd.DataFrame(),
)  # fmt: skip


def test_steady_days_are_forecast_exactly_and_weekends_are_seen() -> None:
    """Four weeks of cheap weekends: the next days are what their weekdays were."""
    days = np.tile([10.0, 10, 10, 10, 10, 2, 2], 4)
    made = days_ahead(days, days_left=9.0, weekday=0)
    assert made is not None
    assert made.sums == pytest.approx((5 * 10 + 2 * 2 + 2 * 10,) * 3)
    made = days_ahead(days, days_left=1.5, weekday=0)
    assert made is not None
    assert made.sums[1] == pytest.approx(15.0)


@pytest.mark.parametrize("likeness", [0.0, 0.5, 0.8])
def test_the_interval_holds_on_months_that_it_has_not_seen(likeness: float) -> None:
    """Drawn months of days like their neighbours: 72 to 95 % of ends lie in the 80 % interval."""
    random = np.random.default_rng(5)
    held = []
    for _month in range(400):
        noise = np.zeros(72)
        for day in range(1, 72):
            noise[day] = likeness * noise[day - 1] + random.normal(0, 8 * np.sqrt(1 - likeness**2))
        days = np.maximum(100 * np.where(np.arange(72) % 7 < 5, 1.0, 0.6) + noise, 0)
        made = days_ahead(days[:56], days_left=16.0, weekday=0)
        assert made is not None
        held.append(made.sums[0] <= days[56:].sum() <= made.sums[2])
    assert 0.72 <= np.mean(held) <= 0.95


@pytest.mark.parametrize("days", [3, 9, 16])
def test_a_tenant_has_the_same_month_on_a_page_of_its_own(tmp_path: Path, days: int) -> None:
    """One that came after watching began spent nothing before, wherever its month is counted."""
    boards = [("search/a", 20), ("late/b", days)]
    frames = []
    for number, (job, held) in enumerate(boards):
        times = pd.date_range(end=NOW, periods=288 * held, freq="5min").as_unit("us")
        frame = make_samples(minutes=len(times), end=NOW, job_id=job, gpu_uuid=f"GPU-{number}")
        frames.append(frame.assign(sampled_at=times))
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as opened:
        jobs = tuple(make_job(job, namespace=job.partition("/")[0]) for job, _held in boards)
        opened.keep(make_collected(pd.concat(frames, ignore_index=True), jobs))
        start = NOW - timedelta(days=25)
        statement = make_cost_statement(
            opened.reader, SETTINGS, start=start, end=NOW, every=PeriodLength.DAY
        )
        began = min(row.start for row in statement.rows)
        for row in budget_rows(opened.reader, SETTINGS, at=NOW):
            own = statement.within(start, NOW, {"tenant": row.tenant})
            if not own.rows:
                continue
            alone = month_row(
                row.tenant, own.rows_by(), own, SETTINGS, per_month=row.per_month, since=began
            )
            assert alone.month_end == row.month_end
            assert alone.spent_at == row.spent_at


def test_a_month_without_a_price_list_is_as_uncertain_as_public_prices(store: Store) -> None:
    """The sum stays, the interval holds 0.6 to 2.4 times it; kWh and kgCO2e do not change."""
    planned = replace(SETTINGS, statement=replace(SETTINGS.statement, prices=()))
    price = load_gpu_catalogue().get(H100).price_per_hour
    stated = GpuPrice(gpu_model=H100, per_gpu_hour=price)
    listed = replace(SETTINGS, statement=replace(SETTINGS.statement, prices=(stated,)))
    guess, known = (
        next(row for row in budget_rows(store.reader, settings, at=NOW) if row.tenant == "search")
        for settings in (planned, listed)
    )
    assert guess.month_end is not None
    assert known.month_end is not None
    assert guess.month_end.central == pytest.approx(known.month_end.central)
    assert guess.month_end.low <= 0.6 * guess.month_end.central < known.month_end.low
    assert guess.month_end.high >= 2.4 * guess.month_end.central > known.month_end.high
    assert (guess.kwh, guess.kgco2e) == (known.kwh, known.kgco2e)


@pytest.mark.parametrize("form", ["focus-csv", "focus-parquet"])
def test_the_forecast_is_a_focus_file_of_its_own(store: Store, form: str) -> None:
    """This month and the next of what has a price, billed 0, within their billing periods."""
    rows = budget_rows(store.reader, SETTINGS, at=NOW, by=FORECAST_BY)
    made = forecast_rows(rows, SETTINGS, at=NOW)
    assert [(row["SubAccountId"], row["SkuId"]) for row in made] == [("search", f"gpu/{H100}")] * 2
    march, april = (datetime(2026, month, 1, tzinfo=UTC) for month in (3, 4))
    assert [row["ChargePeriodStart"] for row in made] == [march - timedelta(days=28), march]
    assert [row["ChargePeriodEnd"] for row in made] == [march, april]
    for row in made:
        assert row["BilledCost"] == 0
        assert (row["BillingPeriodStart"], row["BillingPeriodEnd"]) == (
            row["ChargePeriodStart"], row["ChargePeriodEnd"]
        )  # fmt: skip
        assert row["x_ForecastLow"] < row["EffectiveCost"] < row["x_ForecastHigh"]
        assert row["EffectiveCost"] == pytest.approx(row["ListUnitPrice"] * row["PricingQuantity"])
        assert list(row) == [column.name for column in FORECAST_COLUMNS]
        nulls = {column.name for column in FORECAST_COLUMNS if column.nulls}
        assert {name for name, value in row.items() if value is None} <= nulls
    assert made[1]["EffectiveCost"] == pytest.approx(31 * 48)
    if form == "focus-csv":
        text = focus_csv(made, FORECAST_COLUMNS)
        assert [row["x_ForecastAsOf"] for row in csv.DictReader(io.StringIO(text))] == [
            "2026-02-20T12:00:00Z"
        ] * 2
        return
    table = pq.read_table(io.BytesIO(focus_parquet(made, FORECAST_COLUMNS)))
    assert table.column("x_ForecastHigh").to_pylist() == [row["x_ForecastHigh"] for row in made]
