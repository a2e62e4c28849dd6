"""Jobs that may wait, drawn from a seed, and when the planner of a cycle lets them begin.

Each is a run of a recurring Slurm job that waits after a requeue: its earlier run told its power,
and ended runs of the same job how long it may take. The cycle before the hour in which it comes is
`problem_from`, `build_plan` and `advise`, as `dashboard.cycle.run_cycle` calls them; every pause
that is recommended is approved. Demand forecasts are flat, at what the earlier run did.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks._grid_series import HOUR, GridSeries, Values
from dashboard.cycle.make_problem import PlanBasis, problem_from
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.catalogue.grid_forecast import grid_outlook
from data.facts.columns import HISTORY, SAMPLES, check_frame, empty_frame
from data.facts.fleet import Cluster, Gpu
from data.facts.jobs import Job, JobState, Platform, SchedulerFacts, WorkloadKind
from data.records.actions import Action
from data.records.forecasts import DemandForecast, QuantilePath, Quantity
from data.records.recommendations import Range
from data.settings.all_settings import Settings
from data.store.facts.planning_view import PlanningView
from planner.advise import advise
from planner.plan import build_plan

MODEL = "H100-SXM5-80GB"
KINDS, RUNS = 12, 8
"""Recurring jobs of a zone, and ended runs that are known of each."""
PUE = 1.3
_BUSY, _MEMORY_MIB = 0.9, 60_000.0
_CYCLE = timedelta(minutes=1)
"""So long before the hour the cycle runs that decides on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnJob:
    """A run: when it comes, how long it takes (h, unknown then) and how long earlier runs took."""

    number: int
    kind: int
    came_at: datetime
    hours: float
    past_hours: tuple[float, ...]
    gpus: int
    watts: float

    @property
    def kwh_per_hour(self) -> float:
        """Site energy of an hour of it."""
        return self.watts / 1000 * PUE

    @property
    def work_share(self) -> float:
        """The share of its energy that idle boards would not draw: what waiting moves."""
        return 1 - load_gpu_catalogue().get(MODEL).idle_watts * self.gpus / self.watts

    def amount(self, start: int, values: Values) -> float:
        """Return the energy of a run from an hour on, times what each of its hours is worth."""
        whole, rest = divmod(self.hours, 1)
        end = start + int(whole)
        total = float(values[start:end].sum()) + (rest * float(values[end]) if rest else 0.0)
        return total * self.kwh_per_hour


def drawn_jobs(series: GridSeries, start: datetime, weeks: int, seed: int) -> list[DrawnJob]:
    """Return the jobs of some weeks: seven in ten come in working hours of the zone."""
    rng = np.random.default_rng([seed, *series.zone.encode()])
    mean_hours = np.clip(rng.lognormal(np.log(4.0), 0.6, KINDS), 1.0, 12.0)
    gpus = rng.choice([1, 2, 4, 8], KINDS)
    watts = rng.uniform(350, 650, KINDS) * gpus
    past = mean_hours[:, None] * rng.lognormal(0.0, 0.2, (KINDS, RUNS))
    jobs: list[DrawnJob] = []
    for day in range(7 * weeks):
        for _run in range(rng.poisson(5)):
            local = rng.integers(8, 19) if rng.random() < 0.7 else rng.integers(24)
            kind = int(rng.integers(KINDS))
            hour = int(local - series.ahead_of_utc) % 24
            jobs.append(
                DrawnJob(
                    number=len(jobs),
                    kind=kind,
                    came_at=start + timedelta(days=day, hours=hour),
                    hours=float(mean_hours[kind] * rng.lognormal(0.0, 0.2)),
                    past_hours=tuple(past[kind].tolist()),
                    gpus=int(gpus[kind]),
                    watts=float(watts[kind]),
                )
            )
    return jobs


def issue_file(series: GridSeries, now: datetime, folder: Path, column: str) -> Path:
    """Return the file of the newest issue, as a site would write it."""
    issued_at, values = series.known_at(now)
    path = folder / f"{series.zone}-{column}-{issued_at:%Y%m%d%H}.csv"
    if not path.exists():
        with path.open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(("issued_at", "time", column))
            for number, value in enumerate(values.tolist()):
                rows.writerow(
                    (issued_at.isoformat(), (issued_at + number * HOUR).isoformat(), value)
                )
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStart:
    """When a job is to begin, and what that promises to save, kgCO2e and money."""

    at: datetime
    kgco2e: Range | None
    money: Range | None


def planned_starts(jobs: Sequence[DrawnJob], settings: Settings) -> dict[int, PlannedStart]:
    """Return the starts of those jobs of one hour that are to wait, by number.

    Their cycle runs a minute before the hour in which they could begin.
    """
    hour = jobs[0].came_at
    now = hour - _CYCLE
    grid = grid_outlook(settings.energy, now)
    basis = PlanBasis(
        settings=settings,
        view=_view(jobs, now),
        forecasts=tuple(_forecast(job, hour, settings.planning.horizon_slots) for job in jobs),
        catalogue=load_gpu_catalogue(),
        carbon=load_carbon_table().get(settings.energy.region),
        models={},
        grid=grid,
    )
    problem = problem_from(basis)
    plan = build_plan(problem, budget_seconds=10, created_at=now)
    return {
        int(found.job_id.rpartition(":")[2]): PlannedStart(
            at=datetime.fromisoformat(dict(found.details)["begin_at"]),
            kgco2e=found.savings.emissions_kgco2e,
            money=found.savings.cost,
        )
        for found in advise(plan, problem).recommendations
        if found.action is Action.SHIFT_IN_TIME and found.starts_at is None
    }


def _view(jobs: Sequence[DrawnJob], now: datetime) -> PlanningView:
    waiting = [_job(job, now) for job in jobs]
    ended = [entry for job in jobs for entry in _ended(job, now)]
    boards = sum(job.gpus for job in jobs)
    return PlanningView(
        as_of=now,
        cluster=Cluster(as_of=now, gpus=tuple(_board(number, now) for number in range(boards))),
        jobs=tuple(waiting),
        known_jobs=(*waiting, *ended),
        history=check_frame(pd.concat([_history(job, now) for job in jobs]), HISTORY),
        groups=pd.DataFrame(),
        readings=empty_frame(SAMPLES),
        signals={job.job_id: "sm_active" for job in waiting},
    )


def _board(number: int, now: datetime) -> Gpu:
    return Gpu(
        gpu_uuid=f"GPU-{number}",
        mig_instance="",
        mig_profile="",
        node=f"node-{number // 8}",
        gpu_model=MODEL,
        memory_total_mib=81_559.0,
        job_id="",
        last_seen_at=now,
    )


def _job(job: DrawnJob, now: datetime, facts: SchedulerFacts | None = None, run: int = -1) -> Job:
    waits = SchedulerFacts(
        state=JobState.PENDING,
        submitted_at=now - HOUR / 2,
        extra=(("requeue", "yes"), ("restarts", "1")),
    )
    number = job.number if run < 0 else f"{job.number}.{run}"
    return Job(
        job_id=f"slurm:{number}",
        name=f"train-{'abcdefghijkl'[job.kind]}-{number}",
        namespace="gpu",
        owner="team",
        platform=Platform.SLURM,
        kind=WorkloadKind.TRAINING,
        gpu_model=MODEL,
        gpu_count=job.gpus,
        mig_profile="",
        gpu_memory_mib=81_559.0,
        first_seen_at=now - timedelta(days=3),
        last_seen_at=now,
        source="slurm",
        scheduler=facts or waits,
    )


def _ended(job: DrawnJob, now: datetime) -> list[Job]:
    """Return the ended runs of the same recurring job."""
    found = []
    for run, hours in enumerate(job.past_hours):
        end = now - timedelta(days=run + 2)
        facts = SchedulerFacts(
            state=JobState.FINISHED,
            submitted_at=end - hours * HOUR,
            started_at=end - hours * HOUR,
            ended_at=end,
        )
        found.append(_job(job, now, facts, run))
    return found


def _history(job: DrawnJob, now: datetime) -> pd.DataFrame:
    """Return what its run before the requeue did."""
    times = pd.date_range(end=now.replace(minute=0), periods=24, freq="1h").as_unit("us")
    return pd.DataFrame(
        {
            "job_id": f"slurm:{job.number}",
            "slot_start": times,
            "effective_gpus": _BUSY * job.gpus,
            "utilization_ratio": _BUSY,
            "utilization_max_ratio": _BUSY,
            "allocated_gpus": float(job.gpus),
            "memory_used_mib": _MEMORY_MIB,
            "power_watts": job.watts,
            "sample_count": 60,
        }
    )


def _forecast(job: DrawnJob, first: datetime, slots: int) -> DemandForecast:
    levels: Mapping[Quantity, float] = {
        Quantity.EFFECTIVE_GPUS: _BUSY * job.gpus,
        Quantity.MEMORY: _MEMORY_MIB,
        Quantity.POWER: job.watts,
    }
    return DemandForecast(
        job_id=f"slurm:{job.number}",
        slot_starts=tuple(first + number * HOUR for number in range(slots)),
        paths=tuple(
            QuantilePath(
                quantity=quantity,
                model="seasonal-naive",
                q10=(level,) * slots,
                q50=(level,) * slots,
                q90=(level,) * slots,
                backtest=None,
            )
            for quantity, level in levels.items()
        ),
        missing=(),
        samples=24 * 60,
        history_slots=24,
        known_slots=24,
    )
