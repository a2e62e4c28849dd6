"""The planning problem as a value: slots, capacities, and per job its options and their costs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt
import pandas as pd

from data.base.units import IDLE_RATIO
from data.catalogue.carbon_table import GridCarbon
from data.catalogue.gpu_catalogue import CapLaw, GpuCatalogue
from data.catalogue.grid_forecast import GridOutlook
from data.facts.fleet import Cluster
from data.facts.job_history import NO_HISTORY, job_histories
from data.facts.jobs import Job
from data.facts.progress import ProgressReport
from data.facts.queue_waits import QueueWait
from data.facts.quotas import Quota
from data.records.contradictions import FIX, ContradictedCounter, contradictions_text
from data.records.feasible_changes import has_named_nodes, requeue_refusal, runs_in_slurm
from data.records.forecasts import DemandForecast, ForecastSkipped
from data.records.serving import ServiceOutlook
from data.settings.all_settings import PlanningSettings
from data.settings.energy import EnergySettings
from data.settings.fleet import NodeSettings, PowerSettings, TenantSettings
from planner.costs.configurations import keep_reason, limited_by, options_for, present_option
from planner.costs.cost import change_cost, slot_costs
from planner.costs.tariffs import Tariff, tariff_of
from planner.costs.terms import Terms
from planner.fleet.fleet import fleet_facts
from planner.fleet.fleet_nodes import FleetFacts, Reach
from planner.fleet.pools import Pools, make_pools
from planner.fleet.quota_room import QuotaRoom
from planner.fleet.tenants import Tenants, make_tenants
from planner.jobs.elasticity import standing_of
from planner.jobs.job_demand import JobDemand, check_demand, job_demand, restart_slots
from planner.jobs.job_end import remaining_of
from planner.jobs.work_returns import Evidence, evidence_of_many, rests_of, similar_rests
from planner.problem.job_problem import JobProblem, with_pin

Values = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
FORBIDDEN = 1e9
"""Cost of a slot in an option that a job does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRules:
    """The settings' rules on nodes, power limits and tenants, and the schedulers' quotas.

    `may_requeue`: a Slurm job that runs may be requeued to change it, `behind_others` even while
    others wait for its nodes.
    """

    # Frozen values: sharing one instance as the default is safe.
    nodes: NodeSettings = NodeSettings()  # noqa: RUF009
    power: PowerSettings = PowerSettings()  # noqa: RUF009
    tenants: TenantSettings = TenantSettings()  # noqa: RUF009
    quotas: Sequence[Quota] = ()
    may_requeue: bool = True
    behind_others: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningProblem:
    """Costs in `energy.currency`. Arrays: T slots, C options, J jobs, G GPU models.

    slot_cost [T, C, J]; enter_cost, boards [C, J]; model_of [C, J] (-1: holds nothing);
    capacity [G] in boards, all nodes counted. A change from a to b costs enter_cost[b], which
    contains leaving the present configuration: nearly every change starts there, or returns to it.
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
    facts: FleetFacts
    pools: Pools
    tenants: Tenants
    rules: FleetRules

    @property
    def terms(self) -> Terms:
        """The terms of judging options."""
        return Terms(
            catalogue=self.catalogue,
            planning=self.planning,
            energy=self.energy,
            carbon=self.carbon,
            tariff=self.tariff,
            cap_laws=self.cap_laws,
            may_requeue=self.rules.may_requeue,
            behind_others=self.rules.behind_others,
        )

    def _why_not_requeued(self, job: Job) -> str:
        rules = self.rules
        return requeue_refusal(
            job, may_requeue=rules.may_requeue, behind_others=rules.behind_others
        )

    def movable(self, job: int) -> bool:
        """Return whether a plan may move a job: it can be restarted, and nothing keeps it."""
        planned = self.jobs[job]
        job_id = planned.demand.job.job_id
        return (
            not planned.keep_reason
            and planned.demand.standing.may_restart
            and bool(self.facts.scheduler[job_id])
            and not (
                runs_in_slurm(planned.demand.job) and self._why_not_requeued(planned.demand.job)
            )
            and not has_named_nodes(planned.demand.job)
            and job_id not in self.facts.strays
        )


def _reach_of(facts: FleetFacts, job_id: str) -> Reach:
    """Return the reach of a job; no slice and no further boards for a stray: they are elsewhere."""
    reach = facts.reach[job_id]
    return replace(reach, boards={}, slices={}) if job_id in facts.strays else reach


_SHARED = (
    "it shares its GPUs with other jobs: their readings mirror all holders, not this job "
    "(see docs/energy.md)"
)


def _unreliable(
    demand: JobDemand,
    signals: Mapping[str, str],
    contradicted: Mapping[str, Sequence[ContradictedCounter]],
) -> str:
    """Return the reason why a job's readings do not justify a change, '' where they do."""
    if counters := contradicted.get(demand.job.job_id):
        return (
            f"its readings contradict each other: {contradictions_text(counters)}. {FIX} "
            "Nothing is proposed until a day after (see docs/what-is-believed.md)"
        )
    shared = signals.get(demand.job.job_id) == "shared" and demand.share is None
    return _SHARED if shared else ""


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
    contradicted: Mapping[str, Sequence[ContradictedCounter]] | None = None,
    cap_laws: Mapping[str, CapLaw] | None = None,
    rules: FleetRules | None = None,
    held_memory_mib: Mapping[str, float] | None = None,
    past_runs: Mapping[str, Sequence[float]] | None = None,
    progress: Mapping[str, Sequence[ProgressReport]] | None = None,
    queue_waits: Mapping[str, QueueWait] | None = None,
    serving: Sequence[ServiceOutlook] = (),
    grid: GridOutlook | None = None,
    ended_jobs: Sequence[Job] = (),
    ended_history: pd.DataFrame | None = None,
) -> PlanningProblem:
    """Return the problem of the slots after `as_of`. Jobs that ended or are away are no part.

    `history` has the columns HISTORY; `forecasts` has one entry per job. Capacity is the boards of
    each model, at least what the jobs hold now. `cap_laws` by GPU model are what this fleet has
    taught; without them those of the catalogue hold. `contradicted` by job are counters on which no
    change may rest. `held_memory_mib` by job is what a job stays under whose phase of more memory
    is over; `past_runs` (lengths in s of ended runs of the same job) and `progress` (what it
    reported itself) tell its end; `queue_waits` is how long a job would wait to be started again,
    or still waits for its start; `serving` is what is foreseen of the requests of services; `grid`
    is what is forecast of the hours of the grid. The rests of `ended_jobs`, of which
    `ended_history` has job_id, slot_start and utilization_max_ratio, tell of those of others.

    Raises ImpossibleProblemError for a demand below zero and a forecast of another length. A job
    whose pins contradict one another or the job is kept as it is.
    """
    rules = rules or FleetRules()
    slot_starts, slot = _slot_starts(as_of, planning), timedelta(minutes=planning.slot_minutes)
    terms = Terms(
        catalogue=catalogue,
        planning=planning,
        energy=energy,
        carbon=carbon,
        tariff=tariff_of(slot_starts, slot, energy=energy, carbon=carbon, grid=grid),
        cap_laws={entry.name: entry.cap_law for entry in catalogue} | dict(cap_laws or {}),
        may_requeue=rules.may_requeue,
        behind_others=rules.behind_others,
    )
    by_job = job_histories(history)
    rests = {
        job.job_id: rests_of(
            by_job.get(job.job_id, NO_HISTORY),
            slot_hours=terms.slot_hours,
            idle_ratio=IDLE_RATIO,
            restart_slots=restart_slots(job, planning),
        )
        for job in jobs
    }
    similar = similar_rests(
        rests,
        {job.job_id: _similar_to(job, planning) for job in jobs},
        _past_rests(ended_jobs, ended_history, planning),
    )
    forecast_of = {demand_forecast.job_id: demand_forecast for demand_forecast in forecasts}
    boards_of = cluster.boards_by_model()
    services = {service.job_id: service for service in serving}
    demands, ended = [], {}
    for job in jobs:
        forecast = forecast_of[job.job_id]
        if isinstance(forecast, ForecastSkipped) and forecast.is_away:
            ended[job.job_id] = forecast.reason
            continue
        rows = by_job.get(job.job_id, NO_HISTORY)
        memory_mib = (held_memory_mib or {}).get(job.job_id)
        remaining = remaining_of(
            job,
            slot_starts,
            slot,
            as_of=as_of,
            past_runs=(past_runs or {}).get(job.job_id, ()),
            progress=(progress or {}).get(job.job_id, ()),
            wait=(queue_waits or {}).get(job.job_id),
        )
        requeued = rules.may_requeue or not runs_in_slurm(job)
        demand = job_demand(
            job,
            rows,
            forecast,
            planning,
            remaining=remaining,
            rests=rests[job.job_id],
            similar=similar[job.job_id],
            held_mib=memory_mib,
            queue_wait=(queue_waits or {}).get(job.job_id) if requeued else None,
            model=catalogue.find(job.gpu_model),
            service=services.get(job.job_id),
            slot_starts=slot_starts,
            board_share=cluster.shares.get(job.job_id),
        )
        check_demand(demand, planning)
        demands.append(demand)
    reasons = {
        entry.job.job_id: _unreliable(entry, signals or {}, contradicted or {})
        or keep_reason(entry, catalogue, planning)
        for entry in demands
    }
    own_jobs = [entry.job for entry in demands]
    facts = fleet_facts(
        cluster,
        own_jobs,
        {entry.job.job_id: present_option(entry, catalogue).boards for entry in demands},
        slot_starts=slot_starts,
        slot=slot,
        maintenance=rules.nodes.maintenance,
        ended=[job for job in jobs if job.job_id in ended],
    )
    room = QuotaRoom(rules.quotas)
    running = [
        with_pin(
            JobProblem(
                demand=entry,
                options=options_for(
                    entry,
                    reach,
                    terms=terms,
                    room=room.beside(entry.job)[0],
                ),
                keep_reason=reasons[entry.job.job_id],
                limited_by=limited_by(entry, reach, planning, *room.beside(entry.job)),
            ),
            planning,
        )
        for entry in demands
        for reach in (_reach_of(facts, entry.job.job_id),)
    ]
    gpu_models = tuple(
        sorted(
            {
                *boards_of,
                *(problem.demand.job.gpu_model for problem in running),
                *(node.gpu_model for node in cluster.nodes if node.gpu_count),
            }
        )
    )
    arrays = _arrays(running, gpu_models, terms)
    slot_cost, enter_cost, boards, model_of = arrays
    in_use = np.bincount(model_of[0], weights=boards[0], minlength=len(gpu_models))
    capacity = np.maximum(_all_boards(facts, gpu_models), in_use)
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
        facts=facts,
        pools=make_pools(facts.nodes, gpu_models, own_jobs, facts.homes, rules.power.domains),
        tenants=make_tenants(own_jobs, float(capacity.sum()), rules.tenants),
        rules=rules,
    )


def _past_rests(
    jobs: Sequence[Job], history: pd.DataFrame | None, planning: PlanningSettings
) -> Iterator[tuple[tuple[tuple[str, ...], ...], Evidence]]:
    """Yield the groups and the evidence of the rests of jobs that ended."""
    if history is None or not jobs:
        return
    evidence = evidence_of_many(
        history,
        slot_hours=planning.slot_minutes / 60,
        idle_ratio=IDLE_RATIO,
        restart_slots={job.job_id: restart_slots(job, planning) for job in jobs},
    )
    for job in jobs:
        if job.job_id in evidence:
            yield _similar_to(job, planning), evidence[job.job_id]


def _similar_to(job: Job, planning: PlanningSettings) -> tuple[tuple[str, ...], ...]:
    """Return the groups whose rests tell of a job's: of its kind, and of its owner's of that."""
    kind = (job.platform, job.kind, standing_of(job, planning).elasticity)
    return kind, (*kind, job.namespace, job.owner)


def _slot_starts(as_of: datetime, planning: PlanningSettings) -> tuple[datetime, ...]:
    slot_seconds = planning.slot_minutes * 60
    first = (int(as_of.timestamp()) // slot_seconds + 1) * slot_seconds
    return tuple(
        datetime.fromtimestamp(first + step * slot_seconds, tz=UTC)
        for step in range(planning.horizon_slots)
    )


def _all_boards(facts: FleetFacts, gpu_models: Sequence[str]) -> Values:
    """Return the boards per model outside maintenance [G]."""
    row = {name: index for index, name in enumerate(gpu_models)}
    boards = np.zeros(len(gpu_models))
    for node in facts.nodes:
        boards[row[node.gpu_model]] += node.usable
    return boards


def _arrays(
    jobs: Sequence[JobProblem],
    gpu_models: Sequence[str],
    terms: Terms,
) -> tuple[Values, Values, Values, Indices]:
    widest = max((len(job.options) for job in jobs), default=1)
    shape = (widest, len(jobs))
    slot_cost = np.full((terms.planning.horizon_slots, *shape), FORBIDDEN)
    enter_cost, boards = np.zeros(shape), np.zeros(shape)
    model_of = np.full(shape, -1, dtype=np.int64)
    index = {name: position for position, name in enumerate(gpu_models)}
    for column, problem in enumerate(jobs):
        for row, option in enumerate(problem.options):
            present = problem.options[0]
            slot_cost[:, row, column] = slot_costs(problem.demand, present, option, terms).total
            enter_cost[row, column] = change_cost(problem.demand, present, option, terms)
            boards[row, column] = option.boards
            if option.boards:
                model_of[row, column] = index[option.configuration.gpu_model]
    return slot_cost, enter_cost, boards, model_of
