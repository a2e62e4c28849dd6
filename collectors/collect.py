"""Ask every source; one that fails becomes a report, the others still run."""

from collections.abc import Callable, Sequence

from collectors.base import Collector, Window
from data.collected import Collected
from data.columns import SAMPLES, empty_frame
from data.errors import CollectorError
from data.records.cluster import SourceReport, SourceState
from data.records.identifiers import digest_of


def collect_all(
    collectors: Sequence[Collector],
    window: Window,
    *,
    progress: Callable[[str, int, int], None] | None = None,
) -> tuple[Collected, ...]:
    """Give one Collected per source, in order; a failed one is empty and says why."""
    collected = []
    for position, collector in enumerate(collectors):
        if progress is not None:
            progress("collect", position, len(collectors))
        try:
            collected.append(collector.collect(window))
        except CollectorError as error:
            collected.append(_failed(collector.name, window, error))
    if progress is not None and collectors:
        progress("collect", len(collectors), len(collectors))
    return tuple(collected)


def _failed(name: str, window: Window, error: CollectorError) -> Collected:
    report = SourceReport(
        source=name,
        state=SourceState.FAILED,
        reason=str(error),
        samples=0,
        dropped=(),
        completeness_ratio=0.0,
        warnings=(),
        window_start=window.start,
        window_end=window.end,
    )
    return Collected(
        batch_id=digest_of([name, "failed", window.start, window.end]),
        samples=empty_frame(SAMPLES),
        jobs=(),
        report=report,
    )
