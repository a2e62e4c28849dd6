"""What is paid for a GPU-hour stands in plans, recommendations and reports, not the catalogue's."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.simulated_fleet import SimulatedFleet, SimulatedFleetCollector
from dashboard.cycle import CycleOutcome, run_cycle
from dashboard.cycle_world import World
from dashboard.reports.asked_report import asked_report
from dashboard.statement.prices import as_paid, price_list, priced
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings import EnergySettings, PlanningSettings, Settings
from data.statement_settings import GpuPrice, StatementSettings
from data.store import open_store

CATALOGUE = load_gpu_catalogue()
NOW = datetime(2026, 1, 7, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def settings_at(ratio: float | None, *, but: str = "") -> Settings:
    """Settings that price every model at a ratio of the catalogue's price, `but` one at none."""
    rows = [
        GpuPrice(gpu_model=model.name, per_gpu_hour=ratio * model.price_per_hour)
        for model in CATALOGUE
        if ratio is not None and model.name != but
    ]
    return Settings(
        planning=PlanningSettings(slot_minutes=60, horizon_slots=12, budget_seconds=5),
        energy=EnergySettings(region="DEU", electricity_price_per_kwh=0.0),
        statement=StatementSettings(prices=tuple(rows)),
    )


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[float | None, CycleOutcome]:
    """A cycle of the same fleet without prices, with the catalogue's, and with thrice those."""
    found = {}
    for ratio in (None, 1.0, 3.0):
        path = tmp_path_factory.mktemp("prices") / "s.duckdb"
        with open_store(f"duckdb:///{path}") as store:
            world = World(
                settings=settings_at(ratio),
                store=store,
                collectors=(
                    SimulatedFleetCollector(
                        fleet=SimulatedFleet(seed=7, nodes=2), step_seconds=300
                    ),
                ),
                catalogue=CATALOGUE,
                carbon=load_carbon_table().get("DEU"),
            )
            found[ratio] = run_cycle(world, now=NOW)
    return found


def test_plans_and_savings_are_paid_at_the_price_list(
    outcomes: dict[float | None, CycleOutcome],
) -> None:
    """Electricity costs nothing here, so three times the price is three times the money."""
    plain, same, thrice = (outcomes[ratio] for ratio in (None, 1.0, 3.0))
    assert plain.plan is not None
    assert same.plan is not None
    assert thrice.plan is not None
    assert same.plan.cost == pytest.approx(plain.plan.cost)
    assert thrice.plan.cost_of_now == pytest.approx(3 * plain.plan.cost_of_now)
    saved = {
        (entry.job_id, entry.action, entry.proposed): entry.savings.cost
        for entry in plain.recommendations
        if entry.savings.cost is not None
    }
    compared = 0
    for entry in thrice.recommendations:
        before = saved.get((entry.job_id, entry.action, entry.proposed))
        if before is not None and entry.savings.cost is not None:
            assert entry.savings.cost.central == pytest.approx(3 * before.central, rel=1e-6)
            compared += 1
    assert compared >= 1


def test_evidence_names_where_a_price_comes_from(
    outcomes: dict[float | None, CycleOutcome],
) -> None:
    """The price list where it has the model, the catalogue elsewhere."""
    for ratio, words in ((None, "catalogue default"), (3.0, "statement.prices")):
        told = [
            text
            for entry in outcomes[ratio].recommendations
            for name, text in entry.evidence.factors
            if name == "GPU price"
        ]
        assert told
        assert all(text.endswith(f"({words})") for text in told)


@given(
    prices=st.lists(st.floats(0.1, 9), min_size=1, max_size=4),
    hours=st.lists(st.integers(1, 200), min_size=4, max_size=4),
    start=st.integers(0, 300),
    length=st.integers(1, 400),
)
def test_a_price_over_a_time_is_the_mean_of_its_hours(
    prices: list[float], hours: list[int], start: int, length: int
) -> None:
    """Rows follow each other; a time in which no row is in force leaves the model unpriced."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    rows, at = [], begin
    for price, lasts in zip(prices, hours, strict=False):
        rows.append(
            GpuPrice(gpu_model="L40S-48GB", per_gpu_hour=price, start=at, end=at + lasts * HOUR)
        )
        at += lasts * HOUR
    settings = replace(Settings(), statement=StatementSettings(prices=tuple(rows)))
    by_hour = [
        price_list(settings, CATALOGUE).find("L40S-48GB", begin + hour * HOUR)
        for hour in range(start, start + length)
    ]
    found = priced(CATALOGUE, settings, begin + start * HOUR, begin + (start + length) * HOUR).get(
        "L40S-48GB"
    )
    charged = [price.charged for price in by_hour if price is not None]
    if len(charged) < length:
        assert found.price_is_stated is False
        assert found.price_per_hour == CATALOGUE.get("L40S-48GB").price_per_hour
    else:
        assert found.price_per_hour == pytest.approx(sum(charged) / length)


def test_the_weekly_report_pays_idle_hours_as_the_statement_does(tmp_path: Path) -> None:
    """By model and to the cent; a model without a price has hours and no cost in both."""
    with open_store(f"duckdb:///{tmp_path / 's.duckdb'}") as store:
        fleet = SimulatedFleet(seed=7, nodes=2)
        world = World(
            settings=settings_at(None),
            store=store,
            collectors=(SimulatedFleetCollector(fleet=fleet, step_seconds=300),),
            catalogue=CATALOGUE,
            carbon=load_carbon_table().get("DEU"),
        )
        models = {job.gpu_model for job in run_cycle(world, now=NOW).jobs}
        for but in ("", *sorted(models)):
            settings = settings_at(3.0, but=but)
            report = asked_report(store.reader, settings, end=NOW, last_week=False)
            catalogue = priced(CATALOGUE, settings, report.week.start, report.week.end)
            jobs = {job.job_id: job for job in store.reader.jobs()}
            owed = sum(
                row["idle_gpu_hours"] * catalogue.get(jobs[row["key"]].gpu_model).price_per_hour
                for row in report.energy.held.to_dict("records")
                if row["key"] in jobs and jobs[row["key"]].gpu_model != but
            )
            told = sum(row.rent or 0.0 for row in report.waste)
            assert told == pytest.approx(owed)
            assert (sum(row.unpriced_hours for row in report.waste) > 0) is bool(but)


def test_an_estimate_is_in_the_currency_of_the_list() -> None:
    """Where stated prices are 160 times the catalogue's, so are those of the other models."""
    rows = (GpuPrice(gpu_model="H100-SXM5-80GB", per_gpu_hour=450.0),)
    settings = replace(Settings(), statement=StatementSettings(prices=rows))
    found = priced(CATALOGUE, settings, NOW)
    ratio = 450.0 / CATALOGUE.get("H100-SXM5-80GB").price_per_hour
    for model in CATALOGUE:
        assert found.get(model.name).price_per_hour == pytest.approx(ratio * model.price_per_hour)
        assert found.get(model.name).price_is_stated is (model.name == "H100-SXM5-80GB")


def test_prices_that_include_electricity_are_not_paid_twice() -> None:
    """Only with a price list, and only where it says so; carbon keeps its price."""
    stated = settings_at(1.0)
    paid = replace(stated, energy=EnergySettings(region="DEU", electricity_price_per_kwh=0.3))
    inside = replace(paid, statement=replace(paid.statement, charge_electricity=False))
    assert as_paid(paid) == paid
    assert set(as_paid(inside).energy.prices_by_hour) == {0.0}
    unlisted = replace(inside, statement=replace(inside.statement, prices=()))
    assert as_paid(unlisted) == unlisted
