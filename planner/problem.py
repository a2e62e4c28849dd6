"""The planning problem as a value: slots, capacities, and per job its options and their costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pandas as pd

from data.catalogue.carbon_table import GridCarbon
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.records.cluster import Cluster
from data.records.forecasts import DemandForecast, ForecastSkipped
from data.records.jobs import Job
from data.settings import EnergySettings, PlanningSettings
from planner.configurations import Option, keep_reason, options_for
from planner.cost import change_cost, slot_costs
from planner.job_demand import JobDemand, job_demand

Values = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
FORBIDDEN = 1e9
"""Cost of a slot in an option that a job does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProblem:
    """One job: its options (the present one first) and, when it can only be kept, why."""

    demand: JobDemand
    options: tuple[Option, ...]
    keep_reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningProblem:
    """Costs in `energy.currency`. Arrays: T slots, C options, J jobs, G GPU models.

    slot_cost [T, C, J]; enter_cost, boards [C, J]; model_of [C, J] (-1: holds nothing);
    capacity [G] in boards. A change from a to b costs enter_cost[b].
    """

    as_of: datetime
    slot_starts: tuple[datetime, ...]
    planning: PlanningSettings
    energy: EnergySettings
    catalogue: GpuCatalogue
    carbon: GridCarbon
    gpu_models: tuple[str, ...]
    capacity: Values
    jobs: tuple[JobProblem, ...]
    ended: Mapping[str, str]
    signals: Mapping[str, str]
    slot_cost: Values
    enter_cost: Values
    boards: Values
    model_of: Indices


_SHARED = (
    "it shares its GPUs with other jobs: their readings mirror all holders, not this job "
    "(facts of NVML; see docs/energy.md)"
)


def make_problem(
    cluster: Cluster,
    jobs: Sequence[Job],
    history: pd.DataFrame,
    forecasts: Sequence[DemandForecast | ForecastSkipped],
    *,
    catalogue: GpuCatalogue,
    carbon: GridCarbon,
    planning: PlanningSettings,
    energy: EnergySettings,
    as_of: datetime,
    signals: Mapping[str, str] | None = None,
) -> PlanningProblem:
    """Give the problem of the slots after `as_of`. Jobs that ended are not part of it.

    `history` has the columns HISTORY; `forecasts` has one entry per job. Capacity is the boards
    of each model, at least what the jobs hold now.
    """
    by_job = {str(job_id): rows for job_id, rows in history.groupby("job_id", sort=False)}
    forecast_of = {one.job_id: one for one in forecasts}
    boards_of = cluster.boards_by_model()
    present_models = tuple(name for name in boards_of if catalogue.find(name))
    running, ended = [], {}
    for job in jobs:
        forecast = forecast_of[job.job_id]
        if isinstance(forecast, ForecastSkipped) and forecast.reason.startswith("ended"):
            ended[job.job_id] = forecast.reason
            continue
        demand = job_demand(job, by_job.get(job.job_id, history.iloc[:0]), forecast, planning)
        shared = (signals or {}).get(job.job_id) == "shared"
        running.append(
            JobProblem(
                demand=demand,
                options=options_for(demand, present_models, catalogue=catalogue, planning=planning),
                keep_reason=_SHARED if shared else keep_reason(demand, catalogue, planning),
            )
        )
    gpu_models = tuple(sorted({*boards_of, *(one.demand.job.gpu_model for one in running)}))
    arrays = _arrays(running, gpu_models, catalogue=catalogue, planning=planning, energy=energy)
    slot_cost, enter_cost, boards, model_of = arrays
    held = np.bincount(model_of[0], weights=boards[0], minlength=len(gpu_models))
    capacity = np.maximum([float(boards_of.get(name, 0)) for name in gpu_models], held)
    slot_seconds = planning.slot_minutes * 60
    first = (int(as_of.timestamp()) // slot_seconds + 1) * slot_seconds
    return PlanningProblem(
        as_of=as_of,
        slot_starts=tuple(
            datetime.fromtimestamp(first + step * slot_seconds, tz=UTC)
            for step in range(planning.horizon_slots)
        ),
        planning=planning,
        energy=energy,
        catalogue=catalogue,
        carbon=carbon,
        gpu_models=gpu_models,
        capacity=capacity,
        jobs=tuple(running),
        ended=ended,
        signals=dict(signals or {}),
        slot_cost=slot_cost,
        enter_cost=enter_cost,
        boards=boards,
        model_of=model_of,
    )


def _arrays(
    jobs: Sequence[JobProblem],
    gpu_models: Sequence[str],
    *,
    catalogue: GpuCatalogue,
    planning: PlanningSettings,
    energy: EnergySettings,
) -> tuple[Values, Values, Values, Indices]:
    widest = max((len(one.options) for one in jobs), default=1)
    shape = (widest, len(jobs))
    slot_cost = np.full((planning.horizon_slots, *shape), FORBIDDEN)
    enter_cost, boards = np.zeros(shape), np.zeros(shape)
    model_of = np.full(shape, -1, dtype=np.int64)
    index = {name: position for position, name in enumerate(gpu_models)}
    for column, one in enumerate(jobs):
        for row, option in enumerate(one.options):
            slot_cost[:, row, column] = slot_costs(
                one.demand,
                one.options[0],
                option,
                catalogue=catalogue,
                planning=planning,
                energy=energy,
            )
            enter_cost[row, column] = change_cost(option, catalogue)
            boards[row, column] = option.boards
            if option.boards:
                model_of[row, column] = index[option.configuration.gpu_model]
    return slot_cost, enter_cost, boards, model_of
