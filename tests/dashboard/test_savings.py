"""Predicted against realised: against the job without the change, unknown where not known."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from beds.apply_bench import Bench, applied_bench
from drawn import examples
from factories import NOW, make_collected, make_job, make_range, make_recommendation, make_samples
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_cases import H100

from dashboard.accounting.savings.daily_savings import saved_by_day, summed
from dashboard.accounting.savings.ledger import ledger, total_energy, total_gpu_hours
from dashboard.apply.worker import verification
from dashboard.apply.worker.verification import compare, measure
from data.catalogue.gpu_catalogue import GpuCatalogue, load_gpu_catalogue
from data.records.commands import Work
from data.records.plans import Configuration
from data.records.recommendations import Range, Savings
from data.settings.all_settings import PlanningSettings, Settings
from data.settings.energy import EnergySettings
from data.store import open_store


def history(
    work: Sequence[float],
    *,
    boards: float,
    start: datetime = NOW,
    minutes: int = 60,
    **power: float,
) -> pd.DataFrame:
    """A history by slot: W = boards at rest plus so much for each board of work."""
    resting, slope = power.get("resting", 80.0), power.get("slope", 400.0)
    levels = np.asarray(work, dtype=np.float64)
    return pd.DataFrame(
        {
            "slot_start": [start + timedelta(minutes=minutes * n) for n in range(len(levels))],
            "effective_gpus": levels,
            "allocated_gpus": float(boards),
            "power_watts": boards * resting + slope * levels,
        }
    )


def day_of(work: Sequence[float], *, boards: float, minutes: int = 60, **power: float):  # type: ignore[no-untyped-def]
    """The history of the 24 hours before."""
    return history(work, boards=boards, start=NOW - timedelta(days=1), minutes=minutes, **power)


def compared(  # type: ignore[no-untyped-def]
    before: pd.DataFrame,
    after: pd.DataFrame,
    proposed: int | Configuration = 2,
    minutes: int = 60,
    **changes: Any,
):
    """What is measured without site overhead, where a free H100 draws 80 W or `free_watts`."""
    slots = changes.pop("slots", len(after))
    split = changes.pop("split_kwh", None)
    is_over = changes.pop("is_over", True)
    low, middle, high = changes.pop("free_watts", (80.0, 80.0, 80.0))
    held = round(before["allocated_gpus"].mean()) if len(before) else 4
    now = Configuration(gpu_model=H100, gpu_count=held)
    values = {
        "now": now,
        "proposed": replace(now, gpu_count=proposed) if isinstance(proposed, int) else proposed,
        "delay_hours": None,
        "savings": PROMISED,
    }
    catalogue = GpuCatalogue(
        tuple(
            replace(model, idle_watts_low=low, idle_watts=middle, idle_watts_high=high)
            for model in load_gpu_catalogue()
        )
    )
    return compare(
        before,
        after,
        recommendation=make_recommendation(**(values | changes)),
        slots=slots,
        is_over=is_over,
        split_kwh=split,
        catalogue=catalogue,
        settings=replace(
            Settings(),
            planning=PlanningSettings(slot_minutes=minutes, horizon_slots=24 * 60 // minutes),
            energy=EnergySettings(pue=1.0),
        ),
    )


@pytest.fixture(autouse=True)
def _sure_overhead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PUE that is known."""
    monkeypatch.setattr(verification, "PUE_UNCERTAINTY", 0.0)


PROMISED = Savings(
    horizon_hours=24,
    gpu_hours=make_range(48, "GPU-h"),
    energy_kwh=make_range(24, "kWh"),
    emissions_kgco2e=None,
    cost=None,
)
DAY = day_of([1.0] * 24, boards=4)


def test_a_freed_board_stays_powered() -> None:
    """Two hours of the same work: 4 GPU-hours, and no energy beyond what free boards draw."""
    found = compared(DAY, history([1.0] * 2, boards=2))
    assert found.realised_gpu_hours.central == pytest.approx(4)
    assert found.predicted_gpu_hours.central == pytest.approx(4)
    assert found.realised_energy_kwh.central == pytest.approx(0, abs=1e-9)
    assert found.throughput_ratio == pytest.approx(1)
    assert found.realised_emissions_kgco2e.unit == "kgCO2e"


@pytest.mark.parametrize("minutes", [5, 15, 30, 60])
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_a_change_of_demand_is_no_saving(minutes: int, data: st.DataObject) -> None:
    """A service whose load rises and falls over the day, left as it is, saves nothing."""
    per_day = 24 * 60 // minutes
    low = data.draw(st.floats(0.2, 1.5))
    swing = data.draw(st.floats(0.1, 2.0))
    hours = 2 * np.pi * np.arange(per_day + 12) / per_day
    work = low + swing * (1 + np.sin(hours + data.draw(st.floats(0, 6.28)))) / 2
    before = day_of(work[:per_day], boards=4, minutes=minutes)
    after = history(work[per_day:], boards=4, minutes=minutes)
    found = compared(before, after, proposed=4, minutes=minutes)
    used = after["power_watts"].sum() * minutes / 60_000
    assert found.realised_gpu_hours.central == pytest.approx(0, abs=1e-9)
    assert found.realised_energy_kwh.central == pytest.approx(0, abs=0.01 * used)


@pytest.mark.parametrize("boards", [1, 2, 3])
@settings(max_examples=examples(40), deadline=None)
@given(factor=st.floats(0.3, 1.5), slope=st.floats(100, 600), resting=st.floats(85, 200))
def test_what_a_held_board_draws_beyond_a_free_one_is_saved(
    boards: int, factor: float, slope: float, resting: float
) -> None:
    """Whatever the demand does meanwhile; each board that is given up draws less from then on."""
    load = 1 + 0.4 * np.sin(np.arange(24))
    before = day_of(load, boards=4, resting=resting, slope=slope)
    after = history(load[:3] * factor, boards=boards, resting=resting, slope=slope)
    found = compared(before, after, proposed=boards)
    assert found.realised_gpu_hours.central == pytest.approx(3 * (4 - boards))
    truth = 3 * (4 - boards) * (resting - 80) / 1000
    assert found.realised_energy_kwh.central == pytest.approx(truth, abs=0.02)


def test_a_job_with_an_end_is_measured_by_its_work() -> None:
    """Half the boards at twice the time for the same work: nothing is saved of the boards."""
    before = day_of([3.6] * 24, boards=4)
    after = history([1.8] * 4, boards=2)
    found = compared(before, after, delay_hours=make_range(10, "h"))
    assert found.realised_gpu_hours.central == pytest.approx(4 * 2 - 2 * 4)
    assert found.realised_energy_kwh.central == pytest.approx(0, abs=1e-9)


def test_boards_of_another_model_are_none_of_this_one() -> None:
    """As in what was promised: H100 hours are freed; the work is counted in H100s."""
    model = load_gpu_catalogue().get("A100-SXM4-80GB")
    speed = model.relative_speed / load_gpu_catalogue().get(H100).relative_speed
    after = history([1.0 / speed] * 2, boards=4)
    proposed = Configuration(gpu_model=model.name, gpu_count=4)
    found = compare_to(proposed, after)
    assert found.realised_gpu_hours.central == pytest.approx(8)
    assert found.throughput_ratio == pytest.approx(1)
    energy = found.realised_energy_kwh
    assert energy.low < energy.central < energy.high


def test_a_lower_minimum_is_measured_by_the_replicas_that_went() -> None:
    """Hour by hour against the day before: 5 boards held by night then, 2 of them since."""
    before = day_of([1.0] * 24, boards=5)
    found = compared(before, history([1.0] * 6, boards=2), proposed=4)
    assert found.realised_gpu_hours.central == pytest.approx(3 * 6)
    assert found.throughput_ratio == pytest.approx(1)
    unmoved = compared(before, history([1.0] * 6, boards=5), proposed=4)
    assert unmoved.realised_gpu_hours.central == pytest.approx(0)


def compare_to(proposed: Configuration, after: pd.DataFrame):  # type: ignore[no-untyped-def]
    """What is measured of a change from 4 H100."""
    return compared(DAY, after, proposed)


def test_a_job_that_was_stopped_would_have_stood_idle_on() -> None:
    """It worked until noon and stood idle since: what it drew last counts, not the day's mean."""
    before = day_of([3.0] * 12 + [0.0] * 12, boards=4, resting=100.0)
    found = compared(before, history([], boards=0), proposed=0, slots=3)
    assert found.realised_gpu_hours.central == pytest.approx(12)
    assert found.realised_energy_kwh.central == pytest.approx(3 * 4 * 0.020)
    assert compared(before, history([], boards=0), proposed=0, slots=3, is_over=False).reasons


def test_one_that_was_expected_to_end_soon_saves_the_less() -> None:
    """Of twelve GPU-hours what it was expected to stay for; the range reaches to all of them."""
    before = day_of([0.0] * 24, boards=4, resting=100.0)
    soon = replace(PROMISED, horizon_hours=6.0)
    found = compared(before, history([], boards=0), proposed=0, slots=3, savings=soon)
    whole = compared(before, history([], boards=0), proposed=0, slots=3)
    hours, kwh = found.realised_gpu_hours, found.realised_energy_kwh
    assert hours.low < hours.central < hours.high == pytest.approx(12)
    assert hours.central == pytest.approx(9.5, abs=0.1)
    share = hours.central / whole.realised_gpu_hours.central
    assert kwh.central == pytest.approx(share * whole.realised_energy_kwh.central)


def test_what_an_idle_board_drew_tells_what_it_draws_free() -> None:
    """Thought to draw 60-120 W free, it drew 75 W held and idle: stopping saves some of that."""
    before = day_of([0.0] * 24, boards=4, resting=75.0)
    unsure = {"free_watts": (60.0, 80.0, 120.0)}
    found = compared(before, history([], boards=0), proposed=0, slots=3, **unsure)
    assert 0 < found.realised_energy_kwh.central < 0.2 * 3 * 4 * 0.075
    assert found.realised_energy_kwh.low > -0.05 * 3 * 4 * 0.075


@pytest.mark.parametrize(
    ("before", "after", "slots", "word"),
    [
        (DAY.iloc[:0], history([1.0] * 2, boards=2), 2, "no history"),
        (DAY, history([], boards=2), 4, "only 0 %"),
        (DAY, history([1.0], boards=2), 4, "only 25 %"),
        (DAY.iloc[:1], history([1.0] * 2, boards=2), 2, "of the time before the change"),
    ],
)
def test_what_cannot_be_measured_stays_unknown(
    before: pd.DataFrame, after: pd.DataFrame, slots: int, word: str
) -> None:
    """None with a reason, never 0."""
    found = compared(before, after, slots=slots)
    assert found.realised_gpu_hours is None
    assert word in "; ".join(found.reasons)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"power": float("nan")}, "power was not reported all the time"),
        ({"shared_with": "team/other"}, "readings mirror all holders"),
        ({"gpu_model": "H999"}, "a free board of its GPU model"),
        ({"mig_profile": "3g.40gb"}, "power was not reported"),
    ],
)
def test_energy_that_cannot_be_told_is_unknown(changes: dict[str, Any], word: str) -> None:
    """GPU-hours are known all the same."""
    after = history([1.0] * 2, boards=2)
    after.loc[0, "power_watts"] = changes.pop("power", 500.0)
    if "mig_profile" in changes:
        after["power_watts"] = float("nan")
    proposed = replace(Configuration(gpu_model=H100, gpu_count=2), **changes)
    found = compare_to(proposed, after)
    assert found.realised_energy_kwh is None
    assert word in "; ".join(found.reasons)
    assert found.realised_gpu_hours is not None


def test_a_slice_counts_as_its_part_of_a_board_and_of_its_energy() -> None:
    """Of a board cut by MIG the readings are of the whole; the split says what is the job's."""
    proposed = Configuration(gpu_model=H100, gpu_count=1, mig_profile="3g.40gb")
    model = load_gpu_catalogue().get(H100)
    profile = model.mig_profile("3g.40gb")
    share = 0.5  # four of eight memory slices
    before = day_of([0.3] * 24, boards=1)
    after = history([0.3 / profile.compute_fraction] * 2, boards=1)
    split = Range(low=0.3, central=0.35, high=0.4, unit="kWh")
    found = compared(before, after, proposed, split_kwh=split)
    assert found.realised_gpu_hours.central == pytest.approx(2 * (1 - share))
    whole = 2 * (80 + 400 * 0.3) / 1000
    free = 2 * 80 * (1 - share) / 1000
    assert found.realised_energy_kwh.central == pytest.approx(whole - free - 0.35)
    assert found.realised_energy_kwh.high - found.realised_energy_kwh.central >= 0.05


@pytest.fixture
def bench(store_url: str, tmp_path: Path) -> Iterator[Bench]:
    """A day of a job on four boards at a quarter of their power to work, and a change to two."""
    with open_store(store_url) as store:
        yield applied_bench(store, tmp_path)


def run_on(bench: Bench, *, utilization: float, hours: int = 3) -> datetime:
    """Let the job run on two boards, and the worker see it."""
    end = NOW + timedelta(hours=hours)
    samples = make_samples(gpus=2, minutes=hours * 60, end=end, utilization_ratio=utilization)
    job = make_job(gpu_count=2, last_seen_at=end)
    bench.store.keep(make_collected(samples, (job,)))
    bench.clock.at = end
    bench.work(visits=4)
    return end


def test_a_change_that_keeps_its_promise_is_verified(bench: Bench) -> None:
    """The same work on two boards: verified, in the ledger with both sides."""
    end = run_on(bench, utilization=0.5)
    assert bench.state == "verified"
    rows = ledger(bench.store.reader, now=end)
    assert [row.state for row in rows] == ["verified"]
    total = total_gpu_hours(rows)
    assert total.realised is not None
    assert total.predicted is not None
    assert total.realised.central == pytest.approx(total.predicted.central, rel=0.05)
    days = saved_by_day(bench.store.reader, bench.settings, now=end)
    (one,) = summed(days, "finding")
    assert one.name == "TT-1"
    assert one.gpu_hours is not None
    assert one.gpu_hours.central == pytest.approx(
        2 * sum(day.measurement.hours for day in days), rel=0.05
    )
    assert total_energy(rows).unknown == 1


def test_lost_throughput_falls_short_and_rolls_back_when_opted_in(bench: Bench) -> None:
    """Two saturated boards do nine tenths of less: short of the promise, then undone."""
    bench.set(auto_rollback=True)
    end = NOW + timedelta(hours=3)
    samples = make_samples(gpus=2, minutes=180, end=end, utilization_ratio=0.95)
    half = samples["gpu_uuid"] == "GPU-0001"
    samples.loc[half, "job_id"] = ""
    bench.store.keep(make_collected(samples, (make_job(gpu_count=1, last_seen_at=end),)))
    bench.clock.at = end
    # One board at 0.95 against four at 0.25: 5 % less; a stricter promise makes it short.
    bench.set(throughput_loss_ratio=0.01)
    bench.work(visits=10)
    words = [row.event for row in bench.store.reader.journal(digest=bench.digest)]
    assert "fell-short" in words
    assert (bench.state, bench.job()["gpus"]) == ("rolled-back", "4")


def test_a_change_of_the_fleet_is_not_measured_by_all_jobs(bench: Bench) -> None:
    """A node that is powered down has no job: what all jobs did is not taken for its saving."""
    task = SimpleNamespace(
        settings=Settings,
        recommendation=replace(make_recommendation(), job_id=""),
        clock=bench.clock,
        store=bench.store,
    )
    progress = SimpleNamespace(concluded_at=NOW - timedelta(hours=6), since=None)
    verdict, found = measure(task, progress)
    assert verdict is Work.UNMEASURED
    assert found.realised_gpu_hours is None
    assert found.reasons == ("a change of the fleet has no job of its own to measure",)


def test_without_samples_the_measurement_waits_and_then_stays_unknown(bench: Bench) -> None:
    """Nothing is guessed: a day later it is put down as not measured."""
    bench.clock.at = NOW + timedelta(hours=3)
    bench.work(visits=3)
    assert bench.state == "applied"
    assert "no samples" in bench.held
    bench.clock.forward(hours=30)
    bench.work(visits=3)
    rows = ledger(bench.store.reader, now=bench.clock())
    assert bench.state == "applied"
    assert rows[0].measurement is not None
    assert rows[0].measurement.realised_gpu_hours is None
    assert total_gpu_hours(rows).unknown == 1
