"""`trimtab cycle` and `trimtab collect`: the stages that write facts and plans."""

import argparse
import sys
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from collectors.shared.collect import MAX_SKEW, is_incomplete
from dashboard.accounting.savings.idle_bridge import idle_sum
from dashboard.accounting.savings.shown_money import as_shown
from dashboard.cli.terminal.context import progress_on_stderr, settings_of
from dashboard.cli.terminal.output import PARTIAL, print_json, print_rows, range_text, say
from dashboard.common.replay_clock import NOT_APPLIED, as_of_text
from dashboard.common.stale_readings import REMEDY
from dashboard.cycle.context import World
from dashboard.cycle.run_cycle import CycleOutcome, collect_and_keep, run_cycle
from dashboard.cycle.wiring import build_world
from dashboard.resources.forecast_rows import forecast_row, group_row
from dashboard.resources.listings import REPORT_COLUMNS
from dashboard.resources.plan_documents import plan_figures
from dashboard.resources.plan_rows import autoscaler_note
from dashboard.resources.rows import source_row
from dashboard.submission.submit.watch import watch_all
from data.base.clock import utc_now
from data.base.compiled import compiling
from data.base.counts import count_text
from data.base.errors import SourceNotConfiguredError
from data.facts.fleet import SourceReport, SourceState
from data.records.forecasts import ForecastSkipped
from data.records.recommendations import RecommendationRow
from data.settings.all_settings import Settings
from planner.proposals.portfolio import Portfolio

_CENT = 0.005


def planning_time(world: World, time: datetime | None) -> datetime:
    """Return the time to plan at: as asked, else the wall clock, else the newest sample.

    Without any live source the store holds a recording, whose newest sample is its present.
    """
    if time is not None:
        return time
    latest = world.store.reader.latest_sample_at()
    return latest if not world.collectors and latest is not None else utc_now()


def _without_forgetting(world: World, time: datetime | None) -> World:
    """Return world that deletes nothing when the time asked for has not come yet, and say so."""
    now = utc_now()
    if time is None or time <= now + MAX_SKEW:
        return world
    say(
        f"trimtab: --now {time:%Y-%m-%d %H:%M} UTC lies after this machine's clock "
        f"({now:%Y-%m-%d %H:%M} UTC): nothing is deleted for its age",
        file=sys.stderr,
    )
    return replace(world, forgets=False)


def outcome_document(outcome: CycleOutcome, settings: Settings) -> dict[str, Any]:
    """Return the one object that `cycle --format json` prints."""
    plan = outcome.plan
    return {
        "outcome": {
            "cycle_id": outcome.cycle_id,
            "now": outcome.now,
            "as_of": outcome.as_of,
            "seconds": outcome.seconds,
            "rows_kept": outcome.rows_kept,
            "sources": [asdict(source_row(report)) for report in outcome.reports],
        },
        "forecasts": [forecast_row(forecast) for forecast in outcome.forecasts],
        "group_forecasts": [group_row(forecast) for forecast in outcome.group_forecasts],
        "plan": None if plan is None else plan_figures(plan),
        "withheld": outcome.withheld,
        "recommendations": [
            as_shown(recommendation, settings).as_row(RecommendationRow)
            for recommendation in outcome.recommendations
        ],
        "kept": outcome.kept,
        "portfolio": None if outcome.portfolio is None else asdict(outcome.portfolio),
    }


def print_outcome(outcome: CycleOutcome, settings: Settings) -> None:
    """Print a cycle for people: what was found in one sentence, then the recommendations."""
    skipped = sum(isinstance(forecast, ForecastSkipped) for forecast in outcome.forecasts)
    plan = outcome.plan
    say(
        f"As of {outcome.as_of:%Y-%m-%d %H:%M} UTC: {count_text(len(outcome.jobs), 'job')}, "
        f"{len(outcome.forecasts) - skipped} forecast, {skipped} skipped; "
        f"{count_text(len(outcome.recommendations), 'recommendation')} in {outcome.seconds:.1f} s."
    )
    if plan is not None:
        say(
            f"Plan {plan.plan_id[:12]}: {plan.cost:.2f} {plan.currency} over "
            f"{count_text(len(plan.slot_starts), 'slot')} (keeping today{autoscaler_note(plan)}: "
            f"{plan.cost_of_now:.2f}), lower bound {plan.lower_bound:.2f}, "
            f"certified gap {100 * plan.gap_ratio:.2f} %."
        )
        for violation in plan.violations:
            say(f"The plan pays for breaking a limit: {violation}.")
    print_rows(
        [
            {
                "id": recommendation.recommendation_id,
                "action": str(recommendation.action),
                "job": recommendation.target,
                "now": recommendation.now.describe(),
                "proposed": recommendation.summary,
                "saves": range_text(as_shown(recommendation, settings).savings.cost),
                "energy": range_text(recommendation.savings.energy_kwh),
                "risk": str(recommendation.risk),
            }
            for recommendation in outcome.recommendations
        ],
        "table",
        columns=("id", "action", "job", "now", "proposed", "saves", "energy", "risk"),
        empty="Nothing is recommended." if outcome.withheld else "No change is worth recommending.",
    )
    if outcome.portfolio is not None and outcome.recommendations:
        say(portfolio_line(outcome.portfolio))
    if outcome.plan is not None and (sentence := idle_sum(outcome.plan).sentence()):
        say(sentence)


def portfolio_line(sums: Portfolio) -> str:
    """Return the joint savings of all recommendations in words, beside the plan's savings."""
    unit = sums.unit
    parts = {
        "jobs": sums.recommended,
        "nodes powered down": sums.nodes,
        "keeping jobs from running out of memory": sums.for_memory,
        "advice on services": sums.services,
        "work that is slow": sums.programs,
        "jobs that share GPUs": sums.sharing,
    }
    rest = {
        "changes that are not worth or not safe to recommend": sums.not_recommended,
        "further changes of these jobs over time": sums.timing,
        "work that is expected to be missed, priced": sums.service,
        "nodes and limits that jobs share": sums.shared,
    }
    others = (sums.nodes, sums.for_memory, sums.services, sums.programs, sums.sharing)
    total = sum(abs(saved) for saved in others)
    made_of = _names(parts) if total >= _CENT else ""
    others_text = _names(rest)
    return (
        f"Approved together they save {sums.together:.2f} {unit} and {sums.gpu_hours:.0f} GPU-hours"
        + (
            f"; advice would save another {sums.advised:.2f} {unit} if somebody followed it"
            if abs(sums.advised) >= _CENT
            else ""
        )
        + (f" ({made_of})" if made_of else "")
        + (
            f"; {sums.taken:.2f} {unit} are already taken off for changes that serve jobs and cost"
            if sums.taken >= _CENT
            else ""
        )
        + f". The plan counts {sums.total:.2f} {unit}: {sums.recommended:.2f} for these jobs"
        + (f"; {others_text}" if others_text else "")
        + "."
        + (
            " No plan counts the idle power of GPUs in nodes that are off."
            if sums.nodes >= _CENT
            else ""
        )
    )


def _names(amounts: dict[str, float]) -> str:
    """Return the amounts that are worth a word, with their names."""
    return "; ".join(
        f"{what} {amount:+.2f}" for what, amount in amounts.items() if abs(amount) >= _CENT
    )


def _warn_of_sources(reports: tuple[SourceReport, ...]) -> bool:
    """Say on stderr which sources failed or fell short, and what they warn of; tell of any."""
    for report in reports:
        failed = report.state is SourceState.FAILED
        if is_incomplete(report):
            how = "failed" if failed else "fell short"
            say(f"trimtab: source {report.source} {how}: {report.reason}", file=sys.stderr)
        for warning in report.warnings:
            say(f"trimtab: source {report.source}: {warning}", file=sys.stderr)
    return any(map(is_incomplete, reports))


def cycle(options: argparse.Namespace) -> int:
    """Run one cycle and print its outcome; 3 when a source fell short or readings are too old."""
    loaded = settings_of(options)
    with (
        progress_on_stderr(options) as progress,
        compiling(lambda count: progress("compile, once", count, count)),
    ):
        world = build_world(loaded.settings, progress=progress)
        with world.store:
            watch_all(world.store, loaded.settings, now=utc_now())
            world = _without_forgetting(world, options.now)
            outcome = run_cycle(world, now=planning_time(world, options.now))
            if (recording := world.store.reader.recording()) is not None:
                say(f"{as_of_text(recording)}. {NOT_APPLIED}", file=sys.stderr)
    if options.format == "json":
        print_json(outcome_document(outcome, loaded.settings))
    else:
        print_outcome(outcome, loaded.settings)
    if outcome.withheld:
        say(f"trimtab: {outcome.withheld}. {REMEDY}", file=sys.stderr)
    return PARTIAL if _warn_of_sources(outcome.reports) or outcome.withheld else 0


def collect(options: argparse.Namespace) -> int:
    """Collect from every configured source; 3 when one failed or fell short."""
    loaded = settings_of(options)
    with progress_on_stderr(options) as progress:
        world = build_world(loaded.settings, progress=progress)
        with world.store:
            if not world.collectors:
                raise SourceNotConfiguredError(
                    "no source is configured",
                    "Give --prometheus URL or set prometheus.url in trimtab.toml.",
                )
            world = _without_forgetting(world, options.now)
            reports, _rows = collect_and_keep(world, options.now or utc_now())
    print_rows(
        [asdict(source_row(report)) for report in reports],
        options.format,
        columns=REPORT_COLUMNS,
        empty="No source ran.",
    )
    return PARTIAL if _warn_of_sources(reports) else 0
