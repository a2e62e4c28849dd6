"""The statement reconciles with the store: by whatever it is told apart, its parts are it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from drawn import examples
from factories import H100, make_collected, make_job
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collectors.shared.collector import Window
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from dashboard.accounting.energy.build import energy_of_jobs, make_statement
from dashboard.accounting.energy.periods import Calendar, PeriodLength
from dashboard.accounting.energy.statement import EsgStatement, GroupBy, Holder
from data.catalogue.carbon_table import load_carbon_table
from data.facts.columns import SAMPLES, check_frame
from data.settings.all_settings import Settings
from data.settings.energy import EnergySettings
from data.settings.reports import ReportSettings
from data.store import Store, open_store
from data.store.facts.energy_parts import EnergyKey

END = datetime(2026, 3, 30, 12, 20, tzinfo=UTC)
START = END - timedelta(days=2, minutes=35)
"""Over the night in which Berlin's clocks are put forward; both ends within an hour."""
WATT_HOUR = 1e-3
HOURS = ",".join(str(200 + 15 * hour) for hour in range(24))
SETTINGS = Settings(
    energy=EnergySettings(
        region="DEU", carbon_by_hour=HOURS, hours_zone="+01:00", market_gco2e_per_kwh=50.0
    ),
    report=ReportSettings(timezone="Europe/Berlin"),
)
CENTRAL = (
    "gpu_energy_kwh",
    "site_energy_kwh",
    "location_kgco2e",
    "market_kgco2e",
    "embodied_kgco2e",
    "electricity_cost",
)
START_OF_BOARDS = datetime(2026, 1, 5, 9, tzinfo=UTC)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """The simulated fleet with MIG boards, resets, gaps and free boards."""
    folder = tmp_path_factory.mktemp("fleet")
    source = SimulatedFleetCollector(fleet=SimulatedFleet(seed=7, nodes=4), step_seconds=300)
    with open_store(f"duckdb:///{folder}/t.duckdb") as opened:
        opened.keep(source.collect(Window(start=START - timedelta(days=1), end=END)))
        yield opened


def rolled_up_kwh(store: Store) -> float:
    """The energy of the range straight from the finest roll-up."""
    with store._engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        row = driver.execute(
            "SELECT sum(joules) / 3.6e6 FROM five_minute WHERE slot_start >= ? AND slot_start < ?",
            [START, END],
        ).fetchone()
        return float(row[0])


def sum_of(statement: EsgStatement, name: str) -> float:
    """The sum of a central amount over all rows that know it."""
    amounts = [getattr(row, name) for row in statement.rows]
    return sum(amount.central for amount in amounts if amount is not None)


@pytest.mark.parametrize("every", list(PeriodLength))
@pytest.mark.parametrize("by", list(GroupBy))
def test_groups_are_the_fleet_to_the_watt_hour(
    store: Store, by: GroupBy, every: PeriodLength
) -> None:
    """Energy, emissions by hour, money and making: rows, total and roll-up are one."""
    calendar = Calendar(every=every, zone="Europe/Berlin")
    made = make_statement(
        store.reader, start=START, end=END, settings=SETTINGS, by=by, calendar=calendar
    )
    assert made.total.gpu_energy_kwh is not None
    assert made.total.gpu_energy_kwh.central == pytest.approx(rolled_up_kwh(store), abs=WATT_HOUR)
    for name in CENTRAL:
        whole = getattr(made.total, name)
        assert sum_of(made, name) == pytest.approx(whole.central, abs=WATT_HOUR, rel=1e-9)
    assert made.expected_hours is not None
    hours = sum(row.board_hours for row in made.rows)
    assert hours == pytest.approx(made.expected_hours, abs=1e-6)
    assert sum(row.measured_hours for row in made.rows) <= hours + 1e-6
    assert all(row.start < row.end for row in made.rows)


def test_the_statement_agrees_with_what_the_jobs_page_reads(store: Store) -> None:
    """Per job the same kWh and GPU-hours as StoreReader.energy."""
    made = make_statement(store.reader, start=START, end=END, settings=SETTINGS, by=GroupBy.JOB)
    there = store.reader.energy(start=START, end=END, by="job").set_index("key")
    jobs = [row for row in made.rows if row.holder is Holder.JOB]
    assert len(jobs) > 20
    for row in jobs:
        assert row.gpu_energy_kwh is not None
        known = there.loc[row.key]
        assert row.gpu_energy_kwh.central == pytest.approx(known["energy_kwh"], abs=1e-9)
        assert row.gpu_hours == pytest.approx(known["gpu_hours"])


def test_boards_cut_by_mig_are_among_them(store: Store) -> None:
    """The range of a job on a slice spans both pure rules, and so is wider than the sensor's."""
    made = make_statement(store.reader, start=START, end=END, settings=SETTINGS, by=GroupBy.JOB)
    widths = [
        entry.high / entry.central
        for row in made.rows
        if (entry := row.gpu_energy_kwh) and entry.central
    ]
    assert min(widths) == pytest.approx(1.05)
    assert max(widths) > 1.06


@st.composite
def some_boards(draw: st.DrawFn) -> pd.DataFrame:
    """Two boards, whole or cut, held by nobody, one or two jobs; power and activity with holes."""
    frames = []
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    for number in range(2):
        steps = draw(st.lists(st.sampled_from([60, 60, 290, 700]), min_size=8, max_size=30))
        seconds = np.cumsum(np.array(steps))
        power = random.uniform(60, 700, len(seconds))
        power[random.uniform(size=len(seconds)) < draw(st.sampled_from([0, 0.3, 1]))] = np.nan
        activity = random.uniform(0, 1, len(seconds))
        activity[random.uniform(size=len(seconds)) < draw(st.sampled_from([0, 0.5]))] = np.nan
        cut = draw(st.sampled_from([[("", "")], [("1", "3g.40gb"), ("2", "2g.20gb")]]))
        holders = draw(st.sampled_from([[""], ["a/b"], ["a/b", "c/d"]]))
        frames += [
            pd.DataFrame(
                {
                    "sampled_at": pd.Timestamp(START_OF_BOARDS)
                    + pd.to_timedelta(seconds, unit="s"),
                    "gpu_uuid": f"GPU-{number}",
                    "mig_instance": instance,
                    "mig_profile": profile,
                    "node": "n1",
                    "gpu_index": str(number),
                    "gpu_model": H100 if number else "Voodoo2",
                    "job_id": job,
                    "utilization_ratio": activity,
                    "utilization_signal": "sm_active",
                    "power_watts": power,
                }
            )
            for instance, profile in cut
            for job in holders
        ]
    frame = pd.concat(frames, ignore_index=True)
    frame["sampled_at"] = frame["sampled_at"].astype("datetime64[us, UTC]")
    return check_frame(frame, SAMPLES)


@pytest.mark.slow
@settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(samples=some_boards(), first=st.integers(0, 3000), minutes=st.integers(5, 240))
def test_any_fleet_and_any_range_add_up(
    samples: pd.DataFrame, first: int, minutes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Shared, cut, idle, unmeasured: rows are the total; ranges are in order; unknown is no 0."""
    start = START_OF_BOARDS + timedelta(seconds=first)
    end = start + timedelta(minutes=minutes)
    folder = tmp_path_factory.mktemp("boards")
    with open_store(f"duckdb:///{folder}/t.duckdb") as store:
        jobs = (make_job("a/b", namespace="a"), make_job("c/d", namespace="c"))
        store.keep(make_collected(samples, jobs))
        whole = [
            make_statement(store.reader, start=start, end=end, settings=SETTINGS, by=by)
            for by in (GroupBy.FLEET, GroupBy.TENANT, GroupBy.JOB, GroupBy.MODEL)
        ]
        fleet = store.reader.energy(start=start, end=end, by="fleet")["energy_kwh"].sum()
    for made in whole:
        for name in CENTRAL:
            total = getattr(made.total, name)
            known = 0.0 if total is None else total.central
            assert sum_of(made, name) == pytest.approx(known, abs=1e-9)
        energy = made.total.gpu_energy_kwh
        assert (0.0 if energy is None else energy.central) == pytest.approx(fleet, abs=1e-9)
        for row in made.rows:
            assert row.gpu_energy_kwh is not None or row.measured_hours == 0
            assert row.sci_gco2e is None or row.scored_hours > 0
            assert row.embodied_hours <= row.board_hours + 1e-9


def test_parts_can_be_read_by_every_key(store: Store) -> None:
    """Each key of the store gives the same joules and board-time."""
    calendar = Calendar(every=PeriodLength.DAY)
    grid = calendar.pieces(START, END)[0].grid
    sums = {
        key: store.reader.energy_parts(start=START, end=END, key=key, periods=grid, hour_shift=0)[
            ["joules", "board_seconds", "measured_seconds"]
        ].sum()
        for key in EnergyKey
    }
    for key in EnergyKey:
        assert sums[key].to_numpy() == pytest.approx(sums[EnergyKey.FLEET].to_numpy())


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("most", [3, 10_000])
def test_the_largest_jobs_are_those_of_the_statement_by_job(
    store: Store, most: int, *, is_cut: bool
) -> None:
    """Row by row, and what all jobs held is what its rows say, for the fleet and for an edition."""
    known = {job.job_id: job for job in store.reader.jobs()}
    jobs = {name: known[name] for name in sorted(known)[::2]} if is_cut else None
    asked = {"start": START, "end": END, "settings": SETTINGS, "jobs": jobs}
    carbon = load_carbon_table().get("DEU")
    stated = make_statement(store.reader, by=GroupBy.JOB, carbon=carbon, **asked)  # type: ignore[arg-type]
    rows = tuple(row for row in stated.rows if row.holder is Holder.JOB)
    top, held = energy_of_jobs(store.reader, carbon=carbon, most=most, **asked)  # type: ignore[arg-type]
    assert len(rows) > 3
    assert [row.key for row in top] == [row.key for row in rows[:most]]
    for name in CENTRAL:
        for row, expected in zip(top, rows, strict=False):
            amount, stated_amount = getattr(row, name), getattr(expected, name)
            assert (amount is None) is (stated_amount is None)
            if amount is not None:
                assert amount.central == pytest.approx(stated_amount.central)
    sums = held.groupby("key")[["gpu_hours", "idle_gpu_hours"]].sum(min_count=1)
    hours = sums.loc[[row.key for row in rows]]
    assert len(sums) == len(rows)
    for name in ("gpu_hours", "idle_gpu_hours"):
        known = [np.nan if getattr(row, name) is None else getattr(row, name) for row in rows]
        assert hours[name].to_list() == pytest.approx(known, nan_ok=True)
