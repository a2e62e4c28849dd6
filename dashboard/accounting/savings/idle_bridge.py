"""Bridge from idle to freed GPUs: those of jobs that do no work, and what becomes of them.

Every idle GPU has one state: free now by a recommendation, after a change that a person can make,
or needed, for peaks or by a constraint that is told.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TypeVar

from dashboard.common.figures import figure_text
from data.base.counts import count_text
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.plans import IdleCause, IdleGpus, Plan

_SHOWN_GPUS = 0.05
_Name = TypeVar("_Name", bound=str)


class Segment(StrEnum):
    """A part of the bar of idle GPUs, as addresses call it."""

    NOW = "now"
    AFTER = "after"
    NEEDED = "needed"
    UNKNOWN = "unknown"

    @property
    def words(self) -> str:
        """Its name for people."""
        return _WORDS[self]


_WORDS = {
    Segment.NOW: "can be freed now",
    Segment.AFTER: "after a change you can make",
    Segment.NEEDED: "needed",
    Segment.UNKNOWN: "allocated, not judged yet",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRow:
    """The GPUs that a job holds and does not use, and their outcome; None is unknown."""

    job: str
    held: float
    idle: float | None
    freed: float | None
    after: float | None
    peaks: float | None
    stays: float
    change: str
    because: str
    reason: str

    def part(self, segment: Segment) -> float:
        """Return the GPUs of it that a segment of the bar counts."""
        match segment:
            case Segment.UNKNOWN:
                return self.held if self.idle is None else 0.0
            case Segment.NOW:
                return self.freed or 0.0
            case Segment.AFTER:
                return self.after or 0.0
            case Segment.NEEDED:
                return 0.0 if self.idle is None else (self.peaks or 0.0) + self.stays


IDLE_COLUMNS = tuple(field.name for field in fields(IdleRow))


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleSum:
    """The jobs of a plan together; GPUs, on average over its horizon.

    idle = freed + the sum of `after`, by change, + peaks + the sum of `stays`, by cause. `unknown`
    is held by jobs whose demand is not known, beside `held`. `slices` says how MIG instances count,
    '' where no job has one.
    """

    held: float
    work: float
    freed: float
    after: tuple[tuple[str, float, int], ...]
    peaks: float
    stays: tuple[tuple[IdleCause, float, int], ...]
    unknown: float
    unknown_jobs: int
    slices: str = ""

    @property
    def idle(self) -> float:
        """GPUs that are held and do no work."""
        return self.held - self.work

    @property
    def needed(self) -> float:
        """Idle GPUs that stay, for peaks or by a constraint."""
        return self.peaks + sum(gpus for _cause, gpus, _jobs in self.stays)

    def sentence(self) -> str:
        """Return the sum in words, '' when no job holds anything."""
        if self.held <= 0 and not self.unknown_jobs:
            return ""
        after = sum(gpus for _change, gpus, _jobs in self.after)
        changes = "; ".join(f"{change}: {gpus:.1f}" for change, gpus, _jobs in self.after)
        causes = "; ".join(
            f"{cause}: {gpus:.1f}"
            for cause, gpus in (("peaks", self.peaks), *(row[:2] for row in self.stays))
            if gpus >= _SHOWN_GPUS
        )
        unknown = (
            f" Beside them {count_text(self.unknown_jobs, 'job holds', 'jobs hold')} "
            f"{self.unknown:.1f} GPUs of unknown demand."
        )
        return (
            f"Of {self.held:.1f} GPUs that jobs hold, {self.idle:.1f} are forecast to be idle: "
            f"{self.freed:.1f} are free now, by the recommendations; {after:.1f} after a change "
            + (f"that you can make ({changes}); " if changes else "by hand; ")
            + f"{self.needed:.1f} are needed"
            + (f" ({causes})" if causes else "")
            + "."
            + (unknown if self.unknown_jobs else "")
            + (f" {self.slices}" if self.slices else "")
        )


def idle_sum(plan: Plan) -> IdleSum:
    """Return the sum over all jobs of a plan."""
    jobs = [job.idle for job in plan.jobs if job.idle is not None]
    measured = [idle for idle in jobs if idle.work is not None]
    unknown = [idle for idle in jobs if idle.cause is IdleCause.UNKNOWN]
    stays: dict[IdleCause, list[float]] = defaultdict(list)
    after: dict[str, list[float]] = defaultdict(list)
    for idle in measured:
        if idle.cause:
            stays[idle.cause].append(idle.stays)
        if idle.change:
            after[idle.change].append(idle.after)
    return IdleSum(
        held=sum(idle.held for idle in measured),
        work=sum(idle.work or 0.0 for idle in measured),
        freed=sum(idle.freed_idle for idle in measured),
        after=_largest_first(after),
        peaks=sum(idle.peaks for idle in measured),
        stays=_largest_first(stays),
        unknown=sum(idle.held for idle in unknown) + plan.unread_gpus,
        unknown_jobs=len(unknown) + plan.unread_jobs,
        slices=_how_slices_count(plan),
    )


def _largest_first(
    amounts: Mapping[_Name, Sequence[float]],
) -> tuple[tuple[_Name, float, int], ...]:
    """Return the sum and the number of jobs by name, the largest sum first."""
    rows = ((name, sum(gpus), len(gpus)) for name, gpus in amounts.items())
    return tuple(sorted(rows, key=lambda row: (-row[1], row[0])))


def _how_slices_count(plan: Plan) -> str:
    slices = {(job.now.mig_profile, job.now.gpu_model) for job in plan.jobs if job.now.mig_profile}
    if not slices:
        return ""
    shares = {
        f"a {profile.name}: {model.board_share(profile):.2f}"
        for name, gpu_model in slices
        if (model := load_gpu_catalogue().find(gpu_model)) and (profile := model.mig_profile(name))
    }
    note = f" ({', '.join(sorted(shares))} of a board)" if shares else ""
    return f"A MIG instance counts as its share of its board's memory{note}."


def keep_reason(idle: IdleGpus | None) -> str:
    """Return the reason to recommend no change of a job; '' when no plan has looked at it."""
    if idle is None:
        return ""
    if not idle.cause and idle.change:
        return f"free after a change you can make: {idle.change}"
    if not idle.cause:
        work, total = idle.work or 0.0, figure_text(idle.held)
        needed = figure_text(work + idle.peaks)
        return f"its peaks need {needed} of {total} GPUs, {figure_text(work)} in the mean"
    return f"{idle.cause}: {idle.reason}" if idle.reason else str(idle.cause)


def idle_rows(plan: Plan) -> list[IdleRow]:
    """Return a row for each job, the most that stays idle first."""
    rows = [_row(job.job_id, job.idle) for job in plan.jobs if job.idle is not None]
    return sorted(rows, key=lambda row: (-row.stays, -row.held, row.job))


def _row(job_id: str, idle: IdleGpus) -> IdleRow:
    is_known = idle.work is not None
    return IdleRow(
        job=job_id,
        held=idle.held,
        idle=idle.idle if is_known else None,
        freed=idle.freed_idle if is_known else None,
        after=idle.after if is_known else None,
        peaks=idle.peaks if is_known else None,
        stays=idle.stays,
        change=idle.change,
        because=str(idle.cause),
        reason=idle.reason,
    )
