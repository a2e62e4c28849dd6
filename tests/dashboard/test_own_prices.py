"""What is paid for a GPU-hour stands in plans, recommendations and reports, not the catalogue's."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import factories
import pytest
from factories import H100, make_collected, make_job, make_samples
from hypothesis import given
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from dashboard.accounting.cost.charges import IDLE
from dashboard.accounting.cost.prices import Rent, as_paid, price_list, priced
from dashboard.accounting.cost.statement import make_cost_statement
from dashboard.cycle.context import World
from dashboard.cycle.cycle_thread import CycleState
from dashboard.cycle.run_cycle import CycleOutcome, run_cycle
from dashboard.decisions.service import DecisionService
from dashboard.reports.week.weekly_report import asked_report
from dashboard.web.access.context import WebWorld
from dashboard.web.access.identity import register
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.all_settings import PlanningSettings, Settings
from data.settings.energy import EnergySettings
from data.settings.load import LoadedSettings
from data.settings.statements import GpuPrice, StatementSettings
from data.store import Store, open_store

CATALOGUE = load_gpu_catalogue()
APP = Path(__file__).parents[2] / "dashboard/web/app.py"
UNHEARD_OF = "NVIDIA X900"
"""A board that the catalogue does not know, by its driver's name."""
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


@dataclass(frozen=True)
class Cycles:
    """What a cycle found at each ratio of prices, and the store of the one without prices."""

    outcomes: dict[float | None, CycleOutcome]
    store: Store


@pytest.fixture(scope="module")
def cycles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cycles]:
    """A cycle of the same fleet without prices, with the catalogue's, and with thrice those."""
    found, stores = {}, {}
    fleet = SimulatedFleet(seed=7, nodes=2)
    with ExitStack() as stack:
        for ratio in (None, 1.0, 3.0):
            path = tmp_path_factory.mktemp("prices") / "s.duckdb"
            stores[ratio] = stack.enter_context(open_store(f"duckdb:///{path}"))
            world = World(
                settings=settings_at(ratio),
                store=stores[ratio],
                collectors=(SimulatedFleetCollector(fleet=fleet, step_seconds=300),),
                catalogue=CATALOGUE,
                carbon=load_carbon_table().get("DEU"),
            )
            found[ratio] = run_cycle(world, now=NOW)
        yield Cycles(found, stores[None])


@pytest.fixture(scope="module")
def outcomes(cycles: Cycles) -> dict[float | None, CycleOutcome]:
    """What a cycle found at each ratio."""
    return cycles.outcomes


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
    found = price_list(settings, CATALOGUE).mean_charge(
        "L40S-48GB", begin + start * HOUR, begin + (start + length) * HOUR
    )
    charged = [price.charged for price in by_hour if price is not None]
    if len(charged) < length:
        assert found is None
    else:
        assert found == pytest.approx(sum(charged) / length)


def test_the_weekly_report_pays_idle_hours_as_the_statement_does(cycles: Cycles) -> None:
    """By model and to the cent; a model without a price has hours and no cost in both."""
    outcome = cycles.outcomes[None]
    reader = cycles.store.reader
    models = {job.gpu_model for job in outcome.jobs}
    jobs = {job.job_id for job in reader.jobs()}
    for but in ("", *sorted(models)):
        settings = settings_at(3.0, but=but)
        report = asked_report(reader, settings, end=NOW, last_week=False)
        catalogue = priced(CATALOGUE, settings, report.week.start)
        owed = sum(
            row["idle_gpu_hours"] * catalogue.get(row["gpu_model"]).price_per_hour
            for row in report.energy.allocated.to_dict("records")
            if row["key"] in jobs and row["gpu_model"] != but
        )
        told = sum(row.rent or 0.0 for row in report.waste)
        assert told == pytest.approx(owed)
        assert (sum(row.unpriced_hours for row in report.waste) > 0) is bool(but)


@pytest.mark.parametrize("scheduler_says", ["", "h20", H100])
@pytest.mark.parametrize(
    "stated", [{}, {H100: 3.0}, {UNHEARD_OF: 180.0}, {H100: 3.0, UNHEARD_OF: 180.0}]
)
@pytest.mark.parametrize("charge_electricity", [True, False])
def test_idle_time_costs_the_same_in_statement_report_and_overview(
    stated: dict[str, float],
    scheduler_says: str,
    charge_electricity: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the boards that were held, and a model without a price is named beside a minimum.

    Electricity is said to be left out unless the prices include it.
    """
    samples = make_samples(gpus=4, minutes=1440)
    samples.loc[samples["gpu_uuid"] > "GPU-0000", "gpu_model"] = UNHEARD_OF
    rows = tuple(GpuPrice(gpu_model=model, per_gpu_hour=price) for model, price in stated.items())
    paid_for = StatementSettings(prices=rows, charge_electricity=charge_electricity)
    settings = replace(Settings(), statement=paid_for)
    left_out = "" if stated and not charge_electricity else ", excluding electricity"
    start, end = factories.NOW - timedelta(days=1), factories.NOW
    with open_store(f"duckdb:///{tmp_path / 's.duckdb'}") as store:
        store.keep(make_collected(samples, (make_job(gpu_model=scheduler_says),)))
        charges = make_cost_statement(store.reader, settings, start=start, end=end).charges
        idle = charges[charges["state"] == IDLE]
        report = asked_report(store.reader, settings, end=end, last_week=False)
        shown = overview_captions(store, settings, monkeypatch)
    unpriced = tuple(sorted(idle.loc[idle["kind"] == "", "model"]))
    assert set(unpriced) == {H100, UNHEARD_OF} - set(stated or {H100})
    paid = None if len(unpriced) == len(idle) else float(idle["gpu_cost"].sum())
    rent = Rent(amount=paid, unpriced_models=unpriced)
    (row,) = report.waste
    assert row.cost == Rent(amount=paid and pytest.approx(paid), unpriced_models=unpriced)
    assert f"idle, at a cost of {rent.sentence('EUR', left_out)}; " in report.finding
    assert f"{rent.sentence('EUR', left_out)}; " in shown


def overview_captions(store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the page Overview says in small print."""
    world = WebWorld(
        store=store,
        settings=LoadedSettings(settings=settings, origins={}),
        decision_service=DecisionService(store=store, settings=lambda: settings),
        cycle_state=CycleState, worker_problem=lambda: "", run_lifespan=nullcontext,
        clock=lambda: factories.NOW,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    register(world)
    app = AppTest.from_file(str(APP), default_timeout=60).run()
    assert not app.exception
    return "\n".join(caption.value for caption in app.caption).replace("\\", "")


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
