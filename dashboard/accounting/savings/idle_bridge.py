"""Bridge from idle to freed GPUs: those of jobs that do no work, and what becomes of them."""

from collections import defaultdict
from dataclasses import dataclass, fields

from data.base.counts import count_text
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.plans import IdleCause, IdleGpus, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRow:
    """The GPUs that a job holds and does not use, and their outcome; None is unknown."""

    job: str
    held: float
    idle: float | None
    freed: float | None
    peaks: float | None
    stays: float
    because: str
    reason: str


IDLE_COLUMNS = tuple(field.name for field in fields(IdleRow))


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleSum:
    """The jobs of a plan together; GPUs, on average over its horizon.

    idle = freed + peaks + the sum of `stays`, by cause. `unknown` is held by jobs whose demand is
    not known, beside `held`. `slices` says how MIG instances count, '' where no job has one.
    """

    held: float
    work: float
    freed: float
    peaks: float
    stays: tuple[tuple[IdleCause, float, int], ...]
    unknown: float
    unknown_jobs: int
    slices: str = ""

    @property
    def idle(self) -> float:
        """GPUs that are held and do no work."""
        return self.held - self.work

    def sentence(self) -> str:
        """Return the sum in words, '' when no job holds anything."""
        if self.held <= 0 and not self.unknown_jobs:
            return ""
        stays = sum(gpus for _cause, gpus, _jobs in self.stays)
        causes = "; ".join(f"{cause}: {gpus:.1f}" for cause, gpus, _jobs in self.stays)
        unknown = (
            f" Beside them {count_text(self.unknown_jobs, 'job holds', 'jobs hold')} "
            f"{self.unknown:.1f} GPUs of unknown demand."
        )
        return (
            f"Of {self.held:.1f} GPUs that jobs hold, {self.idle:.1f} are forecast to be idle: the "
            f"recommendations free {self.freed:.1f}, peaks need {self.peaks:.1f}, {stays:.1f} stay"
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
    for idle in measured:
        if idle.cause:
            stays[idle.cause].append(idle.stays)
    return IdleSum(
        held=sum(idle.held for idle in measured),
        work=sum(idle.work or 0.0 for idle in measured),
        freed=sum(idle.freed_idle for idle in measured),
        peaks=sum(idle.peaks for idle in measured),
        stays=tuple(
            sorted(
                ((cause, sum(gpus), len(gpus)) for cause, gpus in stays.items()),
                key=lambda row: (-row[1], row[0]),
            )
        ),
        unknown=sum(idle.held for idle in unknown) + plan.unread_gpus,
        unknown_jobs=len(unknown) + plan.unread_jobs,
        slices=_how_slices_count(plan),
    )


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


def why_kept(idle: IdleGpus | None) -> str:
    """Return the reason to recommend no change of a job; '' when no plan has looked at it."""
    if idle is None:
        return ""
    if not idle.cause:
        return "none of its GPUs is forecast to be idle beyond its peaks"
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
        peaks=idle.peaks if is_known else None,
        stays=idle.stays,
        because=str(idle.cause),
        reason=idle.reason,
    )
