"""The planning problem as a value: slots, capacities, and per job its options and their costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt
import pandas as pd

from data.catalogue.carbon_table import GridCarbon
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.records.cluster import Cluster
from data.records.forecasts import DemandForecast, ForecastSkipped
from data.records.jobs import Job
from data.records.power_caps import CapLaw
from data.settings import EnergySettings, PlanningSettings
from planner.board_sharing import partners_of
from planner.configurations import Option, keep_reason, options_for
from planner.cost import change_cost, slot_costs
from planner.job_demand import JobDemand, job_demand
from planner.tariffs import Tariff, tariff_of
from planner.terms import Terms

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
    capacity [G] in boards. A change from a to b costs enter_cost[b], which contains leaving the
    present configuration: nearly every change starts there, or returns to it.
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
    tariff: Tariff
    cap_laws: Mapping[str, CapLaw]

    @property
    def terms(self) -> Terms:
        """What options are judged by."""
        return Terms(
            catalogue=self.catalogue,
            planning=self.planning,
            energy=self.energy,
            carbon=self.carbon,
            tariff=self.tariff,
            cap_laws=self.cap_laws,
        )


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
    cap_laws: Mapping[str, CapLaw] | None = None,
) -> PlanningProblem:
    """Give the problem of the slots after `as_of`. Jobs that ended are not part of it.

    `history` has the columns HISTORY; `forecasts` has one entry per job. Capacity is the boards
    of each model, at least what the jobs hold now. `cap_laws` by GPU model are what this fleet has
    taught; without them those of the catalogue hold.
    """
    slot_starts = _slot_starts(as_of, planning)
    terms = Terms(
        catalogue=catalogue,
        planning=planning,
        energy=energy,
        carbon=carbon,
        tariff=tariff_of(
            slot_starts, timedelta(minutes=planning.slot_minutes), energy=energy, carbon=carbon
        ),
        cap_laws={one.name: one.cap_law for one in catalogue} | dict(cap_laws or {}),
    )
    by_job = {str(job_id): rows for job_id, rows in history.groupby("job_id", sort=False)}
    forecast_of = {one.job_id: one for one in forecasts}
    boards_of = cluster.boards_by_model()
    known_models = {name: count for name, count in boards_of.items() if catalogue.find(name)}
    demands, ended = [], {}
    for job in jobs:
        forecast = forecast_of[job.job_id]
        if isinstance(forecast, ForecastSkipped) and forecast.reason.startswith("ended"):
            ended[job.job_id] = forecast.reason
            continue
        rows = by_job.get(job.job_id, history.iloc[:0])
        demands.append(job_demand(job, rows, forecast, planning))
    kept = {
        one.job.job_id: _SHARED
        if (signals or {}).get(one.job.job_id) == "shared"
        else keep_reason(one, catalogue, planning)
        for one in demands
    }
    partners = partners_of(
        [one for one in demands if not kept[one.job.job_id]], catalogue=catalogue, planning=planning
    )
    running = [
        JobProblem(
            demand=one,
            options=options_for(
                one, known_models, terms=terms, partner=partners.get(one.job.job_id)
            ),
            keep_reason=kept[one.job.job_id],
        )
        for one in demands
    ]
    gpu_models = tuple(sorted({*boards_of, *(one.demand.job.gpu_model for one in running)}))
    arrays = _arrays(running, gpu_models, terms)
    slot_cost, enter_cost, boards, model_of = arrays
    held = np.bincount(model_of[0], weights=boards[0], minlength=len(gpu_models))
    capacity = np.maximum([float(boards_of.get(name, 0)) for name in gpu_models], held)
    return PlanningProblem(
        as_of=as_of,
        slot_starts=slot_starts,
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
        tariff=terms.tariff,
        cap_laws=terms.cap_laws,
    )


def _slot_starts(as_of: datetime, planning: PlanningSettings) -> tuple[datetime, ...]:
    seconds = planning.slot_minutes * 60
    first = (int(as_of.timestamp()) // seconds + 1) * seconds
    return tuple(
        datetime.fromtimestamp(first + step * seconds, tz=UTC)
        for step in range(planning.horizon_slots)
    )


def _arrays(
    jobs: Sequence[JobProblem],
    gpu_models: Sequence[str],
    terms: Terms,
) -> tuple[Values, Values, Values, Indices]:
    widest = max((len(one.options) for one in jobs), default=1)
    shape = (widest, len(jobs))
    slot_cost = np.full((terms.planning.horizon_slots, *shape), FORBIDDEN)
    enter_cost, boards = np.zeros(shape), np.zeros(shape)
    model_of = np.full(shape, -1, dtype=np.int64)
    index = {name: position for position, name in enumerate(gpu_models)}
    for column, one in enumerate(jobs):
        for row, option in enumerate(one.options):
            present = one.options[0]
            slot_cost[:, row, column] = slot_costs(one.demand, present, option, terms).total
            enter_cost[row, column] = change_cost(one.demand, present, option, terms)
            boards[row, column] = option.boards
            if option.boards:
                model_of[row, column] = index[option.configuration.gpu_model]
    return slot_cost, enter_cost, boards, model_of
