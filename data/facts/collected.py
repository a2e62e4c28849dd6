"""A batch of one source and window: the unit that is stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
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


_FRAMES = {
    "samples": SAMPLES,
    "allocations": ALLOCATIONS,
    "xids": XIDS,
    "serving": SERVING,
    "activity": ACTIVITY,
    "contradictions": CONTRADICTIONS,
    "progress": PROGRESS,
}


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
    samples: pd.DataFrame = field(default_factory=partial(empty_frame, SAMPLES))
    jobs: tuple[Job, ...] = ()
    nodes: tuple[Node, ...] = ()
    allocations: pd.DataFrame = field(default_factory=partial(empty_frame, ALLOCATIONS))
    xids: pd.DataFrame = field(default_factory=partial(empty_frame, XIDS))
    serving: pd.DataFrame = field(default_factory=partial(empty_frame, SERVING))
    activity: pd.DataFrame = field(default_factory=partial(empty_frame, ACTIVITY))
    contradictions: pd.DataFrame = field(default_factory=partial(empty_frame, CONTRADICTIONS))
    progress: pd.DataFrame = field(default_factory=partial(empty_frame, PROGRESS))
    quotas: tuple[Quota, ...] | None = None
    report: SourceReport

    def __post_init__(self) -> None:
        for name, declared in _FRAMES.items():
            check_frame(getattr(self, name), declared)
