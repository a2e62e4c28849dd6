"""Workloads: which jobs are one, what they held, and the week and the month that follow."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from factories import make_job
from forecasting_cases import HOURLY, series

from data.facts.columns import GROUP_HISTORY, check_frame
from data.facts.jobs import Job, JobState, SchedulerFacts, WorkloadKind
from data.records.forecasts import GroupKind, Quantity, WorkloadForecast
from forecasting.groups.workloads import (
    MAX_WORKLOADS,
    alive,
    forecast_workloads,
    since_first,
    totals_of,
    workload_history,
    workload_name,
    workloads_of,
)
from forecasting.series.group_series import GroupSeries

START = datetime(2026, 1, 1, tzinfo=UTC)
DAYS = 42
AS_OF = START + timedelta(days=DAYS) - timedelta(minutes=1)


def run(name: str, last_seen_at: datetime = AS_OF, **changes: object) -> Job:
    """A training run of a team."""
    given = {"kind": WorkloadKind.TRAINING, "owner": "ann", "last_seen_at": last_seen_at}
    return make_job(f"team/{name}", **(given | changes))


def nights(count: int = 12) -> list[Job]:
    """Nightly runs of one job, the newest a day ago."""
    return [
        run(f"train-bert-202601{day:02d}", AS_OF - timedelta(days=count - day))
        for day in range(count)
    ]


def fleet(boards: float = 8.0, days: int = DAYS) -> pd.DataFrame:
    """The fleet's history: so many boards seen, none held."""
    hours = [START + timedelta(hours=hour) for hour in range(24 * days)]
    frame = pd.DataFrame(
        {"kind": "fleet", "name": "fleet", "slot_start": hours, "boards": boards,
         "allocated_gpus": 0.0, "effective_gpus": 0.0, "power_watts": 0.0}
    )  # fmt: skip
    frame["slot_start"] = frame["slot_start"].astype("datetime64[us, UTC]")
    return check_frame(frame, GROUP_HISTORY)


def holdings(rows: list[tuple[str, int, float]]) -> pd.DataFrame:
    """Rows of (job id, hour, GPUs); half of them in use, 400 W each."""
    frame = pd.DataFrame(rows, columns=["job_id", "hour", "allocated_gpus"])
    frame["slot_start"] = pd.Timestamp(START) + pd.to_timedelta(frame.pop("hour"), unit="h")
    frame["slot_start"] = frame["slot_start"].astype("datetime64[us, UTC]")
    return frame.assign(
        effective_gpus=frame["allocated_gpus"] / 2, power_watts=400 * frame["allocated_gpus"]
    )


def test_runs_of_a_job_are_one_workload_and_a_service_is_one_alone() -> None:
    """Five runs make a job recurring; a service counts from its first day."""
    service = make_job("search/ranker", last_seen_at=AS_OF)
    found = workloads_of([*nights(5), run("once-1"), service], AS_OF)
    assert [(entry.name, entry.is_service, len(entry.jobs)) for entry in found] == [
        ("search/ranker", True, 1), ("team/ann/train-bert", False, 5),
    ]  # fmt: skip
    assert found[1].jobs[-1].job_id == "team/train-bert-20260104"


def test_who_runs_it_is_part_of_its_name_and_its_gpu_model_is_not() -> None:
    """Runs of two people, or in two clusters, are two workloads; a move to an L40S changes none."""
    job = run("train-1", scheduler=SchedulerFacts(user="bob"))
    assert workload_name(job) == "team/ann/bob/train"
    assert workload_name(replace(job, gpu_model="L40S")) == workload_name(job)
    other = replace(job, scheduler=SchedulerFacts(user="eve"))
    assert workload_name(other) != workload_name(job)
    assert workload_name(replace(job, job_id="team/train-1@west")) == "team/ann/bob/train@west"
    hostile = replace(job, name="train@west")
    assert "@" not in workload_name(hostile)


@pytest.mark.parametrize(
    ("jobs", "hours_later", "is_there"),
    [
        ([make_job("search/ranker", last_seen_at=AS_OF)], 23, True),
        ([make_job("search/ranker", last_seen_at=AS_OF)], 25, False),
        (nights(6), 24 * 6 - 1, True),
        (nights(6), 24 * 6 + 1, False),
        (nights(4), 0, False),
    ],
)
def test_what_is_gone_is_not_forecast(jobs: list[Job], hours_later: int, is_there: bool) -> None:
    """A service is gone after a day without a sample, a recurring job after a week."""
    found = workloads_of(jobs, AS_OF + timedelta(hours=hours_later))
    assert bool(found) is is_there


def test_runs_without_boards_make_no_recurring_job() -> None:
    """Of runs that are left out the rest counts as if they had never been."""
    runs = {"team/ann/train-bert": nights(6)}
    assert alive(runs, AS_OF) == workloads_of(nights(6), AS_OF)
    fewer = {name: jobs[2:] for name, jobs in runs.items()}
    assert alive(fewer, AS_OF) == alive({"team/ann/train-bert": []}, AS_OF) == ()


def forecast(rows: list[tuple[str, int, float]], jobs: list[Job]) -> tuple[WorkloadForecast, ...]:
    """What is forecast of these jobs and what they held."""
    workloads = workloads_of(jobs, AS_OF)
    return forecast_workloads(workloads, holdings(rows), fleet(), as_of=AS_OF, settings=HOURLY)


def test_a_nightly_job_is_foreseen_for_its_nights() -> None:
    """Four GPUs from 02:00 to 05:00 every night, each night another run: 7 x 12 GPU-hours."""
    jobs = [run(f"train-{day}", AS_OF - timedelta(days=DAYS - 1 - day)) for day in range(DAYS)]
    rows = [(jobs[day].job_id, 24 * day + hour, 4.0) for day in range(DAYS) for hour in (2, 3, 4)]
    (found,) = forecast(rows, jobs)
    assert (found.name, found.runs, found.is_service) == ("team/ann/train", DAYS, False)
    week, month = found.horizons
    assert (len(week.slot_starts), len(month.slot_starts)) == (168, 30)
    assert {week.kind, month.kind} == {GroupKind.WORKLOAD}
    path = week.path(Quantity.ALLOCATED_GPUS)
    assert path is not None
    middle = np.array(path.q50).reshape(7, 24)
    assert np.abs(middle[:, 2:5] - 4).max() < 0.5
    assert middle[:, 8:].max() < 0.5
    for total in found.totals:
        held, energy = (dict(total.sums)[key] for key in (Quantity.ALLOCATED_GPUS, Quantity.POWER))
        assert held.central == pytest.approx(12 * total.days)
        assert held.low == pytest.approx(held.high)
        assert energy.central == pytest.approx(12 * total.days * 0.4)
        assert dict(total.before)[Quantity.ALLOCATED_GPUS] == pytest.approx(12 * total.days)


def test_runs_side_by_side_are_added_up() -> None:
    """Two runs of one job in the same hour hold what both hold, and nothing of others."""
    jobs = [*nights(5), run("other-1")]
    rows = [(jobs[0].job_id, 5, 2.0), (jobs[1].job_id, 5, 3.0), ("team/other-1", 5, 8.0)]
    history = workload_history(workloads_of(jobs, AS_OF), holdings(rows), fleet())
    mine = history[history["kind"] == "workload"]
    assert list(mine["allocated_gpus"]) == [5.0]
    assert list(mine["boards"]) == [8.0]


def test_use_that_nobody_reported_stays_unknown() -> None:
    """Boards held without a utilization are held, and their use is no zero."""
    jobs = nights(5)
    rows = holdings([(jobs[0].job_id, 5, 2.0)]).assign(effective_gpus=np.nan)
    history = workload_history(workloads_of(jobs, AS_OF), rows, fleet())
    assert history[history["kind"] == "workload"]["effective_gpus"].isna().all()


def test_a_new_service_has_no_past_of_zeros() -> None:
    """One of ten days that holds two boards: what came before it says nothing of its spread."""
    service = make_job("search/ranker", last_seen_at=AS_OF)
    rows = [(service.job_id, hour, 2.0) for hour in range(24 * (DAYS - 10), 24 * DAYS)]
    (found,) = forecast(rows, [service])
    assert found.known_days == 10
    week, month = found.totals
    held = dict(week.sums)[Quantity.ALLOCATED_GPUS]
    assert (held.low, held.high) == (pytest.approx(336.0), pytest.approx(336.0))
    assert dict(month.before) == {}


def test_fewer_than_seven_days_have_no_total() -> None:
    """A service of three days has a path and no sum."""
    service = make_job("search/ranker", last_seen_at=AS_OF)
    rows = [(service.job_id, hour, 2.0) for hour in range(24 * (DAYS - 3), 24 * DAYS)]
    (found,) = forecast(rows, [service])
    assert all(total.sums == () for total in found.totals)
    assert found.horizons[0].path(Quantity.ALLOCATED_GPUS) is not None


@pytest.mark.parametrize("lost", [12, 13])
def test_a_day_less_than_half_known_ends_the_past(lost: int) -> None:
    """Twelve unknown hours of a day are filled by its others; thirteen leave the day unknown."""
    values = np.full(24 * 20, 2.0)
    values[24 * 9 : 24 * 9 + lost] = np.nan
    (week, month) = totals_of([replace(series(values), quantity=Quantity.ALLOCATED_GPUS)])
    assert dict(week.sums)[Quantity.ALLOCATED_GPUS].central == pytest.approx(336.0)
    assert dict(month.before) == {}
    before = dict(week.before).get(Quantity.ALLOCATED_GPUS)
    assert before == pytest.approx(336.0)
    longer = np.concatenate([np.full(24 * 20, 2.0), values])
    (_week, month) = totals_of([replace(series(longer), quantity=Quantity.ALLOCATED_GPUS)])
    assert bool(month.before) is (lost == 12)


def test_days_are_counted_back_from_the_end() -> None:
    """Of 7 days and 5 hours the first five hours are left out."""
    values = np.concatenate([np.full(5, 100.0), np.full(24 * 7, 1.0)])
    (week, _month) = totals_of([replace(series(values), quantity=Quantity.ALLOCATED_GPUS)])
    assert dict(week.before)[Quantity.ALLOCATED_GPUS] == 168.0


def test_time_in_the_queue_is_censored_for_its_own_workload_alone() -> None:
    """A run that waits six hours may have held more, which another job's path does not mention."""
    waits = SchedulerFacts(
        state=JobState.RUNNING,
        submitted_at=AS_OF - timedelta(hours=30),
        started_at=AS_OF - timedelta(hours=20),
    )
    mine = [*nights(5), run("train-bert-20260131", scheduler=waits)]
    service = make_job("search/ranker", last_seen_at=AS_OF)
    rows = [(mine[-1].job_id, 24 * DAYS - 1, 4.0)]
    rows += [(mine[0].job_id, 24 * (DAYS - 9), 4.0)]
    rows += [(service.job_id, hour, 2.0) for hour in range(24 * DAYS)]
    found = {entry.name: entry for entry in forecast(rows, [*mine, service])}
    censored = {name: entry.horizons[0].paths[0].censored_slots for name, entry in found.items()}
    assert censored["search/ranker"] == 0
    assert censored["team/ann/train-bert"] == 9


def test_the_largest_are_forecast_where_there_are_too_many() -> None:
    """Of a hundred and one services the smallest has no forecast."""
    services = [
        make_job(f"ns{number}/service", last_seen_at=AS_OF) for number in range(MAX_WORKLOADS + 1)
    ]
    rows = [
        (service.job_id, 24 * DAYS - hour, 1.0 + number)
        for number, service in enumerate(services)
        for hour in (1, 2)
    ]
    found = {entry.name for entry in forecast(rows, services)}
    assert len(found) == MAX_WORKLOADS
    assert workload_name(services[0]) not in found


def test_a_workload_that_never_held_a_board_keeps_its_series() -> None:
    """There is no first slot to cut at."""
    group = GroupSeries(
        kind=GroupKind.WORKLOAD,
        name="a",
        series=(replace(series(np.zeros(30)), quantity=Quantity.ALLOCATED_GPUS),),
        known_slots=30,
    )
    assert since_first(group) is group


def test_models_are_those_of_the_last_week() -> None:
    """A service that moved three days ago ran on both models since; before, nothing counts."""
    service = make_job("search/ranker", last_seen_at=AS_OF)
    moved = make_job("search/ranker-2", last_seen_at=AS_OF, gpu_model="L40S-48GB")
    old = make_job("search/ranker-1", last_seen_at=AS_OF, gpu_model="A10-24GB")
    last = 24 * DAYS - 1
    rows = [(service.job_id, last - hour, 2.0) for hour in range(30)]
    rows += [(moved.job_id, last, 20.0), (old.job_id, last - 24 * 8, 5.0)]
    (found,) = forecast(rows, [service, moved, old])
    assert dict(found.gpu_models) == {service.gpu_model: 0.75, "L40S-48GB": 0.25}
    assert set(found.job_ids) == {service.job_id, moved.job_id, old.job_id}
