"""One cycle, forward only: collect, keep, read, forecast, plan, recommend, keep.

No step reaches back. Time enters once, as `now`; the wall clock is read only for durations.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from collectors.shared.collect import collect_all
from collectors.shared.collector import Window
from dashboard.common.cycle_id import begin_cycle
from dashboard.common.stale_readings import REMEDY
from dashboard.cycle.context import Progress, World
from dashboard.cycle.grid_refresh import refresh_grid
from dashboard.cycle.past_collection import collect_past
from dashboard.cycle.planning_facts import PlanningFacts, plan_from, read_facts
from data.base.clock import require_utc
from data.base.counts import count_text
from data.base.errors import sentence
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue, state_gpu_models
from data.facts.collected import Collected
from data.facts.columns import SAMPLES, empty_frame
from data.facts.fleet import SourceReport, SourceState
from data.facts.identifiers import SHORT_ID_LENGTH, digest_of
from data.facts.jobs import Job
from data.records.forecasts import DemandForecast, ForecastSkipped, GroupForecast
from data.records.plans import Plan
from data.records.recommendations import Recommendation
from data.settings.all_settings import Settings
from data.store.engine.disk_space import require_room
from data.store.handles.remote_store import holder_of, shared_store
from forecasting.distributed.ray_driver import present
from planner.advise import Advice
from planner.proposals.portfolio import Portfolio

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleOutcome:
    """Result of one cycle. `kept` maps a job without recommendation to the reason.

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
    require_room(reader.free_mib())
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
    collected = collect_past(world, collected, asked=since, oldest=oldest)
    rows = world.store.keep(
        *collected, progress=lambda done, total: world.progress("roll up", done, total)
    )
    # Not from `now`: a clock that runs ahead of the samples would delete what is still young.
    observed = reader.observed_until(now) if world.forgets else None
    if observed is not None:
        world.store.forget(settings.retention, observed)
    world.store.keep_history(
        slot_seconds=settings.planning.slot_minutes * 60,
        progress=lambda done, total: world.progress("keep history", done, total),
    )
    return collected, rows


def _planned(
    world: World, collected: tuple[Collected, ...], now: datetime
) -> tuple[PlanningFacts, Plan, Advice]:
    """Return the facts, the plan and its advice; by the world's child they come without frames."""
    settings = world.settings
    refresh_grid(settings, now)
    ray = replace(settings.ray, address=present(settings.ray.address))
    settings = replace(settings, ray=ray)
    file = world.store.file
    if world.child is not None and (file is None or holder_of(file)):
        answers = [replace(entry, samples=empty_frame(SAMPLES)) for entry in collected]
        answer: tuple[PlanningFacts, Plan, Advice] = world.child.call(
            plan_through_holder, settings, answers, now, progress=world.progress
        )
        return answer
    facts = read_facts(replace(world, settings=settings), collected, now)
    return facts, *plan_from(facts, world.progress)


def plan_through_holder(
    settings: Settings, collected: Sequence[Collected], now: datetime, progress: Progress
) -> tuple[PlanningFacts, Plan, Advice]:
    """Return the result of `_planned`, read from the store by way of the process that holds it."""
    state_gpu_models(settings.catalogue.gpu_models)
    with shared_store(settings.store.url) as store:
        world = World(
            settings=settings,
            store=store,
            collectors=(),
            catalogue=load_gpu_catalogue(),
            carbon=load_carbon_table().get(settings.energy.region),
            progress=progress,
        )
        facts = read_facts(world, tuple(collected), now)
        return facts.without_frames(), *plan_from(facts, progress)


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
    collected, rows = _collected(world, now)
    reports = tuple(entry.report for entry in collected)
    facts, plan, advice = _planned(world, collected, now)
    basis = facts.basis
    cycle_id = mark + digest_of([now, plan.plan_id])[: SHORT_ID_LENGTH - len(mark)]
    world.progress("keep", 0, 1)
    seconds = time.monotonic() - started
    world.store.keep_cycle(
        cycle_id=cycle_id,
        started_at=now,
        finished_at=now + timedelta(seconds=seconds),
        forecasts=basis.forecasts,
        group_forecasts=facts.groups,
        workloads=facts.workloads,
        memory=basis.memory,
        serving=basis.serving,
        slow_work=facts.slow_work,
        plan=plan,
        recommendations=advice.recommendations,
    )
    if basis.grid.why_not:
        logger.warning("plan without a forecast of the grid: %s", basis.grid.why_not)
    if facts.withheld:
        logger.warning("%s %s", sentence(facts.withheld), REMEDY)
    for report in reports:
        if report.state is not SourceState.RAN:
            logger.warning("source %s %s: %s", report.source, report.state, report.reason)
    skipped = sum(isinstance(forecast, ForecastSkipped) for forecast in basis.forecasts)
    logger.info(
        "cycle %s ended in %.1f s: %d of %s ran, %s, %s, %d forecast, %s",
        cycle_id,
        seconds,
        sum(report.state is SourceState.RAN for report in reports),
        count_text(len(reports), "source"),
        count_text(rows, "new sample"),
        count_text(len(basis.view.jobs), "job"),
        len(basis.forecasts) - skipped,
        count_text(len(advice.recommendations), "recommendation"),
    )
    return CycleOutcome(
        cycle_id=cycle_id,
        now=now,
        as_of=basis.view.as_of,
        reports=reports,
        rows_kept=rows,
        jobs=basis.view.jobs,
        forecasts=basis.forecasts,
        group_forecasts=facts.groups,
        plan=plan,
        recommendations=advice.recommendations,
        kept=dict(advice.kept),
        portfolio=advice.portfolio,
        seconds=seconds,
        withheld=facts.withheld,
    )
