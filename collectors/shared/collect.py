"""Ask every source; one that fails becomes a report, the others still run."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from collectors.shared.collector import Collector, Window
from data.base.errors import CollectorError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.fleet import SourceReport, SourceState
from data.facts.gpu_resources import UNREAD_SUFFIX
from data.facts.identifiers import digest_of

logger = logging.getLogger(__name__)
MAX_SKEW = timedelta(minutes=5)
"""A sample further ahead of the window is a wrong clock: it would mask all later samples."""
_LAG = timedelta(hours=1)


def collect_all(
    collectors: Sequence[Collector],
    window: Window,
    *,
    since: Mapping[str, datetime] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> tuple[Collected, ...]:
    """Return one Collected per source, in order; a failed one is empty and says why.

    `since` gives a source's own start of the window: where its last complete answer ended.
    Samples more than five minutes ahead of the window are dropped and counted. A source that gave
    samples is complete up to its newest one: what is later comes late, or our clock is ahead.
    """
    collected = []
    for position, collector in enumerate(collectors):
        if progress is not None:
            progress("collect", position, len(collectors))
        span = replace(window, start=(since or {}).get(collector.name, window.start))
        try:
            result = _with_unknown_models(_without_future(collector.collect(span)))
            result = _up_to_newest(result)
            collected.append(replace(result, report=_with_shortfall(result.report)))
        except CollectorError as error:
            collected.append(_failed(collector.name, span, error))
    if progress is not None and collectors:
        progress("collect", len(collectors), len(collectors))
    return tuple(collected)


def _without_future(collected: Collected) -> Collected:
    end = collected.report.window_end
    if end is None or collected.samples.empty:
        return collected
    ahead = collected.samples["sampled_at"] > end + MAX_SKEW
    if not ahead.any():
        return collected
    count = int(ahead.sum())
    dropped = (*collected.report.dropped, ("in-the-future", count))
    seconds = (collected.samples["sampled_at"].max() - end).total_seconds()
    warning = (
        f"{collected.report.source}: {count} samples lie up to {seconds:,.0f} s ahead of this "
        "clock and are dropped. Set the clock of the source, or of this machine, by NTP."
    )
    return replace(
        collected,
        samples=collected.samples[~ahead].reset_index(drop=True),
        report=replace(
            collected.report,
            dropped=tuple(sorted(dropped)),
            samples=int((~ahead).sum()),
            warnings=(*collected.report.warnings, warning),
        ),
    )


def _with_unknown_models(collected: Collected) -> Collected:
    """Return it with a warning for each GPU model that the catalogue lacks; they are logged too."""
    boards = collected.samples.drop_duplicates("gpu_uuid", keep="last")
    warnings = load_gpu_catalogue().lacking(boards["gpu_model"])
    report = collected.report
    for warning in warnings:
        logger.warning("%s: %s", report.source, warning)
    return replace(collected, report=replace(report, warnings=(*report.warnings, *warnings)))


def _up_to_newest(collected: Collected) -> Collected:
    """Return the batch, complete up to its newest sample if that is long before the end.

    Otherwise a collection by a clock that ran ahead would leave a hole once it is set back.
    """
    report = collected.report
    reached = report.complete_until or report.window_end
    if reached is None or collected.samples.empty:
        return collected
    newest = collected.samples["sampled_at"].max().to_pydatetime()
    if newest + MAX_SKEW >= reached:
        return collected
    return replace(collected, report=replace(report, complete_until=newest))


def is_incomplete(report: SourceReport) -> bool:
    """Return whether a source failed, or its answers end before the time that was asked for.

    A step of several minutes alone is no shortfall; a warning about the last minutes is one.
    """
    if report.state is SourceState.FAILED:
        return True
    if report.complete_until is None or report.window_end is None:
        return False
    late = MAX_SKEW if any(UNREAD_SUFFIX not in text for text in report.warnings) else _LAG
    return report.window_end - report.complete_until > late


def _with_shortfall(report: SourceReport) -> SourceReport:
    """Return the report with a reason where the source fell short and gave none."""
    if report.reason or report.complete_until is None or not is_incomplete(report):
        return report
    return replace(
        report,
        reason=f"complete only up to {report.complete_until:%Y-%m-%d %H:%M} UTC; "
        "the next collection asks again from there",
    )


def _failed(name: str, window: Window, error: CollectorError) -> Collected:
    report = SourceReport(
        source=name,
        state=SourceState.FAILED,
        reason=str(error),
        completeness_ratio=0.0,
        window_start=window.start,
        window_end=window.end,
        complete_until=window.start,
    )
    return Collected(
        batch_id=digest_of([name, "failed", window.start, window.end]),
        report=report,
    )
