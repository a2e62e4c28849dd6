"""The statement of cost is conserved: to the boards' time, by any grouping, and to the invoice."""

import math
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path

import pandas as pd
import pytest
from beds.postgres import PostgresBed
from drawn import examples
from factories import H100, make_collected, make_job, make_samples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collectors.shared.collector import Window
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from dashboard.accounting.cost.charges import STATES
from dashboard.accounting.cost.cost_cache import sums_of
from dashboard.accounting.cost.focus import focus_rows
from dashboard.accounting.cost.groups import BOARD_GROUPS, GROUPS
from dashboard.accounting.cost.statement import CostRow, CostStatement, make_cost_statement
from dashboard.accounting.energy.periods import PeriodLength
from data.base.errors import BadRangeError
from data.facts.columns import SAMPLES, check_frame
from data.settings.all_settings import Settings
from data.settings.energy import EnergySettings
from data.settings.reports import ReportSettings
from data.settings.statements import GpuPrice, Invoice, StatementSettings
from data.store import Store, open_store

BEGIN = datetime(2026, 3, 28, 21, tzinfo=UTC)
"""The evening before Berlin's clocks are put forward."""
DEAR_FROM = BEGIN + timedelta(hours=2)
PRICES = (
    GpuPrice(gpu_model=H100, per_gpu_hour=2.0, end=DEAR_FROM),
    GpuPrice(gpu_model=H100, per_gpu_hour=3.0, start=DEAR_FROM),
    GpuPrice(gpu_model=H100, per_gpu_hour=2.5, kind="committed", discount_ratio=0.4, region="DEU"),
)
BY_HOUR = ",".join(str(0.1 + 0.01 * hour) for hour in range(24))
SETTINGS = Settings(
    energy=EnergySettings(region="DEU", electricity_price_by_hour=BY_HOUR),
    report=ReportSettings(timezone="Europe/Berlin"),
    statement=StatementSettings(
        prices=PRICES,
        invoices=(Invoice(name="A-1", amount=30.0, start=BEGIN, end=BEGIN + timedelta(hours=4)),),
    ),
)
END = BEGIN + timedelta(hours=5)
MONEY = ("gpu_cost", "electricity_cost", "site_kwh", "gpu_kwh")
JOBS = (
    make_job("a/b", namespace="a", owner="ann"),
    make_job("c/d", namespace="c"),
)


@st.composite
def histories(draw: st.DrawFn) -> pd.DataFrame:
    """Boards of a known or unknown model, whole or cut, whose holders change; with holes."""
    frames = []
    for number in range(draw(st.integers(1, 3))):
        gaps = draw(st.lists(st.sampled_from([60, 240, 300, 900]), min_size=6, max_size=40))
        moments = pd.Timestamp(BEGIN) + pd.to_timedelta(pd.Series(gaps).cumsum(), unit="s")
        power = draw(st.sampled_from([None, 80.0, 500.0]))
        cut = draw(st.sampled_from([[("", "")], [("1", "3g.40gb"), ("2", "2g.20gb")]]))
        turn = draw(st.integers(0, len(gaps)))
        first, then = (draw(st.sampled_from([("",), ("a/b",), ("a/b", "c/d")])) for _ in range(2))
        used = draw(st.sampled_from([None, 0.0, 0.4]))
        for holders, part in ((first, moments[:turn]), (then, moments[turn:])):
            frames += [
                pd.DataFrame(
                    {
                        "sampled_at": part,
                        "gpu_uuid": f"GPU-{number}",
                        "mig_instance": instance,
                        "mig_profile": profile,
                        "node": "n1",
                        "gpu_index": str(number),
                        "gpu_model": "Voodoo2" if number == 1 else H100,
                        "job_id": job,
                        "utilization_ratio": math.nan if used is None else used,
                        "utilization_signal": "sm_active",
                        "memory_used_mib": draw(st.sampled_from([0.0, 70_000.0])),
                        "memory_total_mib": 81_559.0,
                        "power_watts": math.nan if power is None else power,
                    }
                )
                for instance, profile in cut
                for job in holders
                if len(part)
            ]
    frame = pd.concat(frames, ignore_index=True)
    frame["sampled_at"] = frame["sampled_at"].astype("datetime64[us, UTC]")
    return check_frame(frame, SAMPLES)


def seen_hours(samples: pd.DataFrame, board: str) -> float:
    """The oracle: the time between readings of a board that are at most five minutes apart."""
    moments = samples.loc[samples["gpu_uuid"] == board, "sampled_at"].drop_duplicates()
    gaps = moments.sort_values().diff().dt.total_seconds()
    return float(gaps[gaps <= 300].sum() / 3600)


def add_up(rows: tuple[CostRow, ...], to: CostRow) -> None:
    """Rows are the total of another grouping, in hours, energy and money."""
    assert sum(row.board_hours for row in rows) == pytest.approx(to.board_hours)
    for row in rows:
        states = (
            row.used_hours, row.idle_hours, row.shared_hours, row.unclear_hours, row.free_hours,
            row.unattributed_hours,
        )  # fmt: skip
        assert min(states) >= 0
        assert sum(states) == pytest.approx(row.board_hours)
        assert row.gpu_cost is not None or row.unpriced_hours == pytest.approx(row.board_hours)
        assert row.site_kwh is not None or row.unmeasured_hours == pytest.approx(row.board_hours)
    for name in MONEY:
        parts = [getattr(row, name) for row in rows]
        whole = getattr(to, name)
        assert sum(part or 0.0 for part in parts) == pytest.approx(whole or 0.0, abs=1e-9)
        assert (whole is None) == all(part is None for part in parts)


def values(row: CostRow) -> dict[str, object]:
    """A row's values, numbers nearly equal."""
    return {
        name: pytest.approx(value, abs=1e-9) if isinstance(value, float) else value
        for name, value in asdict(row).items()
    }


def check_sums(whole: CostStatement, total: CostRow) -> None:
    """The states of use of every tenant are its cost, and the tenants are the total."""
    sums = sums_of(whole.charges, "tenant")
    states = sums[list(STATES)].sum(axis=1, min_count=1)
    assert list(states) == pytest.approx(list(sums["cost"]), nan_ok=True)
    assert sums["cost"].sum() == pytest.approx(total.cost or 0.0)
    assert sums["cost"].isna().all() == (total.cost is None)
    assert sums["hours"].sum() == pytest.approx(total.board_hours)


def statement(
    store: Store, *by: str, every: PeriodLength = PeriodLength.TOTAL, end: datetime = END
) -> CostStatement:
    """The statement of the drawn hours."""
    return make_cost_statement(store.reader, SETTINGS, start=BEGIN, end=end, by=by, every=every)


def check_history(store: Store, samples: pd.DataFrame) -> None:
    """Everything that any history must hold."""
    store.keep(make_collected(samples, JOBS))
    boards = statement(store, "board")
    for row in boards.rows:
        seen = seen_hours(samples, row.names[0])
        assert row.board_hours == pytest.approx(seen, rel=1e-3, abs=1e-9)
    fleet = store.reader.energy(start=BEGIN, end=END, by="fleet")["energy_kwh"].sum()
    assert (boards.total.gpu_kwh or 0.0) == pytest.approx(fleet, rel=1e-3, abs=1e-9)
    whole = statement(store)
    add_up(statement(store, "cluster").rows, boards.total)
    cross = [name for name in GROUPS if name not in BOARD_GROUPS]
    for count in sorted({*range(examples(len(cross) + 1)), len(cross)}):  # all by `make test-all`
        for by in combinations(cross, count):
            add_up(whole.rows_by(*by), boards.total)
    told_apart = ("tenant", "model", "state")
    window = {"start": BEGIN, "end": END}
    coarse = make_cost_statement(store.reader, SETTINGS, **window, by=told_apart, is_coarse=True)
    assert [values(row) for row in coarse.rows] == [
        values(row) for row in whole.rows_by(*told_apart)
    ]
    assert coarse.unobserved_hours == whole.unobserved_hours
    parts = [
        make_cost_statement(store.reader, SETTINGS, **window, takes=job.job_id.__eq__)
        for job in JOBS
    ]
    nobodys = [whole.within(BEGIN, END, {"holder": name}) for name in ("free", "unattributed")]
    add_up(tuple(part.total for part in (*parts, *nobodys)), boards.total)
    check_sums(whole, boards.total)
    for every in (PeriodLength.HOUR, PeriodLength.DAY, PeriodLength.MONTH):
        add_up(statement(store, "tenant", "model", every=every).rows, boards.total)
    (one,) = whole.invoices
    assert one.charged + one.residual == pytest.approx(one.invoice.amount)
    assert one.charged == pytest.approx(statement(store, end=one.invoice.end).total.cost or 0.0)


@settings(
    max_examples=examples(8),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(samples=histories())
def test_any_history_is_conserved(
    samples: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Boards' time to 0.1 %, the whole cross of groupings, every period, and the invoice."""
    folder = tmp_path_factory.mktemp("boards")
    with open_store(f"duckdb:///{folder}/t.duckdb") as store:
        check_history(store, samples)


@pytest.mark.postgres
@settings(
    max_examples=examples(3),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(samples=histories())
def test_any_history_is_conserved_on_postgresql(
    samples: pd.DataFrame, postgres: PostgresBed
) -> None:
    """The same, from the same queries on the other engine."""
    with postgres.database(template="store_template") as url, open_store(url) as store:
        check_history(store, samples)


@pytest.fixture
def hour(store: Store) -> Store:
    """An hour of four H100: one of a/b half used, one shared, one free, one at work for nobody."""
    end = BEGIN + timedelta(hours=1)
    boards = [("a/b", 0.5, 300.0), ("a/b", 0.5, 300.0), ("", 0.0, 70.0), ("", 0.9, 600.0)]
    samples = pd.concat(
        [
            make_samples(
                minutes=61, end=end, job_id=job, utilization_ratio=used, power_watts=watts,
                gpu_uuid=f"GPU-{number}", memory_used_mib=0.0,
            )
            for number, (job, used, watts) in enumerate(boards)
        ]
        + [make_samples(minutes=61, end=end, job_id="c/d", gpu_uuid="GPU-1", power_watts=300.0)],
        ignore_index=True,
    )  # fmt: skip
    store.keep(make_collected(samples, JOBS))
    return store


def test_an_hour_by_hand(hour: Store) -> None:
    """Each state of use has its board-hours, its energy and its price."""
    made = statement(hour, "tenant", "state", end=BEGIN + timedelta(hours=1))
    rows = {row.names: row for row in made.rows}
    hours = {names: row.board_hours for names, row in rows.items()}
    assert hours == pytest.approx(
        {
            ("a", "used"): 0.5, ("a", "idle"): 0.5, ("a", "shared"): 0.5, ("c", "shared"): 0.5,
            ("(not allocated)", "free"): 1.0, ("(unattributed)", "unattributed"): 1.0,
        }
    )  # fmt: skip
    kwh = {names: row.gpu_kwh for names, row in rows.items()}
    assert kwh["a", "idle"] == pytest.approx(0.5 * 0.075)  # idle power of an H100 by the catalogue
    assert kwh["a", "used"] == pytest.approx(0.3 - 0.5 * 0.075)
    assert kwh["c", "shared"] == pytest.approx(0.15)
    assert rows["c", "shared"].gpu_cost == pytest.approx(0.5 * 2.5 * 0.6)
    price = 0.1 + 0.01 * BEGIN.hour
    assert rows["c", "shared"].electricity_cost == pytest.approx(0.15 * 1.54 * price)
    assert made.total.cost == pytest.approx(4 * 1.5 + (0.3 + 0.3 + 0.07 + 0.6) * 1.54 * price)


def test_a_price_changes_within_a_day(hour: Store) -> None:
    """Hours before the change have the old price; a committed rate of another region has no say."""
    later = make_samples(minutes=181, end=BEGIN + timedelta(hours=3), gpu_uuid="GPU-9")
    hour.keep(make_collected(later, JOBS))
    prices = (*PRICES[:2], replace(PRICES[2], region="FRA"))
    stated = replace(SETTINGS.statement, invoices=(), prices=prices)
    made = make_cost_statement(
        hour.reader, replace(SETTINGS, statement=stated), start=BEGIN, end=END, by=("model",)
    )
    assert made.total.gpu_cost == pytest.approx((4 + 2) * 2.0 + 1 * 3.0)


def test_a_model_without_a_price_is_counted_and_never_free_of_charge(hour: Store) -> None:
    """Once a price is stated, what has none is unknown; without any, the catalogue's are named."""
    other = StatementSettings(prices=(GpuPrice(gpu_model="L40S-48GB", per_gpu_hour=1.0),))
    window = {"start": BEGIN, "end": BEGIN + timedelta(hours=1)}
    made = make_cost_statement(hour.reader, replace(SETTINGS, statement=other), **window)
    assert made.total.gpu_cost is None
    assert made.total.unpriced_hours == pytest.approx(4.0)
    assert "the price of 4.0 of 4.0 board-hours (H100-SXM5-80GB)" in made.unknown[0]
    planned = replace(SETTINGS, statement=StatementSettings())
    made = make_cost_statement(hour.reader, planned, **window)
    assert made.total.gpu_cost == pytest.approx(4 * 2.5)
    assert any("planning prices" in line for line in made.unknown)


def test_groups_that_do_not_go_together_are_refused(hour: Store) -> None:
    """A board has no tenant; an empty range is no statement."""
    with pytest.raises(BadRangeError, match="a board is not told apart"):
        statement(hour, "board", "tenant")
    with pytest.raises(BadRangeError, match="is not before"):
        statement(hour, end=BEGIN)


@pytest.mark.slow
def test_a_month_of_the_simulated_fleet_is_its_boards_and_its_invoice(tmp_path: Path) -> None:
    """Every board to 0.1 %, every tenant by day, and FOCUS charges that add up to the invoice."""
    begin, end = datetime(2026, 2, 28, 23, tzinfo=UTC), datetime(2026, 3, 31, 22, tzinfo=UTC)
    source = SimulatedFleetCollector(fleet=SimulatedFleet(seed=7, nodes=1), step_seconds=300)
    collected = source.collect(Window(start=begin, end=end))
    models = sorted(set(collected.samples["gpu_model"]))
    stated = StatementSettings(
        prices=tuple(GpuPrice(gpu_model=model, per_gpu_hour=2.0) for model in models),
        invoices=(Invoice(name="March", amount=20_000.0, start=begin, end=end),),
    )
    month = replace(SETTINGS, statement=stated)
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        store.keep(collected)
        boards = make_cost_statement(store.reader, month, start=begin, end=end, by=("board",))
        made = make_cost_statement(
            store.reader, month, start=begin, end=end, by=("tenant", "job"), every=PeriodLength.DAY
        )
    assert len(boards.rows) >= 4
    for row in boards.rows:
        seen = seen_hours(collected.samples, row.names[0])
        assert row.board_hours == pytest.approx(seen, rel=1e-3)
    add_up(made.rows, boards.total)
    assert boards.total.gpu_cost == pytest.approx(2.0 * boards.total.board_hours)
    assert sum(row["BilledCost"] for row in focus_rows(made, month)) == pytest.approx(20_000.0)
