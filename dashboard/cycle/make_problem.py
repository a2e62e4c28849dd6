"""The planner's problem from readings and forecasts: one way for all callers who plan."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dashboard.accounting.cost.prices import as_paid, priced
from data.catalogue.carbon_table import GridCarbon
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.catalogue.grid_forecast import GridOutlook
from data.facts.jobs import Job
from data.facts.quotas import Quota
from data.records.forecasts import DemandForecast, ForecastSkipped
from data.records.memory import MemoryFinding, MemoryOutlook
from data.records.plans import Plan
from data.records.serving import ServiceOutlook
from data.settings.all_settings import Settings
from data.settings.multi_cluster import settings_by_cluster
from data.store.facts.planning_view import PlanningView
from forecasting.groups.queue_waits import places_in_line, queue_waits
from forecasting.power.cap_laws import learned_cap_laws
from forecasting.power.estimated import PowerModels
from forecasting.power.free_boards import with_measured_idle
from forecasting.series.past_runs import past_run_seconds
from planner.jobs.scheduler_shares import with_enforced_shares
from planner.problem.planning_problem import FleetRules, PlanningProblem, make_problem

_RECENT = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanBasis:
    """Basis of a plan: the same basis gives the same problem.

    `models` are what the view's readings teach of power, `memory` what is forecast of its jobs'
    memory, `serving` of its services, `grid` of the hours of the grid. `last` is the plan in force.
    """

    settings: Settings
    view: PlanningView
    forecasts: tuple[DemandForecast | ForecastSkipped, ...]
    catalogue: GpuCatalogue
    carbon: GridCarbon
    models: PowerModels
    memory: tuple[MemoryFinding, ...] = ()
    serving: tuple[ServiceOutlook, ...] = ()
    grid: GridOutlook = field(default_factory=GridOutlook)
    last: Plan | None = None


def problem_from(basis: PlanBasis) -> PlanningProblem:
    """Return the problem of the slots after a view. Errors: ImpossibleProblemError."""
    view, settings = basis.view, as_paid(basis.settings)
    catalogue = priced(basis.catalogue, settings, view.as_of)
    return make_problem(
        view.cluster,
        view.jobs,
        view.history,
        basis.forecasts,
        catalogue=with_measured_idle(catalogue, view.readings),
        carbon=basis.carbon,
        planning=settings.planning,
        energy=settings.energy,
        as_of=view.as_of,
        signals=view.signals,
        contradicted=view.contradicted,
        cap_laws=learned_cap_laws(basis.models.values(), catalogue),
        rules=fleet_rules(settings, view.quotas, live_jobs(view.jobs, view.as_of)),
        held_memory_mib={
            finding.job_id: finding.held_mib
            for finding in basis.memory
            if finding.outlook is MemoryOutlook.ROOM
        },
        past_runs=past_run_seconds(view.known_jobs),
        progress=view.progress,
        queue_waits={
            **queue_waits(view.known_jobs, view.as_of),
            **{
                place.job_id: place.wait
                for place in places_in_line(view.known_jobs, view.as_of)
                if place.wait is not None
            },
        },
        serving=basis.serving,
        grid=basis.grid,
        ended_jobs=view.ended_jobs,
        ended_history=view.ended_history,
    )


def live_jobs(jobs: Iterable[Job], as_of: datetime) -> tuple[Job, ...]:
    """Return the jobs that were seen in the last hour."""
    return tuple(job for job in jobs if job.last_seen_at >= as_of - _RECENT)


def fleet_rules(
    settings: Settings, quotas: Sequence[Quota] = (), jobs: Sequence[Job] = ()
) -> FleetRules:
    """Return the rules of the settings on nodes, power limits, tenants and requeues, and quotas.

    Of tenants, what schedulers enforce (`quotas`) of their live `jobs` stands before it. Without
    an applier for Slurm a person makes the change, who may do more. Of several Slurms nothing is
    proposed that one of them would not take.
    """
    slurms = [
        local.apply_slurm
        for local in settings_by_cluster(settings).values()
        if local.apply_slurm.enabled
    ]
    return FleetRules(
        nodes=settings.nodes,
        power=settings.power,
        tenants=with_enforced_shares(settings.tenants, quotas, jobs),
        quotas=quotas,
        may_requeue=all(slurm.allow_requeue and slurm.mode == "commands" for slurm in slurms),
        behind_others=all(slurm.requeue_behind_others for slurm in slurms),
    )
