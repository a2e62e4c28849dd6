"""Facts for a cycle: the fleet, the jobs and their history, read at one time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from data.base.clock import floor_to_slot
from data.boards.unplanned_jobs import is_quiet
from data.facts.fleet import Cluster
from data.facts.jobs import Job
from data.facts.progress import ProgressReport
from data.facts.quotas import Quota
from data.records.contradictions import ContradictedCounter

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningView:
    """`history` has the columns HISTORY, `groups` GROUP_HISTORY by the hour, `readings` SAMPLES.

    `jobs` have history and were seen in the last day; `known_jobs` were seen in the last 14 days,
    those that only wait and those that ended among them. `ended_history` has of the jobs that had
    boards in these days and that nobody saw in the last one job_id, slot_start and
    utilization_max_ratio. `read` are the ids of those whose history
    is new enough to plan them. `signals` maps a job to its utilization signal, `contradicted` to
    the counters of its boards that other readings contradicted in the last day. `quotas` are those
    that schedulers enforced in the last day, `progress` is what jobs reported of their work in the
    last week, by time. `as_of` is the time of the newest sample up to the time asked for.
    """

    as_of: datetime
    cluster: Cluster
    jobs: tuple[Job, ...]
    known_jobs: tuple[Job, ...]
    history: pd.DataFrame
    groups: pd.DataFrame
    readings: pd.DataFrame
    signals: Mapping[str, str]
    contradicted: Mapping[str, tuple[ContradictedCounter, ...]] = field(default_factory=dict)
    read: frozenset[str] = frozenset()
    quotas: tuple[Quota, ...] = ()
    progress: Mapping[str, tuple[ProgressReport, ...]] = field(default_factory=dict)
    ended_history: pd.DataFrame | None = None

    @property
    def ended_jobs(self) -> tuple[Job, ...]:
        """The jobs of `ended_history`."""
        if self.ended_history is None:
            return ()
        names = set(self.ended_history["job_id"].unique())
        return tuple(job for job in self.known_jobs if job.job_id in names)


def recently_read(history: pd.DataFrame, *, as_of: datetime, slot_seconds: int) -> frozenset[str]:
    """Return the ids of the jobs of a history that are not quiet in the slot after `as_of`."""
    first_slot = floor_to_slot(as_of, slot_seconds).timestamp() + slot_seconds
    last = history.groupby("job_id")["slot_start"].max()
    quiet = (is_quiet(at, first_slot, slot_seconds) for at in last)
    return frozenset(str(name) for name, gone in zip(last.index, quiet, strict=True) if not gone)
