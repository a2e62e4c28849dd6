"""Changes to a job that waits, each with the wait that it would then have."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from data.base.units import SECONDS_PER_HOUR
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.jobs import Job, JobState, Platform
from data.facts.queue_waits import EXPECTED_START, QueueWait
from forecasting.groups.queue_waits import places_in_line

_MAX_WAIT_RATIO = 0.7
"""Share of the wait that a change must go below: the forecast is not sharper than that."""
_MAX_CHANGES = 3
_SMALLER = (2, 4)
"""A job or its time limit is tried at a half and a quarter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoonerStart:
    """A change to a waiting job, in words, and the wait from now on that it would then have."""

    change: str
    wait: QueueWait


def sooner_starts(jobs: Iterable[Job], job_id: str, as_of: datetime) -> tuple[SoonerStart, ...]:
    """Return at most three changes of different kinds that would start a job sooner.

    `jobs` are all that are known, those that ended included. The soonest start comes first, and of
    each kind the smallest change that helps. A job that does not wait for room has none: a limit or
    a dependency holds it. That a job's program can do with less is for its owner to know.
    """
    jobs = list(jobs)
    job = next((job for job in jobs if job.job_id == job_id), None)
    wait = None if job is None else _wait_of(jobs, job, as_of)
    if job is None or wait is None or not wait.known:
        return ()
    # The start that a scheduler expects is of the job as it is: both are compared without it.
    plain = _without_expected_start(job)
    base = _wait_of(jobs, plain, as_of)
    if base is None or min(base.median, wait.median) <= 0:
        return ()
    starts = []
    for changes, present in (
        (_fewer_gpus(plain), base),
        (_shorter_limit(plain), base),
        (_other_queue(plain, jobs), wait),
    ):
        for change, changed in changes:
            then = _wait_of(jobs, changed, as_of)
            if then is not None and then.known and then.median <= _MAX_WAIT_RATIO * present.median:
                starts.append(SoonerStart(change=change, wait=_times(then, wait, present)))
                break
    return tuple(sorted(starts, key=lambda start: start.wait.median)[:_MAX_CHANGES])


def _wait_of(jobs: Sequence[Job], job: Job, as_of: datetime) -> QueueWait | None:
    """Return the remaining wait of a job in the place of the one with its id."""
    others = [other for other in jobs if other.job_id != job.job_id]
    places = places_in_line([*others, job], as_of, only=job)
    return next((place.wait for place in places if place.job_id == job.job_id), None)


def _times(then: QueueWait, wait: QueueWait, present: QueueWait) -> QueueWait:
    """Return a wait in the measure of the scheduler, who expects `wait` where `present` is ours."""
    ratio = wait.median / present.median
    return replace(
        then,
        low=then.low * ratio,
        median=then.median * ratio,
        high=then.high * ratio,
        mean=then.mean * ratio,
    )


def _without_expected_start(job: Job) -> Job:
    extra = tuple(pair for pair in job.scheduling.extra if pair[0] != EXPECTED_START)
    return replace(job, scheduler=replace(job.scheduling, extra=extra))


def _fewer_gpus(job: Job) -> Iterator[tuple[str, Job]]:
    """Yield the job with fewer GPUs, on as many fewer nodes where it asks for several."""
    nodes = job.extra.get("nodes_requested", "")
    for divisor in _SMALLER:
        gpus = job.gpu_count // divisor
        if gpus * divisor != job.gpu_count:
            continue
        extra = dict(job.scheduling.extra)
        if nodes.isdecimal():
            extra["nodes_requested"] = str(max(1, int(nodes) // divisor))
        facts = replace(job.scheduling, extra=tuple(extra.items()))
        change = f"{gpus} GPU{'s' * (gpus != 1)} instead of {job.gpu_count}"
        yield change, replace(job, gpu_count=gpus, scheduler=facts)


def _shorter_limit(job: Job) -> Iterator[tuple[str, Job]]:
    limit = job.scheduling.time_limit_seconds
    for divisor in _SMALLER if limit else ():
        seconds = (limit or 0.0) / divisor
        hours = f"{seconds / SECONDS_PER_HOUR:.3g}"
        change = f"a time limit of {hours} h instead of {(limit or 0.0) / SECONDS_PER_HOUR:.3g} h"
        facts = replace(job.scheduling, time_limit_seconds=seconds)
        yield f"{change}, if its work ends by then", replace(job, scheduler=facts)


def _other_queue(job: Job, jobs: Iterable[Job]) -> Iterator[tuple[str, Job]]:
    """Yield the job in another partition of the same GPUs, or on another model of enough memory."""
    running = [
        other
        for other in jobs
        if other.source == job.source and other.scheduling.state is JobState.RUNNING
    ]
    if job.platform is Platform.SLURM:
        of_queue: dict[str, set[str]] = {job.namespace: set()}
        for other in running:
            if other.gpu_model == job.gpu_model or other.namespace == job.namespace:
                of_queue.setdefault(other.namespace, set()).update(other.scheduling.nodes)
        for name, nodes in sorted(of_queue.items()):
            # Of partitions that share nodes, one cannot be looked at without the other.
            if name != job.namespace and not nodes & of_queue[job.namespace]:
                yield f"partition {name} instead of {job.namespace}", replace(job, namespace=name)
        return
    catalogue = load_gpu_catalogue()
    present = catalogue.find(job.gpu_model)
    for name in sorted({other.gpu_model for other in running} - {job.gpu_model}):
        model = catalogue.find(name)
        if present and model and model.memory_mib >= present.memory_mib:
            yield f"{name} instead of {job.gpu_model}", replace(job, gpu_model=name)
