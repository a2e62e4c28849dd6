"""The past of sources that were asked for the first time: kept a day at a time, newest first."""

import logging
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from collectors.shared.collector import HistoryCollector, Window
from dashboard.cycle.context import World
from data.base.errors import CollectorError
from data.facts.collected import Collected
from data.facts.fleet import SourceReport, SourceState

logger = logging.getLogger(__name__)

SECONDS_A_CYCLE = 120.0
"""Wall-clock time for the past in one cycle; the next one goes on where it ended."""
_DAY = timedelta(days=1)


def collect_past(
    world: World, collected: tuple[Collected, ...], *, asked: Collection[str], oldest: datetime
) -> tuple[Collected, ...]:
    """Keep what sources hold from before their first collection, back to `oldest`.

    `asked` are the sources that answered in an earlier cycle: what was left of their past then is
    read on. Returns the batches; their reports say how far back each source holds and was read.
    """
    earlier = {report.source: report for report in world.store.reader.source_reports()}
    sources = {collector.name: collector for collector in world.collectors}
    ends = time.monotonic() + SECONDS_A_CYCLE
    batches = []
    for batch in collected:
        name, report = batch.report.source, batch.report
        source = sources.get(name)
        if isinstance(source, HistoryCollector):
            if name in asked:
                before = earlier[name]
                report = replace(report, read_from=before.read_from, holds_from=before.holds_from)
            elif report.state is SourceState.RAN:
                report = replace(report, read_from=report.window_start)
            if report.state is SourceState.RAN:
                report = _with_past(world, source, report, oldest, ends)
        batches.append(replace(batch, report=report))
    return tuple(batches)


def _with_past(
    world: World, source: HistoryCollector, report: SourceReport, oldest: datetime, ends: float
) -> SourceReport:
    """Return the report after reading what time is left for of the source's past."""
    if report.read_from is None or report.window_end is None:
        return report
    try:
        if report.holds_from is None:
            window = Window(start=oldest, end=report.window_end)
            report = replace(report, holds_from=source.reaches_back(window))
        for reached in _pieces(world, source, report, oldest):
            report = replace(report, read_from=reached)
            logger.info("the past of %s: read %s", source.name, report.past)
            if time.monotonic() >= ends:
                break
    except CollectorError as error:
        logger.warning("the past of %s, again in the next cycle: %s", source.name, error)
    return report


def _pieces(
    world: World, source: HistoryCollector, report: SourceReport, oldest: datetime
) -> Iterator[datetime]:
    """Keep piece after piece of a source's past; yield how far back they reach."""
    if report.read_from is None or report.holds_from is None:
        return
    end, until = report.read_from, max(oldest, report.holds_from)
    days = -((until - end) // _DAY)
    for number in range(days):
        world.progress("read the past, d", number, days)
        start = max(until, end - _DAY)
        piece = source.collect_past(Window(start=start, end=end))
        # Without an end it says nothing of where the next collection starts.
        piece_report = replace(
            piece.report,
            window_end=None,
            complete_until=None,
            holds_from=report.holds_from,
            read_from=start,
        )
        world.store.keep(replace(piece, report=piece_report))
        end = start
        yield end
        world.progress("read the past, d", number + 1, days)
