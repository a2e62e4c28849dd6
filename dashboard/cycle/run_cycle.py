"""One cycle, forward only: collect, keep, read, forecast, plan, recommend, keep.

No step reaches back. Time enters once, as `now`; the wall clock is read only for durations.
"""

import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from collectors.shared.collect import collect_all
from collectors.shared.collector import Window
from dashboard.accounting.cost.prices import as_paid, grid_as_paid, priced
from dashboard.accounting.facility.heat import foreseen_racks
from dashboard.common.cycle_id import begin_cycle
from dashboard.common.stale_readings import WAY_OUT, why_too_old
from dashboard.cycle.context import World
from dashboard.cycle.cooldowns import dismissed_targets, gone, rejections, resting
from dashboard.cycle.grid_refresh import refresh_grid
from dashboard.cycle.make_problem import problem_of_view
from dashboard.cycle.memory_outlook import foreseen_memory
from dashboard.cycle.outlooks import growth_facts
from dashboard.cycle.prepare_answers import prepare_answers
from dashboard.cycle.slow_work_outlook import foreseen_slow_work
from dashboard.cycle.workload_outlook import foreseen_workloads
from dashboard.serving.fit import with_fits
from dashboard.serving.outlook import foreseen_serving, objective_of
from data.base.clock import require_utc
from data.base.counts import count_text
from data.base.errors import StoreError, sentence
from data.boards.board_shares import boards_of_jobs
from data.boards.unplanned_jobs import unread
from data.facts.collected import Collected
from data.facts.fleet import SourceReport, SourceState
from data.facts.identifiers import SHORT_ID_LENGTH, digest_of
from data.facts.jobs import Job
from data.records.forecasts import DemandForecast, ForecastSkipped, GroupForecast
from data.records.plans import Plan
from data.records.recommendations import Recommendation
from data.store.engine.disk_space import require_room
from data.store.facts.planning_view import PlanningView
from forecasting.distributed.ray_workers import RayWorkforce
from forecasting.forecast import forecast_demand
from forecasting.groups.group_forecasts import forecast_groups
from forecasting.jobs.surprises import outside_interval
from forecasting.power.estimated import power_models, with_estimated_power
from forecasting.series.past_runs import past_run_seconds
from planner.advise import advise
from planner.plan import build_plan
from planner.proposals.portfolio import Portfolio

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleOutcome:
    """What one cycle did. `kept` maps a job without recommendation to the reason.

    `withheld` is why nothing at all is proposed, '' where something may be.
    """

    cycle_id: str
    now: datetime
    as_of: datetime
    reports: tuple[SourceReport, ...]
    rows_kept: int
    jobs: tuple[Job, ...]
    forecasts: tuple[DemandForecast | ForecastSkipped, ...]
    group_forecasts: tuple[GroupForecast, ...]
    plan: Plan | None
    recommendations: tuple[Recommendation, ...]
    kept: dict[str, str] = field(default_factory=dict)
    portfolio: Portfolio | None = None
    seconds: float = 0.0
    withheld: str = ""


OVERLAP = timedelta(minutes=5)
"""Asked for again at every collection: a server may have learned of it late."""


def collect_and_keep(world: World, now: datetime) -> tuple[tuple[SourceReport, ...], int]:
    """Collect from every source and keep the facts; give the reports and the new rows.

    Errors: NoRoomError while the disk of the store is nearly full; StoreError.
    """
    collected, rows = _collected(world, now)
    return tuple(entry.report for entry in collected), rows


def _collected(world: World, now: datetime) -> tuple[tuple[Collected, ...], int]:
    """Collect from every source and keep the facts; give them and the new rows.

    A source is asked from where its last complete answer ended, however long ago within the
    retention of samples, so that a gap is caught up; a new one from the look-back.
    """
    settings, reader = world.settings, world.store.reader
    require_room(reader.free_mib(), settings.store.min_free_mib)
    lookback = now - timedelta(hours=settings.prometheus.lookback_hours)
    oldest = now - timedelta(days=settings.retention.raw_days)
    since = {
        source: max(oldest, until - OVERLAP)
        for source, until in reader.collected_until(now).items()
    }
    if lookback < oldest and any(entry.name not in since for entry in world.collectors):
        logger.warning(
            "prometheus.lookback_hours (%g) reaches further back than samples are kept: the first "
            "collection asks for retention.raw_days (%g, %g h). Raise that, or lower the look-back",
            settings.prometheus.lookback_hours,
            settings.retention.raw_days,
            24 * settings.retention.raw_days,
        )
    collected = collect_all(
        world.collectors,
        Window(start=max(oldest, lookback), end=now),
        since=since,
        progress=world.progress,
    )
    rows = world.store.keep(
        *collected, progress=lambda done, total: world.progress("roll up", done, total)
    )
    # Not from `now`: a clock that runs ahead of the samples would delete what is still young.
    observed = reader.observed_until(now) if world.forgets else None
    if observed is not None:
        world.store.forget(settings.retention, observed)
    return collected, rows


def run_cycle(world: World, *, now: datetime) -> CycleOutcome:
    """Run one cycle at `now` (UTC). Errors: StoreError when there is nothing to plan on.

    A failing source is a report, not an error; a job without enough history is a skipped forecast.
    """
    require_utc("now", now)
    started = time.monotonic()
    mark = begin_cycle(now)
    logger.info(
        "cycle started: %s, as of %s UTC",
        count_text(len(world.collectors), "source"),
        f"{now:%Y-%m-%d %H:%M:%S}",
    )
    planning = world.settings.planning
    collected, rows = _collected(world, now)
    reports = tuple(entry.report for entry in collected)
    view = world.store.reader.planning_view(
        now, slot_seconds=planning.slot_minutes * 60, history_days=planning.history_days
    )
    over = gone(view.jobs, collected)
    view = _without_ended(view, over, timedelta(minutes=planning.slot_minutes))
    for pin in planning.pins:
        if not any(fnmatchcase(job.job_id, pin.job) for job in view.jobs):
            logger.warning("planning.pins: no job fits %r. Correct it or remove it", pin.job)
    if not view.jobs and not view.cluster.gpus:
        raise StoreError(
            f"nothing to plan: the store holds no samples in the {planning.history_days} days "
            f"before {now:%Y-%m-%d %H:%M} UTC" + _first_failure(reports),
            "Import a trace (`trimtab import`) or name a source (`--prometheus URL`).",
        )
    forecasts = forecast_demand(
        view.history,
        jobs=view.jobs,
        as_of=view.as_of,
        settings=planning,
        ray_address=world.settings.ray.address,
        progress=lambda done, total: world.progress("forecast", done, total),
    )
    models = power_models(view.readings, world.catalogue)
    forecasts = with_estimated_power(forecasts, jobs=view.jobs, models=models, signals=view.signals)
    group_forecasts = forecast_groups(
        view.groups,
        as_of=view.as_of,
        jobs=view.known_jobs,
        racks=foreseen_racks(world.store.reader, world.settings.power.domains, view.as_of),
        settings=planning,
        ray_address=world.settings.ray.address,
        progress=lambda done, total: world.progress("forecast groups", done, total),
    )
    workloads = foreseen_workloads(world.store.reader, view, world.settings, now)
    memory = foreseen_memory(world.store.reader, view, forecasts)
    catalogue = priced(world.catalogue, world.settings, view.as_of)
    serving = foreseen_serving(world.store.reader, world.settings.serving, now)
    serving = with_fits(
        serving, catalogue, objective_of(world.settings.serving), world.store.reader
    )
    slow = foreseen_slow_work(world.store.reader, view.jobs, view.as_of)
    past_runs = past_run_seconds(view.known_jobs)
    refresh_grid(world.settings, now)
    grid = grid_as_paid(world.settings, now)
    problem = problem_of_view(
        view,
        forecasts,
        as_paid(world.settings),
        catalogue=catalogue,
        carbon=world.carbon,
        models=models,
        memory=memory,
        serving=serving,
        grid=grid,
    )
    last = world.store.reader.latest_plan()
    plan = build_plan(
        problem,
        budget_seconds=planning.budget_seconds,
        created_at=now,
        last=last,
        reconsidered=_outside_interval(world, view, last),
        workforce=RayWorkforce(world.settings.ray.address) if world.settings.ray.address else None,
        progress=lambda done, total: world.progress("plan", done, total),
    )
    withheld = why_too_old(world.store.reader, world.settings, as_of=view.as_of, now=now)
    targets = _targets(view)
    advice = advise(
        plan,
        problem,
        groups=group_forecasts,
        past_runs=past_runs,
        memory=memory,
        services=serving,
        slow=slow,
        resting=dict.fromkeys(targets, withheld)
        if withheld
        else resting(world.store.reader, view.jobs, now, view.as_of) | over,
        rejections={
            **rejections(world.store.reader, now, planning.rejected_days, view.jobs),
            **dismissed_targets(world.store.reader, targets, now),
        },
        last=last,
        proposed_before=world.store.reader.changes_proposed("" if last is None else last.plan_id),
        growth=growth_facts(world.store.reader, view, planning, now),
    )
    quiet = unread(view.known_jobs, view.read, view.cluster.nodes)
    plan = replace(
        plan,
        jobs=tuple(replace(job, idle=advice.idle.get(job.job_id)) for job in plan.jobs),
        unread_jobs=len(quiet),
        unread_gpus=boards_of_jobs(quiet, view.cluster.shares),
    )
    cycle_id = mark + digest_of([now, plan.plan_id])[: SHORT_ID_LENGTH - len(mark)]
    world.progress("keep", 0, 1)
    seconds = time.monotonic() - started
    world.store.keep_cycle(
        cycle_id=cycle_id,
        started_at=now,
        finished_at=now + timedelta(seconds=seconds),
        forecasts=forecasts,
        group_forecasts=group_forecasts,
        workloads=workloads,
        memory=memory,
        serving=serving,
        slow_work=slow,
        plan=plan,
        recommendations=advice.recommendations,
    )
    world.progress("prepare", 0, 1)
    prepare_answers(world.store, world.settings, now=now)
    if grid.why_not:
        logger.warning("plan without a forecast of the grid: %s", grid.why_not)
    if withheld:
        logger.warning("%s %s", sentence(withheld), WAY_OUT)
    for report in reports:
        if report.state is not SourceState.RAN:
            logger.warning("source %s %s: %s", report.source, report.state, report.reason)
    skipped = sum(isinstance(forecast, ForecastSkipped) for forecast in forecasts)
    logger.info(
        "cycle %s ended in %.1f s: %d of %s ran, %s, %s, %d forecast, %s",
        cycle_id,
        seconds,
        sum(report.state is SourceState.RAN for report in reports),
        count_text(len(reports), "source"),
        count_text(rows, "new sample"),
        count_text(len(view.jobs), "job"),
        len(forecasts) - skipped,
        count_text(len(advice.recommendations), "recommendation"),
    )
    return CycleOutcome(
        cycle_id=cycle_id,
        now=now,
        as_of=view.as_of,
        reports=reports,
        rows_kept=rows,
        jobs=view.jobs,
        forecasts=forecasts,
        group_forecasts=group_forecasts,
        plan=plan,
        recommendations=advice.recommendations,
        kept=dict(advice.kept),
        portfolio=advice.portfolio,
        seconds=seconds,
        withheld=withheld,
    )


_LATE = timedelta(minutes=5)
"""So much later than others a job may report."""


def _without_ended(view: PlanningView, over: Collection[str], slot: timedelta) -> PlanningView:
    """Return the view without jobs that are over by their scheduler's word and by their readings.

    A job that still reports is planned for, whatever its scheduler says: its GPUs are not free. It
    does not once the newest reading of every board names another job or none.
    """
    last = view.history.groupby("job_id")["slot_start"].max()
    held = {job_id for gpu in view.cluster.gpus for job_id in gpu.holders}
    quiet = {
        job_id
        for job_id in over
        if job_id not in held or (job_id in last and last[job_id] + slot + _LATE <= view.as_of)
    }
    return replace(view, jobs=tuple(job for job in view.jobs if job.job_id not in quiet))


def _targets(view: PlanningView) -> dict[str, str]:
    """Return what changes may be of, with the namespaces of jobs; '' for boards and nodes."""
    fleet = {name for gpu in view.cluster.gpus for name in (gpu.gpu_model, gpu.node)} | {
        node.name for node in view.cluster.nodes
    }
    return dict.fromkeys(fleet, "") | {job.job_id: job.namespace for job in view.jobs}


def _outside_interval(world: World, view: PlanningView, last: Plan | None) -> frozenset[str]:
    """Return the jobs that left the intervals of the forecasts behind the last plan."""
    if last is None or view.history.empty:
        return frozenset()
    since = view.history[view.history["slot_start"] >= last.slot_starts[0]]
    if since.empty:
        return frozenset()
    behind = world.store.reader.forecasts(last.plan_id)
    return outside_interval(behind, since)


def _first_failure(reports: Sequence[SourceReport]) -> str:
    failed = [report for report in reports if report.reason]
    return f"; {failed[0].source}: {failed[0].reason}" if failed else ""
