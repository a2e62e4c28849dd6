"""Plans made hour by hour from forecasts, and what was held then paid with what came.

Every hour a forecast of the next day is made from the past, a planning problem and a plan from it
(`forecasting.jobs.path_pool`, `planner.problem`, `planner.plan`); what the plan holds in its first
hour is held. The product offers a service doublings below and three counts above what it has; here
every peer may hold any count, so that forecasts are compared, not steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks._naive_model import NaiveModel
from data.base.units import SECONDS_PER_HOUR
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.fleet import Cluster, Gpu, Node
from data.facts.jobs import Job, JobState, Platform, SchedulerFacts, WorkloadKind
from data.records.forecasts import DemandForecast, QuantilePath, Quantity
from data.records.plans import Configuration, Plan
from data.settings.all_settings import PlanningSettings
from data.settings.energy import EnergySettings
from data.settings.fleet import NodeSettings
from forecasting.jobs.forecast_path import PathTask, path_of
from forecasting.jobs.path_pool import paths_of
from forecasting.series.demand_series import DemandSeries
from planner.costs.configurations import Option
from planner.costs.cost import change_cost, slot_costs
from planner.plan import build_plan
from planner.problem.planning_problem import FORBIDDEN, FleetRules, PlanningProblem, make_problem

Values = npt.NDArray[np.float64]
Foresight = Callable[["ValueCase", int, int], list[QuantilePath]]
"""What is foreseen of every service of a case before an hour, so many hours ahead."""
MISSING_PRICE = 4.0
"""Rents that a missing GPU-hour costs."""
START_HOURS = 62 / SECONDS_PER_HOUR
"""Rent of a service's GPUs lost whenever their number changes: what the planner counts."""
AHEAD_HOURS = 24
HISTORY_DAYS = 42
_CAPACITY_QUANTILE = 0.85
_MODEL, _NODE = "V100-SXM2-16GB", "fleet"
_CATALOGUE = load_gpu_catalogue
_LEVELS = 16
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_BUDGET_SECONDS = 600.0
"""Never reached: plans end by their counts, and are the same on every machine."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ValueCase:
    """Demand [services, hours] in GPUs, NaN unknown, judged on `hours` hours from `first` on."""

    name: str
    source: str
    services: tuple[str, ...]
    demand: Values
    first: int
    hours: int

    @property
    def truth(self) -> Values:
        """Demand [services, hours] of the window; an unknown hour wants nothing."""
        return np.nan_to_num(self.demand[:, self.first : self.first + self.hours])

    @property
    def capacity(self) -> int:
        """GPUs of the fleet: the 85 % quantile of total demand in the window."""
        return max(1, round(float(np.quantile(self.truth.sum(axis=0), _CAPACITY_QUANTILE))))

    def past(self, service: int, hour: int) -> DemandSeries:
        """Return what is known of a service before an hour of the window."""
        until = self.first + hour
        begin = max(0, until - HISTORY_DAYS * 24)
        known = np.flatnonzero(np.isfinite(self.demand[service, begin:until]))
        begin += int(known[0]) if len(known) else until - begin - 1
        return DemandSeries(
            quantity=Quantity.EFFECTIVE_GPUS,
            first_slot=int(_EPOCH.timestamp()) + begin * SECONDS_PER_HOUR,
            slot_seconds=SECONDS_PER_HOUR,
            values=np.ascontiguousarray(self.demand[service, begin:until]),
            lower=0.0,
            upper=np.inf,
        )

    def now(self, hour: int) -> Values:
        """Return the last known demand [services] before an hour of the window."""
        return np.array(
            [
                series.values[series.known][-1] if series.known.any() else 0.0
                for series in (self.past(service, hour) for service in range(len(self.services)))
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Held:
    """What a peer held [services, hours]."""

    name: str
    counts: Values

    def costs(self, case: ValueCase) -> Values:
        """Return the cost by service in GPU-hours of rent: held, missing and changes."""
        missing = np.maximum(case.truth - self.counts, 0.0).sum(axis=1)
        before = np.hstack([np.ceil(case.now(0))[:, None], self.counts[:, :-1]])
        started = np.where(self.counts != before, self.counts, 0.0).sum(axis=1)
        return np.asarray(self.counts.sum(axis=1) + MISSING_PRICE * missing + START_HOURS * started)

    def missing_ratio(self, case: ValueCase) -> float:
        """Return the share of the demand that was missing."""
        missing = np.maximum(case.truth - self.counts, 0.0).sum()
        return float(missing / max(case.truth.sum(), 1e-9))


def planning(hours: int) -> PlanningSettings:
    """Return the settings of all plans: hours, no headroom, as many changes as pay."""
    return PlanningSettings(
        slot_minutes=60,
        horizon_slots=hours,
        checkpointed_jobs="*",
        headroom_ratio=0.0,
        shortfall_weight=MISSING_PRICE,
        max_changes_per_day=0,
        budget_seconds=_BUDGET_SECONDS,
        board_sharing="none",
    )


def by_trimtab(case: ValueCase, hour: int, ahead: int) -> list[QuantilePath]:
    """Return the product's forecasts."""
    first_slot = int(_EPOCH.timestamp()) + (case.first + hour) * SECONDS_PER_HOUR
    series = [case.past(service, hour) for service in range(len(case.services))]
    tasks = [PathTask(series=past, first_slot=first_slot, horizon=ahead) for past in series]
    return paths_of(tasks, settings=planning(ahead))


def by_last_value(case: ValueCase, hour: int, ahead: int) -> list[QuantilePath]:
    """Return the last value, without doubt."""
    return [_certain(np.full(ahead, value)) for value in case.now(hour)]


def by_last_value_and_its_errors(case: ValueCase, hour: int, ahead: int) -> list[QuantilePath]:
    """Return the last value with the quantiles of its past errors."""
    series = [case.past(service, hour) for service in range(len(case.services))]
    return [path_of(past, NaiveModel().forecast(past, ahead), "naive") for past in series]


def by_truth(case: ValueCase, hour: int, ahead: int) -> list[QuantilePath]:
    """Return what came; after the window its last hour."""
    truth = case.truth[:, hour : hour + ahead]
    longer = np.pad(truth, ((0, 0), (0, ahead - truth.shape[1])), mode="edge")
    return [_certain(row) for row in longer]


def _certain(path: Values) -> QuantilePath:
    row = tuple(path.tolist())
    return QuantilePath(
        quantity=Quantity.EFFECTIVE_GPUS, model="certain", q10=row, q50=row, q90=row, backtest=None
    )


def planned(case: ValueCase, name: str, foresee: Foresight, *, rolls: bool = False) -> Held:
    """Return what hourly plans on a forecast hold; `rolls`: each starts from the plan before."""
    counts = np.zeros(case.truth.shape)
    present = np.maximum(np.ceil(case.now(0)), 1.0)
    last: Plan | None = None
    paths: Sequence[QuantilePath] = ()
    for hour in range(case.hours):
        outside = _outside(case.now(hour), paths)
        paths = foresee(case, hour, AHEAD_HOURS)
        problem = problem_of(case, present, paths, hour)
        last = build_plan(
            problem,
            budget_seconds=_BUDGET_SECONDS,
            created_at=problem.as_of,
            last=last if rolls else None,
            reconsidered=[problem.jobs[service].demand.job.job_id for service in outside],
        )
        counts[:, hour] = [job.steps[0].gpu_count for job in last.jobs]
        present = np.maximum(counts[:, hour], 1.0)
    return Held(name=name, counts=counts)


def _outside(now: Values, paths: Sequence[QuantilePath]) -> list[int]:
    """Return the services whose newest hour left the interval of the forecasts before it."""
    return [
        service
        for service, path in enumerate(paths)
        if len(path.q05) and not path.q05[0] <= now[service] <= path.q95[0]
    ]


def oracle(case: ValueCase) -> tuple[Held, float]:
    """Return what one plan of the whole window holds that knows what comes, and its gap."""
    present = np.maximum(np.ceil(case.now(0)), 1.0)
    problem = problem_of(case, present, by_truth(case, 0, case.hours), 0)
    plan = build_plan(problem, budget_seconds=_BUDGET_SECONDS, created_at=problem.as_of)
    counts = np.array([[step.gpu_count for step in job.steps] for job in plan.jobs], dtype=float)
    return Held(name="perfect forecast (the oracle)", counts=counts), plan.gap_ratio


def problem_of(
    case: ValueCase, present: Values, paths: Sequence[QuantilePath], hour: int
) -> PlanningProblem:
    """Return the planning problem of the hours from one on, with any count as an option."""
    as_of = _EPOCH + timedelta(hours=case.first + hour, seconds=-1)
    present = _fitting(present, case.capacity)
    settings = planning(len(paths[0].q50))
    jobs = [
        _job(name, int(count), as_of) for name, count in zip(case.services, present, strict=True)
    ]
    starts = tuple(
        _EPOCH + timedelta(hours=case.first + hour + step) for step in range(settings.horizon_slots)
    )
    problem = make_problem(
        _cluster(case, jobs, as_of),
        jobs,
        _history(jobs, as_of),
        [
            DemandForecast(
                job_id=job.job_id,
                slot_starts=starts,
                paths=(path,),
                missing=(),
                samples=1,
                history_slots=1,
                known_slots=1,
            )
            for job, path in zip(jobs, paths, strict=True)
        ],
        catalogue=_CATALOGUE(),
        carbon=load_carbon_table().get("DEU"),
        planning=settings,
        energy=EnergySettings(region="DEU"),
        as_of=as_of,
        rules=FleetRules(nodes=NodeSettings(base_watts_per_gpu=0.0, boot_minutes=0.0)),
    )
    return _with_any_count(problem, case)


def _with_any_count(problem: PlanningProblem, case: ValueCase) -> PlanningProblem:
    """Return the problem with a grid of counts, and values of the forecast, as options."""
    terms, slots = problem.terms, len(problem.slot_starts)
    jobs = []
    for job in problem.jobs:
        present, most = job.options[0], case.capacity
        values = np.array([row for _level, row in job.demand.quantiles])
        near = np.linspace(values[:, 0].min(), values[:, 0].max(), _LEVELS)
        certain = values[0] if (values == values[0]).all() else values[:, :2].ravel()
        grid = np.geomspace(1, max(2.0, 1.5 * float(values.max())), _LEVELS)
        counts = np.unique(np.ceil(np.concatenate([near, certain, grid]) - 1e-9))
        counts = counts[(counts >= 1) & (counts <= most) & (counts != present.boards)]
        options = [
            Option(
                configuration=Configuration(gpu_model=_MODEL, gpu_count=int(count)),
                boards=float(count),
                service=float(count),
            )
            for count in counts
        ]
        jobs.append(replace(job, options=(present, *options)))
    widest = max(len(job.options) for job in jobs)
    slot_cost = np.full((slots, widest, len(jobs)), FORBIDDEN)
    enter, boards = np.zeros((widest, len(jobs))), np.zeros((widest, len(jobs)))
    model_of = np.full(enter.shape, -1, dtype=np.int64)
    for column, job in enumerate(jobs):
        for row, option in enumerate(job.options):
            first = job.options[0]
            slot_cost[:, row, column] = slot_costs(job.demand, first, option, terms).total
            enter[row, column] = change_cost(job.demand, first, option, terms)
            boards[row, column] = option.boards
            model_of[row, column] = problem.gpu_models.index(_MODEL)
    return replace(
        problem,
        jobs=tuple(jobs),
        slot_cost=slot_cost,
        enter_cost=enter,
        boards=boards,
        model_of=model_of,
    )


def _fitting(counts: Values, capacity: int) -> Values:
    """Return counts that fit together, each at least 1, in proportion where they do not."""
    if counts.sum() <= capacity:
        return counts
    return np.maximum(np.floor(counts * (capacity / counts.sum())), 1.0)


def clipped(wished: Values, capacity: int) -> Values:
    """Return wishes [services] in whole GPUs, in proportion where they do not fit the fleet."""
    whole = np.ceil(np.maximum(wished, 0.0) - 1e-9)
    return whole if whole.sum() <= capacity else np.floor(whole * (capacity / whole.sum()))


def _job(name: str, count: int, as_of: datetime) -> Job:
    extra = (("gpus_per_pod", "1"), ("gpu_containers", "1"), ("pods", str(count)))
    return Job(
        job_id=f"value/deployment/{name}",
        name=name,
        namespace="value",
        owner="",
        platform=Platform.KUBERNETES,
        kind=WorkloadKind.INFERENCE,
        gpu_model=_MODEL,
        gpu_count=count,
        mig_profile="",
        gpu_memory_mib=16_384.0,
        first_seen_at=_EPOCH - timedelta(days=60),
        last_seen_at=as_of,
        source="kubernetes value",
        scheduler=SchedulerFacts(
            state=JobState.RUNNING, workload=f"deployment/{name}", extra=extra
        ),
    )


def _cluster(case: ValueCase, jobs: Sequence[Job], as_of: datetime) -> Cluster:
    holders = [job.job_id for job in jobs for _ in range(job.gpu_count)]
    capacity = max(case.capacity, len(holders))
    holders += [""] * (capacity - len(holders))
    gpus = tuple(
        Gpu(
            gpu_uuid=f"GPU-{number}",
            mig_instance="",
            mig_profile="",
            node=_NODE,
            gpu_model=_MODEL,
            memory_total_mib=16_384.0,
            job_id=holder,
            last_seen_at=as_of,
        )
        for number, holder in enumerate(holders)
    )
    node = Node(
        name=_NODE, gpu_model=_MODEL, gpu_count=capacity, seen_at=as_of, source="kubernetes value"
    )
    return Cluster(as_of=as_of, gpus=gpus, nodes=(node,))


def _history(jobs: Sequence[Job], as_of: datetime) -> pd.DataFrame:
    """Return one busy slot of every job: the planner asks for its memory and whether it is idle."""
    return pd.DataFrame(
        {
            "job_id": [job.job_id for job in jobs],
            "slot_start": pd.to_datetime([as_of] * len(jobs), utc=True),
            "effective_gpus": [0.5 * job.gpu_count for job in jobs],
            "utilization_ratio": 0.5,
            "utilization_max_ratio": 1.0,
            "allocated_gpus": [float(job.gpu_count) for job in jobs],
            "memory_used_mib": 1000.0,
            "power_watts": np.nan,
            "sample_count": 1,
        }
    )
