"""Jobs as Slurm's accounting keeps them: one row for every period between requeues and resizes."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from itertools import pairwise, takewhile

from collectors.slurm.records import Record, SlurmJob, raw_id_of, requested_facts, workload_of
from collectors.slurm.values import (
    Gpus,
    gpu_shares_of,
    gpus_of,
    hosts_of,
    identifier_of,
    job_state_of,
    moment_of,
    number_of,
    seconds_of_minutes,
    text_of,
    tres_text,
    words_of,
)
from data.facts.jobs import JobState
from data.records.feasible_changes import CHECKPOINTS

ACCOUNTING_FIELDS = (
    "JobName",  # first: only a job's name can hold a line break
    "JobIDRaw",
    "JobID",
    "User",
    "Account",
    "QOS",
    "Partition",
    "State",
    "Reason",
    "Submit",
    "Start",
    "End",
    "TimelimitRaw",
    "NodeList",
    "Constraints",
    "ReqTRES",
    "AllocTRES",
)
"""Fields asked of `sacct -P`, in order."""

SEPARATOR = "\x1f"
"""Between fields of `sacct -P`: unlike Slurm's own |, it stands in no job's name."""


_CONTINUED_STATES = ("REQUEUED", "RESIZING", "REQUEUE_HOLD", "SPECIAL_EXIT")
"""Words of a stretch that has ended while its job goes on."""


_SIGN = re.compile(r"(?:^|\s)(--signal(?=[=\s])|--open-mode[=\s]+[\"']?append)")
_WITHOUT_VALUE = re.compile(
    r"-[HhIkOQsvW]|--(?:contiguous|exclusive|hold|no-requeue|overcommit|oversubscribe|parsable|quiet|"
    r"reboot|requeue|spread-job|test-only|use-min-nodes|verbose|wait)|-\w\S+|--\S+=\S*"
)
"""Options of sbatch behind which the next word is the script, if it is not an option."""


def checkpoint_sign(submit_line: str, script: str = "") -> str:
    """Return the option by which a job announces that it goes on where a run ended, '' for none.

    `--signal` is a warning before the end, `--open-mode=append` output that a next run continues.
    No record of a job tells either (measured, 22.05.8 and 24.11.5); its submit line and the #SBATCH
    lines of its script do. Words behind the name of the script are the script's own.
    """
    options = []
    for before, word in pairwise(("", *submit_line.split()[1:])):
        is_value = before.startswith("-") and not _WITHOUT_VALUE.fullmatch(before)
        if word.startswith("--wrap") or not (word.startswith("-") or is_value):
            break
        options.append(word)
    head = takewhile(lambda line: line.startswith("#") or not line.strip(), script.splitlines())
    directives = (line.partition(" #")[0] for line in head if line.startswith("#SBATCH"))
    signs = (_SIGN.search(text) for text in (" ".join(options), *directives))
    return next((f"its {'='.join(sign[1].split())}" for sign in signs if sign), "")


def submit_lines_of(output: str) -> dict[str, str]:
    """Return the submit lines of `sacct -P` with JobIDRaw and SubmitLine, by job.

    A line may hold line breaks, so that it may claim another job's: of two lines, none counts.
    """
    rows = [line.partition(SEPARATOR) for line in output.split("\n") if SEPARATOR in line]
    times = Counter(raw_id for raw_id, _, _line in rows)
    return {raw_id: line for raw_id, _, line in rows if times[raw_id] == 1}


def with_sign(job: SlurmJob, sign: str) -> SlurmJob:
    """Return a job with the sign of checkpoints, unless its owner's own is there or it is ''."""
    if not sign or CHECKPOINTS in dict(job.extra):
        return job
    return replace(job, extra=(*job.extra, (CHECKPOINTS, sign)))


def rows_of(output: str, dropped: Counter[str]) -> list[dict[str, str]]:
    """Return the rows of `sacct -P` with ACCOUNTING_FIELDS, without its header.

    A job's name may hold line breaks; a line with too few fields goes on in the next one. What
    has too many is counted as `bad-accounting-row`.
    """
    rows, open_text = [], ""
    for line in output.split("\n"):
        open_text = f"{open_text}\n{line}" if open_text else line
        cells = open_text.split(SEPARATOR)
        if len(cells) < len(ACCOUNTING_FIELDS):
            continue
        if len(cells) == len(ACCOUNTING_FIELDS):
            rows.append(dict(zip(ACCOUNTING_FIELDS, cells, strict=True)))
        else:
            dropped["bad-accounting-row"] += 1
        open_text = ""
    if open_text.strip():
        dropped["bad-accounting-row"] += 1
    return rows


def read_accounting_row(row: Mapping[str, str]) -> SlurmJob:
    """Read a row of `sacct -P -D -X` with ACCOUNTING_FIELDS, times in UTC. Errors: ValueError."""
    words = words_of(row["State"])
    cut = next((word for word in words if word in _CONTINUED_STATES), "")
    state = job_state_of(words)
    # slurmrestd of 24.11 gives a stretch that goes on the end of the window as its end.
    goes_on = not cut and state in (JobState.PENDING, JobState.RUNNING, JobState.SUSPENDED)
    nodes = hosts_of(row["NodeList"])
    request, grant = row["ReqTRES"], row["AllocTRES"]
    requested = gpus_of(request) or gpu_shares_of(request, nodes=len(nodes) or 1)
    started_at = moment_of(row["Start"]) if nodes else None
    submitted_at = moment_of(row["Submit"])
    return SlurmJob(
        raw_id=raw_id_of(row["JobIDRaw"]),
        workload=text_of(row["JobID"]),
        name=row["JobName"],
        user=text_of(row["User"]),
        account=text_of(row["Account"]),
        qos=text_of(row["QOS"]),
        partition=text_of(row["Partition"]),
        state=state,
        state_word=cut or (words[0] if words else ""),
        reason=text_of(row["Reason"]),
        submitted_at=submitted_at,
        started_at=_stretch_start(started_at, submitted_at),
        ended_at=None if goes_on else moment_of(row["End"]),
        time_limit_seconds=seconds_of_minutes(row["TimelimitRaw"]),
        nodes=nodes,
        gpus_by_node=(),
        allocated=gpus_of(grant) or gpu_shares_of(grant, nodes=len(nodes) or 1),
        requested=requested,
        extra=_accounting_extra(row["JobID"], row["Constraints"], requested),
    )


def _stretch_start(started_at: datetime | None, submitted_at: datetime | None) -> datetime | None:
    """Return the time since which an accounting period holds its GPUs.

    Accounting opens a new row when a running job shrinks; its Start is still the job's, and its
    Submit the moment of the change. Counted from Start, the two stretches would overlap.
    """
    if started_at is None or submitted_at is None:
        return started_at
    return max(started_at, submitted_at)


def _accounting_extra(
    workload: str, constraints: object, requested: tuple[Gpus, ...]
) -> tuple[tuple[str, str], ...]:
    array, underscore, task = workload.partition("_")
    het, plus, _offset = workload.partition("+")
    pairs = {
        "array_job": array if underscore else "",
        "array_task": task if task.isdecimal() else "",
        "het_job": het if plus else "",
        "features": text_of(constraints),
    } | requested_facts(requested)
    return tuple((name, value) for name, value in pairs.items() if value)


def read_accounting_record(record: Record) -> SlurmJob:
    """Read a job of `/slurmdb/…/jobs`: the same facts as a row of sacct. Errors: ValueError."""
    times, state = record.get("time") or {}, record.get("state") or {}
    array, het = record.get("array") or {}, record.get("het") or {}
    tres = record.get("tres") or {}
    workload = workload_of(
        {
            "job_id": record["job_id"],
            "array_job_id": array.get("job_id"),
            "array_task_id": array.get("task_id"),
            "array_task_string": array.get("task"),
            "het_job_id": het.get("job_id"),
            "het_job_offset": het.get("job_offset"),
        }
    )
    ended_at = moment_of(times.get("end"))
    return read_accounting_row(
        {
            "JobName": str(record.get("name") or ""),
            "JobIDRaw": identifier_of(record["job_id"]),
            "JobID": workload,
            "User": text_of(record.get("user")),
            "Account": text_of(record.get("account")),
            "QOS": text_of(record.get("qos")),
            "Partition": text_of(record.get("partition")),
            "State": "+".join(words_of(state.get("current"))),
            "Reason": text_of(state.get("reason")),
            "Submit": _iso(moment_of(times.get("submission"))),
            "Start": _iso(moment_of(times.get("start"))),
            "End": _iso(ended_at),
            "TimelimitRaw": str(number_of(times.get("limit"))),
            "NodeList": text_of(record.get("nodes")),
            "Constraints": text_of(record.get("constraints")),
            "ReqTRES": tres_text(tres.get("requested")),
            "AllocTRES": tres_text(tres.get("allocated")),
        }
    )


def _iso(at: datetime | None) -> str:
    return at.replace(tzinfo=None).isoformat() if at else ""
