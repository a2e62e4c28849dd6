"""Which jobs wait for the end of another job: `sbatch --dependency=afterok:12`."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from collectors.slurm.answers import identifier_of, text_of
from collectors.slurm.records import OVER, Record, SlurmJob

DEPENDENTS = "dependents"
"""The fact of a job that names those jobs, such as `7 (afterok), 12 (afternotok)`."""

_CONDITION = re.compile(r"\b(after[a-z]+):([0-9_*+:]+)")
"""`after:12` alone is met by the start of a job, so its end changes nothing."""


def with_dependents(jobs: Iterable[SlurmJob], records: Iterable[Record]) -> tuple[SlurmJob, ...]:
    """Return the jobs, each with the fact DEPENDENTS where others wait for its end.

    `records` are Slurm's answer of all jobs; a job of an array is waited for by its own number, by
    that of its array, or as `ARRAY_TASK`.
    """
    jobs = tuple(jobs)
    conditions = {
        identifier_of(record.get("job_id")): text_of(record.get("dependency")) for record in records
    }
    waiting = _waiting_for(jobs, conditions)
    return tuple(
        replace(job, extra=(*job.extra, (DEPENDENTS, ", ".join(found))))
        if not job.is_over and (found := _found(job, waiting))
        else job
        for job in jobs
    )


def _waiting_for(
    jobs: Iterable[SlurmJob], conditions: Mapping[str, str]
) -> Mapping[str, list[str]]:
    """Return who waits, in words, by the name under which a job is waited for."""
    found = defaultdict(list)
    for job in jobs:
        if job.state in OVER:
            continue
        for word, names in _CONDITION.findall(conditions.get(job.raw_id, "")):
            for name in names.split(":"):
                found[name.partition("+")[0]].append(f"{job.workload} ({word})")
    return found


def _found(job: SlurmJob, waiting: Mapping[str, list[str]]) -> list[str]:
    extra = dict(job.extra)
    array, task = extra.get("array_job", ""), extra.get("array_task", "")
    names = {job.raw_id, job.workload}
    if array:
        names |= {array, f"{array}_*", f"{array}_{task}"}
    return sorted({who for name in names for who in waiting.get(name, ())})
