"""Predicted against realised: measured per unit of work, unknown where it cannot be known."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from beds.apply_bench import JOB, Bench
from beds.file_cluster import FileCluster
from factories import (
    NOW,
    make_collected,
    make_job,
    make_plan,
    make_range,
    make_recommendation,
    make_samples,
)

from dashboard.apply.verification import Stretch, compare, measure
from dashboard.savings import ledger, total_energy, total_gpu_hours
from data.records.commands import Work
from data.records.decisions import Savings
from data.settings import EnergySettings, Settings
from data.store import open_store

PROMISED = Savings(
    horizon_hours=24,
    gpu_hours=make_range(48, "GPU-h"),
    energy_kwh=make_range(24, "kWh"),
    emissions_kgco2e=None,
    cost=None,
)
DAY = Stretch(hours=24, gpu_hours=96, work=24, energy_kwh=48, coverage_ratio=1)


def compared(before: Stretch, after: Stretch):  # type: ignore[no-untyped-def]
    """A comparison without site overhead."""
    energy = EnergySettings(pue=1.0, pue_uncertainty=0.0)
    return compare(before, after, predicted=PROMISED, least_coverage=0.5, energy=energy)


def test_the_same_work_on_half_the_gpus_saves_the_other_half() -> None:
    """Two hours: 8 GPU-hours at the old rate, 4 used; the promise is scaled to two hours."""
    after = Stretch(hours=2, gpu_hours=4, work=2, energy_kwh=2, coverage_ratio=1)
    found = compared(DAY, after)
    assert found.realised_gpu_hours.central == pytest.approx(4)
    assert found.predicted_gpu_hours.central == pytest.approx(4)
    assert found.realised_energy_kwh.central == pytest.approx(2)
    assert found.throughput_ratio == pytest.approx(1)
    assert found.realised_emissions_kgco2e.unit == "kgCO2e"


def test_a_change_of_load_is_normalised_and_shown_in_the_range() -> None:
    """Twice the work: it would have cost twice as much; by time alone it is less."""
    after = Stretch(hours=2, gpu_hours=4, work=4, energy_kwh=4, coverage_ratio=1)
    found = compared(DAY, after).realised_energy_kwh
    assert found.central == pytest.approx(48 / 24 * 4 - 4)
    assert found.low == pytest.approx(48 / 24 * 2 - 4)


def test_idle_jobs_are_compared_by_time_with_the_reason() -> None:
    """There is no work to measure by."""
    idle = replace(DAY, work=0.0)
    gone = Stretch(hours=2, gpu_hours=0, work=0, energy_kwh=0, coverage_ratio=1)
    found = compared(idle, gone)
    assert found.realised_gpu_hours.central == pytest.approx(8)
    assert "by time" in found.reasons[0]


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        (replace(DAY, hours=0.0), replace(DAY, hours=2), "no history"),
        (DAY, Stretch(hours=0, gpu_hours=0, work=0, energy_kwh=None, coverage_ratio=0), "0 %"),
    ],
)
def test_what_cannot_be_measured_stays_unknown(before: Stretch, after: Stretch, word: str) -> None:
    """None with a reason, never 0."""
    found = compared(before, after)
    assert found.realised_gpu_hours is None
    assert word in "; ".join(found.reasons)


def test_power_that_was_not_reported_leaves_energy_unknown() -> None:
    """GPU-hours are known all the same."""
    after = Stretch(hours=2, gpu_hours=4, work=2, energy_kwh=None, coverage_ratio=1)
    found = compared(DAY, after)
    assert found.realised_energy_kwh is None
    assert found.realised_gpu_hours is not None


@pytest.fixture
def bench(store_url: str, tmp_path: Path) -> Iterator[Bench]:
    """A day of a job on four boards at a quarter of their power to work, and a change to two."""
    cluster = FileCluster(tmp_path / "cluster.json")
    cluster.create({JOB: {"gpus": "4", "model": "H100", "note": ""}})
    with open_store(store_url) as store:
        store.keep(
            make_collected(
                make_samples(gpus=4, minutes=24 * 60, utilization_ratio=0.25),
                (make_job(gpu_count=4),),
            )
        )
        store.keep_cycle(
            cycle_id="c1",
            started_at=NOW,
            finished_at=NOW,
            reports=(),
            forecasts=(),
            plan=make_plan(),
            recommendations=(make_recommendation(),),
        )
        made = Bench(store, cluster, tmp_path)
        made.set(max_namespace_share_ratio=1.0)
        made.clock.at = NOW
        made.approve()
        made.ask()
        made.work(visits=3)
        assert made.state == "applied"
        yield made


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
