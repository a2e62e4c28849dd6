"""A batch of one source and window: the unit that is stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from data.facts.columns import (
    ACTIVITY,
    ALLOCATIONS,
    CONTRADICTIONS,
    PROGRESS,
    SAMPLES,
    SERVING,
    XIDS,
    check_frame,
    empty_frame,
)
from data.facts.fleet import Node, SourceReport
from data.facts.jobs import Job
from data.facts.quotas import Quota

if TYPE_CHECKING:
    import pandas as pd


def no_samples() -> pd.DataFrame:
    """Return no samples: a scheduler knows jobs, not readings."""
    return empty_frame(SAMPLES)


def no_allocations() -> pd.DataFrame:
    """Return no allocations: telemetry names holders in its samples."""
    return empty_frame(ALLOCATIONS)


def no_xids() -> pd.DataFrame:
    """Return no XID codes: the source does not report them."""
    return empty_frame(XIDS)


def no_serving() -> pd.DataFrame:
    """Return no requests: the source knows no inference engine."""
    return empty_frame(SERVING)


def no_activity() -> pd.DataFrame:
    """Return no activity: the source does not tell what kept devices at work."""
    return empty_frame(ACTIVITY)


def no_contradictions() -> pd.DataFrame:
    """Return no contradicted counters: the source has one counter, or all agree."""
    return empty_frame(CONTRADICTIONS)


def no_progress() -> pd.DataFrame:
    """Return no progress: no job tells the source how far it is."""
    return empty_frame(PROGRESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """Samples (SAMPLES), jobs, nodes, who held what (ALLOCATIONS), errors (XIDS), how it went.

    `serving` is what inference engines served (SERVING), `activity` what kept devices at work
    (ACTIVITY), `contradictions` which counters others contradicted (CONTRADICTIONS), `progress`
    what share of their work jobs reported as done (PROGRESS). `quotas` are all that a scheduler
    enforces at the window's end, None where it was not asked or does not tell. `batch_id` is the
    same for the same source, window and content: keeping it twice is harmless.
    """

    batch_id: str
    samples: pd.DataFrame = field(default_factory=no_samples)
    jobs: tuple[Job, ...] = ()
    nodes: tuple[Node, ...] = ()
    allocations: pd.DataFrame = field(default_factory=no_allocations)
    xids: pd.DataFrame = field(default_factory=no_xids)
    serving: pd.DataFrame = field(default_factory=no_serving)
    activity: pd.DataFrame = field(default_factory=no_activity)
    contradictions: pd.DataFrame = field(default_factory=no_contradictions)
    progress: pd.DataFrame = field(default_factory=no_progress)
    quotas: tuple[Quota, ...] | None = None
    report: SourceReport

    def __post_init__(self) -> None:
        check_frame(self.samples, SAMPLES)
        check_frame(self.allocations, ALLOCATIONS)
        check_frame(self.xids, XIDS)
        check_frame(self.serving, SERVING)
        check_frame(self.activity, ACTIVITY)
        check_frame(self.contradictions, CONTRADICTIONS)
        check_frame(self.progress, PROGRESS)
