"""Named planning problems, small enough to think through."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
from factories import make_job

from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.columns import HISTORY, check_frame
from data.facts.fleet import BoardShare, Cluster, Gpu, Node
from data.facts.jobs import Job
from data.records.forecasts import (
    DemandForecast,
    ForecastSkipped,
    GroupForecast,
    QuantilePath,
    Quantity,
)
from data.records.plans import NodePlan
from data.settings.all_settings import PlanningSettings
from data.settings.energy import EnergySettings
from data.settings.fleet import NodeSettings
from planner.advise import Advice, advise
from planner.plan import build_plan
from planner.problem.planning_problem import FleetRules, PlanningProblem, make_problem

AS_OF = datetime(2026, 1, 5, 12, tzinfo=UTC)
H100, L40S, A100 = "H100-SXM5-80GB", "L40S-48GB", "A100-SXM4-80GB"
PLANNING = PlanningSettings(slot_minutes=60, horizon_slots=24)
SLOT_LENGTHS = [5, 15, 30, 60]
"""What users set `planning.slot_minutes` to; what holds for one holds for all."""
FREE_NODES = FleetRules(nodes=NodeSettings(base_watts_per_gpu=0.0))
"""Nodes cost nothing, so that arithmetic with jobs alone is whole."""


def day_in_slots(slot_minutes: int, **changes: Any) -> PlanningSettings:
    """A day's horizon in slots of that length."""
    slots = 24 * 60 // slot_minutes
    return PlanningSettings(slot_minutes=slot_minutes, horizon_slots=slots, **changes)


def boards(model: str, count: int, *, cut: bool = False) -> list[Gpu]:
    """Boards of one model; with `cut` the first of them shows every MIG profile of its model."""
    known = load_gpu_catalogue().find(model)
    profiles = [profile.name for profile in known.mig_profiles] if cut and known else []
    return [
        Gpu(
            gpu_uuid=f"GPU-{model}-{index}",
            mig_instance=profile,
            mig_profile=profile,
            node="n",
            gpu_model=model,
            memory_total_mib=80_000.0,
            job_id="",
            last_seen_at=AS_OF,
        )
        for index, profile in [
            *((index, "") for index in range(count)),
            *((0, p) for p in profiles),
        ]
    ]


def history_of(
    job: Job,
    level: float,
    memory_mib: float,
    power: float | None,
    slot: timedelta = timedelta(hours=1),
) -> pd.DataFrame:
    """Two days of history in slots at one level (share of the job's GPUs)."""
    slots = timedelta(days=2) // slot
    times = pd.date_range(end=AS_OF - slot, periods=slots, freq=slot).as_unit("us")
    frame = pd.DataFrame(
        {
            "job_id": job.job_id,
            "slot_start": times,
            "effective_gpus": level * job.gpu_count,
            "utilization_ratio": level,
            "utilization_max_ratio": level,
            "allocated_gpus": float(job.gpu_count),
            "memory_used_mib": memory_mib,
            "power_watts": np.nan if power is None else power,
            "sample_count": 60,
        }
    )
    return check_frame(frame, HISTORY)


def forecast_of(
    job: Job,
    demand: Sequence[float],
    memory_mib: float,
    power: float | None,
    slot: timedelta = timedelta(hours=1),
) -> DemandForecast:
    """A forecast without spread: `demand` in GPUs per slot."""

    def path(quantity: Quantity, values: Sequence[float]) -> QuantilePath:
        row = tuple(float(value) for value in values)
        return QuantilePath(
            quantity=quantity, model="seasonal-naive", q10=row, q50=row, q90=row, backtest=None
        )

    slots = len(demand)
    paths = [
        path(Quantity.EFFECTIVE_GPUS, demand),
        path(Quantity.MEMORY, [memory_mib] * slots),
    ]
    if power is not None:
        paths.append(path(Quantity.POWER, [power] * slots))
    return DemandForecast(
        job_id=job.job_id,
        slot_starts=tuple(AS_OF + slot * (1 + step) for step in range(slots)),
        paths=tuple(paths),
        missing=() if power is not None else ((Quantity.POWER, "never reported"),),
        samples=48 * 60,
        history_slots=48,
        known_slots=48,
    )


def case(
    *jobs: tuple[Job, float, float, float | None],
    gpus: Sequence[Gpu],
    planning: PlanningSettings = PLANNING,
    demand: dict[str, Sequence[float]] | None = None,
    nodes: Sequence[Node] = (),
    kept_on: frozenset[str] = frozenset(),
    occupied: Mapping[tuple[str, str], int] | None = None,
    history: pd.DataFrame | None = None,
    shares: Mapping[str, BoardShare] | None = None,
    **changes: Any,
) -> PlanningProblem:
    """A problem of jobs as (job, level 0..1, memory MiB, power W or None).

    `history` stands for two days at these levels. All jobs write checkpoints unless told.
    """
    wanted = demand or {}
    planning = replace(planning, checkpointed_jobs=planning.checkpointed_jobs or "*")
    slot = timedelta(minutes=planning.slot_minutes)
    forecasts: list[DemandForecast | ForecastSkipped] = [
        forecast_of(
            job,
            wanted.get(job.job_id, [level * job.gpu_count] * planning.horizon_slots),
            memory,
            power,
            slot,
        )
        for job, level, memory, power in jobs
    ]
    values: dict[str, Any] = {
        "catalogue": load_gpu_catalogue(),
        "carbon": load_carbon_table().get("DEU"),
        "planning": planning,
        "energy": EnergySettings(region="DEU"),
        "as_of": AS_OF,
        "signals": {job.job_id: "sm_active" for job, *_rest in jobs},
        "rules": FREE_NODES,
    }
    return make_problem(
        Cluster(
            as_of=AS_OF,
            gpus=tuple(gpus),
            nodes=tuple(nodes),
            kept_on=kept_on,
            occupied=occupied or {},
            shares=shares or {},
        ),
        [job for job, *_rest in jobs],
        pd.concat([history_of(*job, slot) for job in jobs]) if history is None else history,
        changes.pop("forecasts", forecasts),
        **(values | changes),
    )


def two_gpus_three_jobs() -> PlanningProblem:
    """Three one-GPU jobs that would all rather run on one of two cheaper boards."""
    return case(
        *((make_job(f"a/{name}"), 0.3, 10_000.0, 300.0) for name in "xyz"),
        gpus=[*boards(H100, 3), *boards(L40S, 2)],
        planning=PlanningSettings(slot_minutes=60, horizon_slots=4),
    )


def bursty_week() -> PlanningProblem:
    """Ten jobs with shifted days on a fleet with few cheap boards."""
    rng = np.random.default_rng(3)
    hours = np.arange(24)
    jobs, demand = [], {}
    for index in range(10):
        count = int(rng.choice([1, 2, 4]))
        job = make_job(f"a/{index}", gpu_count=count)
        day = 0.5 - 0.5 * np.cos(2 * np.pi * (hours - rng.integers(24)) / 24)
        jobs.append((job, 0.3, float(rng.integers(4, 30)) * 1000, 200.0 * count))
        demand[job.job_id] = list(count * rng.uniform(0.1, 0.9) * day)
    return case(*jobs, gpus=[*boards(H100, 30), *boards(L40S, 3)], demand=demand)


def path_costs(problem: PlanningProblem, path: np.ndarray) -> np.ndarray:
    """What the option numbers [T, J] cost per job [J], added up slot by slot."""
    costs = np.zeros(path.shape[1])
    for column in range(path.shape[1]):
        before = 0
        for slot, option in enumerate(path[:, column]):
            costs[column] += problem.slot_cost[slot, option, column]
            if option != before:
                costs[column] += problem.enter_cost[option, column]
            before = option
    return costs


def usage_of(problem: PlanningProblem, path: np.ndarray) -> np.ndarray:
    """The boards in use [T, G] of option numbers [T, J]."""
    used = np.zeros((len(path), len(problem.gpu_models)))
    for slot, row in enumerate(path):
        for column, option in enumerate(row):
            if problem.model_of[option, column] >= 0:
                used[slot, problem.model_of[option, column]] += problem.boards[option, column]
    return used


def advised(
    problem: PlanningProblem,
    *,
    past_runs: Mapping[str, Sequence[float]] | None = None,
    groups: Sequence[GroupForecast] = (),
    nodes: tuple[NodePlan, ...] = (),
    created_at: datetime = AS_OF,
    resting: Mapping[str, str] | None = None,
) -> Advice:
    """The advice of a plan of the problem."""
    plan = replace(build_plan(problem, budget_seconds=30, created_at=created_at), nodes=nodes)
    return advise(plan, problem, past_runs=past_runs, groups=groups, resting=resting)
