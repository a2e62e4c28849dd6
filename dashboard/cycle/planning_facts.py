"""Everything that a plan and its advice rest on, read once from the store."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Self

from dashboard.accounting.cost.prices import grid_as_paid, priced
from dashboard.accounting.facility.heat import rack_forecasts
from dashboard.common.stale_readings import stale_reason
from dashboard.cycle.context import Progress, World, silent
from dashboard.cycle.cooldowns import REJECTED_DAYS, ended_jobs, rejections, resting
from dashboard.cycle.make_problem import PlanBasis, problem_from
from dashboard.cycle.memory_outlook import memory_findings
from dashboard.cycle.outlooks import slow_work_causes, workload_outlooks
from dashboard.serving.fit import with_fits
from dashboard.serving.outlook import objective_of, service_outlooks
from data.base.errors import StoreError
from data.boards.board_shares import boards_of_jobs
from data.boards.unplanned_jobs import unread
from data.facts.collected import Collected
from data.records.actions import Action
from data.records.forecasts import GroupForecast, WorkloadForecast
from data.records.plans import Configuration, Plan
from data.records.slow_work import SlowWork
from data.store import StoreReader
from data.store.facts.planning_view import PlanningView
from forecasting.distributed.ray_workers import RayWorkforce
from forecasting.forecast import forecast_demand
from forecasting.groups.group_forecasts import forecast_groups
from forecasting.jobs.surprises import outside_interval
from forecasting.power.estimated import power_models, with_estimated_power
from forecasting.series.past_runs import past_run_seconds
from planner.advise import Advice, advise
from planner.plan import build_plan
from planner.proposals.suppressions import Rejections

logger = logging.getLogger(__name__)

_REPORT_DELAY = timedelta(minutes=5)
"""So much later than others a job may report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningFacts:
    """Facts that a cycle plans and advises from at `now`; the same facts give the same of both.

    `resting` maps targets to why nothing is proposed for them now; `withheld` is why nothing is
    proposed at all, '' where something may be. `reconsidered` jobs left the intervals of their last
    forecasts. `workloads` is None where those of these six hours were made before.
    `proposed_before` are the changes of the plan in force.
    """

    now: datetime
    basis: PlanBasis
    groups: tuple[GroupForecast, ...]
    workloads: tuple[WorkloadForecast, ...] | None
    slow_work: tuple[SlowWork, ...]
    withheld: str
    resting: Mapping[str, str]
    rejections: Rejections
    proposed_before: Mapping[tuple[str, Action], Configuration]
    reconsidered: frozenset[str]

    def without_frames(self) -> Self:
        """Return the facts without the readings of the view, which nobody needs after planning."""
        view = self.basis.view
        frames = {
            name: frame.iloc[:0]
            for name in ("history", "groups", "readings", "ended_history")
            if (frame := getattr(view, name)) is not None
        }
        return replace(self, basis=replace(self.basis, view=replace(view, **frames)))


def read_facts(world: World, collected: tuple[Collected, ...], now: datetime) -> PlanningFacts:
    """Read what the store holds at `now`, and forecast from it.

    `collected` is what schedulers answered in this cycle. A job without enough history is a skipped
    forecast. Errors: StoreError when there is nothing to plan on.
    """
    settings, reader = world.settings, world.store.reader
    planning = settings.planning
    view = reader.planning_view(
        now, slot_seconds=planning.slot_minutes * 60, history_days=planning.history_days
    )
    over = ended_jobs(view.jobs, collected)
    view = _without_ended(view, over, timedelta(minutes=planning.slot_minutes))
    for pin in planning.pins:
        if not any(fnmatchcase(job.job_id, pin.job) for job in view.jobs):
            logger.warning("planning.pins: no job fits %r. Correct it or remove it", pin.job)
    if not view.jobs and not view.cluster.gpus:
        failures = [entry.report for entry in collected if entry.report.reason]
        first = f"; {failures[0].source}: {failures[0].reason}" if failures else ""
        raise StoreError(
            f"nothing to plan: the store holds no samples in the {planning.history_days} days "
            f"before {now:%Y-%m-%d %H:%M} UTC{first}",
            "Import a trace (`trimtab import`) or name a source (`--prometheus URL`).",
        )
    basis = _basis(world, view, now)
    targets = _targets(view)
    withheld = stale_reason(reader, as_of=view.as_of, now=now)
    return PlanningFacts(
        now=now,
        basis=basis,
        groups=forecast_groups(
            view.groups,
            as_of=view.as_of,
            jobs=view.known_jobs,
            racks=rack_forecasts(reader, settings.power.domains, view.as_of),
            settings=planning,
            ray_address=settings.ray.address,
            progress=lambda done, total: world.progress("forecast groups", done, total),
        ),
        workloads=workload_outlooks(reader, view, settings, now),
        slow_work=slow_work_causes(reader, view.jobs, view.as_of),
        withheld=withheld,
        resting=dict.fromkeys(targets, withheld)
        if withheld
        else resting(reader, view.jobs, now, view.as_of) | over,
        rejections=rejections(reader, now, REJECTED_DAYS, view.jobs),
        proposed_before=reader.changes_proposed("" if basis.last is None else basis.last.plan_id),
        reconsidered=_outside_interval(reader, view, basis.last),
    )


def _basis(world: World, view: PlanningView, now: datetime) -> PlanBasis:
    settings, reader = world.settings, world.store.reader
    models = power_models(view.readings, world.catalogue)
    forecasts = forecast_demand(
        view.history,
        jobs=view.jobs,
        as_of=view.as_of,
        settings=settings.planning,
        ray_address=settings.ray.address,
        progress=lambda done, total: world.progress("forecast", done, total),
    )
    forecasts = with_estimated_power(forecasts, jobs=view.jobs, models=models, signals=view.signals)
    return PlanBasis(
        settings=settings,
        view=view,
        forecasts=forecasts,
        catalogue=world.catalogue,
        carbon=world.carbon,
        models=models,
        memory=memory_findings(reader, view, forecasts),
        serving=with_fits(
            service_outlooks(reader, settings.serving, now),
            priced(world.catalogue, settings, view.as_of),
            objective_of(settings.serving),
            reader,
        ),
        grid=grid_as_paid(settings, now),
        last=reader.latest_plan(),
    )


def plan_from(facts: PlanningFacts, progress: Progress = silent) -> tuple[Plan, Advice]:
    """Return the plan of the facts and what it advises. Errors: ImpossibleProblemError."""
    basis = facts.basis
    view, planning, ray = basis.view, basis.settings.planning, basis.settings.ray.address
    problem = problem_from(basis)
    plan = build_plan(
        problem,
        budget_seconds=planning.budget_seconds,
        created_at=facts.now,
        last=basis.last,
        reconsidered=facts.reconsidered,
        workforce=RayWorkforce(ray) if ray else None,
        progress=lambda done, total: progress("plan", done, total),
    )
    advice = advise(
        plan,
        problem,
        groups=facts.groups,
        past_runs=past_run_seconds(view.known_jobs),
        memory=basis.memory,
        services=basis.serving,
        slow=facts.slow_work,
        resting=facts.resting,
        rejections=facts.rejections,
        last=basis.last,
        proposed_before=facts.proposed_before,
    )
    unread_jobs = unread(view.known_jobs, view.read, view.cluster.nodes)
    plan = replace(
        plan,
        jobs=tuple(replace(job, idle=advice.idle.get(job.job_id)) for job in plan.jobs),
        unread_jobs=len(unread_jobs),
        unread_gpus=boards_of_jobs(unread_jobs, view.cluster.shares),
    )
    return plan, advice


def _without_ended(view: PlanningView, over: Collection[str], slot: timedelta) -> PlanningView:
    """Return the view without jobs that are over by their scheduler's word and by their readings.

    A job that still reports is planned for, whatever its scheduler says: its GPUs are not free. It
    does not once the newest reading of every board names another job or none.
    """
    last = view.history.groupby("job_id")["slot_start"].max()
    holders = {job_id for gpu in view.cluster.gpus for job_id in gpu.holders}
    quiet = {
        job_id
        for job_id in over
        if job_id not in holders
        or (job_id in last and last[job_id] + slot + _REPORT_DELAY <= view.as_of)
    }
    return replace(view, jobs=tuple(job for job in view.jobs if job.job_id not in quiet))


def _targets(view: PlanningView) -> dict[str, str]:
    """Return the targets of changes, with the namespaces of jobs; '' for boards and nodes."""
    fleet = {name for gpu in view.cluster.gpus for name in (gpu.gpu_model, gpu.node)} | {
        node.name for node in view.cluster.nodes
    }
    return dict.fromkeys(fleet, "") | {job.job_id: job.namespace for job in view.jobs}


def _outside_interval(reader: StoreReader, view: PlanningView, last: Plan | None) -> frozenset[str]:
    """Return the jobs that left the intervals of the forecasts behind the last plan."""
    if last is None or view.history.empty:
        return frozenset()
    since = view.history[view.history["slot_start"] >= last.slot_starts[0]]
    if since.empty:
        return frozenset()
    behind = reader.forecasts(last.plan_id)
    return outside_interval(behind, since)
