"""Check of a changed job: the values, and after a scheduling pass their effect."""

import json
from datetime import datetime, timedelta

from dashboard.apply.slurm.change.moves import CONTROL, same_value, unchanged
from dashboard.apply.slurm.change.observe import PREVIOUS_STATE_KEY
from dashboard.apply.slurm.change.send import holds, is_later_run, is_same_job
from dashboard.apply.slurm.client.client import SlurmClient, explained, find_job
from dashboard.apply.slurm.client.gres_text import gpu_request
from dashboard.apply.slurm.client.job_state import JobFacts
from data.base.errors import ApplyError, CollectorError
from data.records.changes import Change, ChangeStep, ReadBack
from data.records.changes import VerificationResult as Verdict

NEVER_STARTING = ("BadConstraints", "PartitionNodeLimit", "PartitionTimeLimit")
"""Reasons with which a job never starts, though Slurm took its request with return code 0."""

_REQUEST = (
    "TRES", "nodes_asked", "Gres", "TresPerJob", "TresPerTask", "Partition", "Features",
    "TimeLimit", "Hold",
)  # fmt: skip
_FAILED = ("FAILED", "OUT_OF_MEMORY", "BOOT_FAIL", "NODE_FAIL")
_SOON_SECONDS = 600.0
"""A run that fails later is not taken for one that its new size made fail; an assumption."""
_UNSCHEDULED_REASONS = ("", "None")
_SIZES = ("Gres", "TresPerJob", "TresPerTask", "NumTasks", "NumNodes")


def read_back_job(
    client: SlurmClient, change: Change, done: int, now: datetime, *, may_wait: timedelta
) -> ReadBack:
    """Look once at the job of a change, of which the first `done` steps were sent. Never raises.

    A job that the change has requeued `may_wait` that long to start again; then it is failing.
    """
    try:
        reading = find_job(client, dict(change.target.state)["number"], now)
    except (CollectorError, ApplyError) as error:
        return _look(Verdict.UNREADABLE, explained(error))
    steps = change.steps[:done]
    # A change that is under way goes on with the run it began with; one that stands may outlast it.
    later = reading and done == len(change.steps) and is_later_run(change, reading.facts)
    if reading is None or not (later or is_same_job(change, reading.facts)):
        if any(step.verb == "cancel" for step in steps) and reading is None:
            return _look(Verdict.AS_INTENDED, "Slurm no longer knows the job: it has ended")
        return _look(Verdict.GONE, "the job is gone, or its number names another one")
    facts = reading.facts
    observed = tuple(
        (field, facts.value(field)) for field in dict.fromkeys(step.field for step in change.steps)
    )
    result = _of_values(steps, facts) or _of_effect(change, steps, facts, may_wait)
    if result.seen is Verdict.AS_INTENDED:
        result = _of_model(change, facts) or result
    if result.seen is Verdict.AS_INTENDED and done == len(change.steps):
        result = _of_snapshot(change, facts) or result
    return ReadBack(seen=result.seen, detail=result.detail, observed=observed)


def _of_snapshot(change: Change, facts: JobFacts) -> ReadBack | None:
    """Compare a job that was rolled back with what it was; None when every field is the same.

    A job that ran then and waits now has its request back, not its place: that is said.

    What Slurm estimates of a job that waits, and chooses anew for every run, is not compared.
    """
    was: dict[str, str] = json.loads(dict(change.target.state).get(PREVIOUS_STATE_KEY, "{}"))
    if not was or facts.state not in ("PENDING", "RUNNING", "SUSPENDED"):
        return None
    runs = facts.state != "PENDING" and facts.state == was.get("JobState")
    # The nodes of a job that asks for a total are the scheduler's choice.
    sizes = ("NumNodes", "NumTasks", "gpus") if was.get("Gres") else ("gpus",)
    keys = (*_REQUEST, *sizes) if runs else _REQUEST
    # Another of its partitions may have started it: the way back found it there.
    lists = {"Partition": f",{dict(change.target.state).get('Partition', '')}"}
    other = [
        f"{key} is {facts.value(key)!r}, it was {was[key]!r}"
        for key in keys
        if key in was and not unchanged(key, facts.value(key), was[key] + lists.get(key, ""))
    ]
    if not other and facts.state == "PENDING" and was.get("JobState", "PENDING") != "PENDING":
        text = "the job has its request back, but it ran then and waits now"
        return _look(Verdict.AS_INTENDED, f"{text}: Reason={facts.job.reason}")
    return _look(Verdict.DIFFERENT, "; ".join(other)) if other else None


def _of_model(change: Change, facts: JobFacts) -> ReadBack | None:
    """Compare the GPU type of a requeued job with that of the approved model, where both are told.

    The type of a way back is not known.
    """
    state = dict(change.target.state)
    target = next((word for key, word in state.items() if key.startswith("type of ")), "")
    types = sorted({gpus.gpu_type for gpus in facts.job.gpus if gpus.gpu_type} - {target})
    requeued = any(step.verb == "requeuehold" for step in change.steps)
    if (
        facts.state != "RUNNING"
        or not requeued
        or not target
        or not types
        or PREVIOUS_STATE_KEY in state
    ):
        return None
    return _look(Verdict.DIFFERENT, f"the job runs on {', '.join(types)} instead of {target}")


def _look(verdict: Verdict, detail: str) -> ReadBack:
    return ReadBack(seen=verdict, detail=detail)


def _last_by_field(steps: tuple[ChangeStep, ...]) -> dict[str, ChangeStep]:
    """Return for each field the last step that sets it, in the order sent; waiting sets nothing."""
    last: dict[str, ChangeStep] = {}
    for step in steps:
        if step.verb != "wait":
            last.pop(step.field, None)
            last[step.field] = step
    return last


def _of_values(steps: tuple[ChangeStep, ...], facts: JobFacts) -> ReadBack | None:
    """Compare the fields with what was sent; None when all hold.

    UNTOUCHED says that the last step has not reached the job, whatever came before it.
    """
    last = _last_by_field(steps)
    if not last:
        return _look(Verdict.UNTOUCHED, "nothing was sent")
    missing = [step for step in last.values() if not _in_force(step, facts)]
    if not missing:
        return None
    if facts.state == "OVER":
        return _look(Verdict.GONE, f"the job has ended ({facts.job.state_word})")
    other = [
        step
        for step in missing
        if not same_value(step.field, facts.value(step.field), step.before or "")
    ]
    text = ", ".join(f"{step.field} is {facts.value(step.field)!r}" for step in missing)
    values = [step for step in last.values() if step.verb not in CONTROL]
    nothing_set = bool(values) and all(step in missing for step in values)
    not_reached = missing == [list(last.values())[-1]] or nothing_set
    return _look(
        Verdict.UNTOUCHED if not_reached and not other else Verdict.DIFFERENT,
        text,
    )


def _in_force(step: ChangeStep, facts: JobFacts) -> bool:
    if step.field == "StartTime" and facts.state != "PENDING":
        # It started: not before the time that was asked for?
        after = step.after or ""
        started = facts.job.started_at
        return bool(after and started) and started.isoformat() >= after  # type: ignore[union-attr]
    return holds(step, facts)


def _of_effect(
    change: Change, steps: tuple[ChangeStep, ...], facts: JobFacts, may_wait: timedelta
) -> ReadBack:
    """Return the effect of values that are in force."""
    if any(step.verb == "cancel" for step in steps):
        if facts.state == "COMPLETING":
            return _look(Verdict.NOT_YET, "the job is ending")
        return _look(Verdict.AS_INTENDED, f"the job has ended ({facts.job.state_word})")
    if facts.state == "PENDING":
        requeued = any(step.verb == "requeuehold" for step in steps)
        return _of_waiting(facts, may_wait if requeued else None)
    if facts.state in ("OVER", "COMPLETING"):
        if facts.job.started_at is None and any(step.verb == "requeuehold" for step in steps):
            word = facts.job.state_word
            return _look(Verdict.GONE, f"requeued, the job ended before it started again ({word})")
        if (why := _failed_soon(steps, facts)) and facts.state == "OVER":
            return _look(Verdict.FAILING, why)
        return _look(Verdict.AS_INTENDED, f"set; the job is {facts.state}")
    target, gpus = _total(change, steps, facts), sum(gpu.count for gpu in facts.job.gpus)
    if target is not None and gpus != target:
        return _look(Verdict.DIFFERENT, f"the job runs with {gpus} GPUs instead of {target}")
    return _look(Verdict.AS_INTENDED, f"the job is {facts.state} with {gpus} GPUs")


def _failed_soon(steps: tuple[ChangeStep, ...], facts: JobFacts) -> str:
    """Return the failure of a job right after its start with another size, '' for none."""
    job = facts.job
    sized = any(step.field in _SIZES or step.verb == "requeuehold" for step in steps)
    if not sized or job.state_word not in _FAILED or job.started_at is None or job.ended_at is None:
        return ""
    lasted = (job.ended_at - job.started_at).total_seconds()
    if lasted > _SOON_SECONDS:
        return ""
    return (
        f"started with what was set, the job failed after {lasted:.0f} s ({job.state_word}): look "
        "at its output, and submit it again with its old request"
    )


def _of_waiting(facts: JobFacts, may_wait: timedelta | None) -> ReadBack:
    """Return the effect on a waiting job; `may_wait` is None where it waited before the change."""
    reason = facts.job.reason
    if any(reason.startswith(word) for word in NEVER_STARTING):
        return _look(Verdict.FAILING, f"the job never starts like this: Reason={reason}")
    if may_wait is not None:
        return _of_requeued(facts, may_wait)
    if reason in _UNSCHEDULED_REASONS:
        return _look(Verdict.NOT_YET, "the scheduler has not looked at the job since")
    return _look(Verdict.AS_INTENDED, f"the job waits: Reason={reason}")


def _of_requeued(facts: JobFacts, may_wait: timedelta) -> ReadBack:
    """Return the effect on a job that ran before the change and waits now."""
    reason = facts.job.reason
    if reason.startswith("BeginTime"):
        return _look(
            Verdict.NOT_YET,
            "the requeued job is not eligible before cred_expire is over",
        )
    since = facts.eligible_at
    waited = timedelta(0) if since is None else facts.read_at - since
    minutes = waited / timedelta(minutes=1)
    text = "the job ran before the change, and waits since its requeue"
    text += f": Reason={reason}" if reason not in _UNSCHEDULED_REASONS else ""
    if waited < may_wait:
        return _look(Verdict.NOT_YET, text)
    return _look(Verdict.FAILING, f"{text}, for {minutes:.0f} min since it may start")


def _total(change: Change, steps: tuple[ChangeStep, ...], facts: JobFacts) -> int | None:
    """Return the GPUs that a running job must hold when its size was changed.

    A job that asked for a range of nodes may start on another number of them than it was to have.
    """
    if not any(step.field in _SIZES for step in steps):
        return None
    per = dict(facts.gpus_by)
    try:
        if "node" in per:
            nodes = next((step.after for step in steps[::-1] if step.field == "NumNodes"), None)
            nodes = nodes or dict(change.target.state).get("NumNodes") or ""
            count = int(nodes.partition("-")[0] or len(facts.job.nodes))
            return gpu_request(per["node"]).count * count
        if "job" in per:
            return gpu_request(per["job"]).count
        return gpu_request(per["task"]).count * facts.tasks if "task" in per else None
    except ApplyError:
        return None
