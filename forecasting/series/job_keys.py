"""Keys of recurring jobs, and the jobs whose history a new one may borrow."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from data.facts.jobs import Job, WorkloadKind

_SEPARATORS = re.compile(r"[-_./:\s]+")
_RUN_SPECIFIC = re.compile(r"v?\d+(\.\d+)*|\d{8}t\d+z?|(?=[0-9a-f]*\d)[0-9a-f]{6,}")
_TRAILING_DIGITS = re.compile(r"\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKey:
    """The key that runs of one recurring job share: owner, name and GPU model.

    `stem` is the job's name without run numbers, dates and hashes: train-bert-2026-01-05-x1 and
    train-bert-2026-01-06-x2 are runs of one job. Two jobs that share no word of their names, or run
    on another GPU model, are different ones.
    """

    namespace: str
    owner: str
    stem: str
    kind: WorkloadKind
    gpu_model: str


def job_key(job: Job) -> JobKey:
    """Return the key of a job."""
    return JobKey(
        namespace=job.namespace,
        owner=job.owner,
        stem=name_stem(job.name),
        kind=job.kind,
        gpu_model=job.gpu_model,
    )


def name_stem(name: str) -> str:
    """Return the words of a name that do not change from run to run, joined by '-'.

    Numbers, versions, dates and hexadecimal hashes of six characters up are run-specific; so are
    digits that end the name. A name of nothing else is its own stem.
    """
    words = [word for word in _SEPARATORS.split(name.lower()) if word]
    stable = [word for word in words if not _RUN_SPECIFIC.fullmatch(word)]
    return _TRAILING_DIGITS.sub("", "-".join(stable)) or name.lower()


def lenders(job: Job, others: Sequence[Job]) -> tuple[str, tuple[Job, ...]]:
    """Return (description, jobs) of the closest jobs whose history a new job may borrow.

    Runs of the same recurring job; else jobs of the same kind of the same owner in its namespace on
    the same GPU model; else jobs of the same kind on that model. ('', ()) when there are none.
    """
    kin = [
        other
        for other in others
        if other.job_id != job.job_id
        and other.kind is job.kind
        and other.gpu_model == job.gpu_model
    ]
    owners = tuple(
        other for other in kin if (other.namespace, other.owner) == (job.namespace, job.owner)
    )
    # Stems come last, and of one owner's jobs alone: a fleet has tens of thousands of pairs.
    stem = name_stem(job.name)
    same = tuple(other for other in owners if name_stem(other.name) == stem)
    if same:
        return f"{_count(same)} of the same job", same
    if owners and job.owner:
        return f"{_count(owners)} of the same owner", owners
    return (f"{_count(kin)} of the same kind", tuple(kin)) if kin else ("", ())


def _count(jobs: Sequence[Job]) -> str:
    return f"{len(jobs)} run" + ("" if len(jobs) == 1 else "s")
