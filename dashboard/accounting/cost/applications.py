"""Applications: the level between team and job, each the object of a scheduler that owns jobs."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from data.facts.jobs import Job, JobState, SchedulerFacts
from data.store.facts.energy_parts import NO_NAME

_HOLD_GPUS = (JobState.RUNNING, JobState.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationRow:
    """An application of a namespace, as its jobs are last known.

    `running` are its jobs that run, or of which no scheduler tells the state, and that were seen
    lately; `gpu_count` is theirs.
    """

    namespace: str
    application: str
    team: str
    owner: str
    jobs: int
    running: int
    gpu_count: int
    gpu_model: str
    last_seen_at: datetime


def application_of(job: Job | None) -> str:
    """Return the workload that owns a job: a Deployment, TrainJob, RayCluster, an array.

    Unknown where no scheduler says it.
    """
    facts = SchedulerFacts() if job is None else job.scheduling
    return facts.workload or NO_NAME


def application_rows(jobs: Iterable[Job], *, running_since: datetime) -> list[ApplicationRow]:
    """Return a row for each application of these jobs, in the order of namespace and name.

    What was last seen before `running_since` holds nothing, whatever was said of it then.
    """
    members: dict[tuple[str, str], list[Job]] = defaultdict(list)
    for job in jobs:
        members[job.namespace, application_of(job)].append(job)
    return [_row(*names, members[names], running_since) for names in sorted(members)]


def _row(
    namespace: str, application: str, jobs: list[Job], running_since: datetime
) -> ApplicationRow:
    facts = [job.scheduling for job in jobs]
    running = [
        job
        for job, fact in zip(jobs, facts, strict=True)
        if fact.state in _HOLD_GPUS and job.last_seen_at >= running_since
    ]
    return ApplicationRow(
        namespace=namespace,
        application=application,
        team=_names(fact.account for fact in facts),
        owner=_names(job.owner for job in jobs),
        jobs=len(jobs),
        running=len(running),
        gpu_count=sum(job.gpu_count for job in running),
        gpu_model=_names(job.gpu_model for job in jobs),
        last_seen_at=max(job.last_seen_at for job in jobs),
    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted({name for name in names if name}))
