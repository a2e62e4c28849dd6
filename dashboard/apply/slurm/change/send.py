"""One step sent to a job, once: looked at before, sorted by its words, looked at after.

Never raises for what Slurm answers. A step whose value already holds is not sent again.
"""

import json
import time
from collections.abc import Callable
from datetime import datetime

from dashboard.apply.slurm.change.moves import CONTROL, same_value, unchanged
from dashboard.apply.slurm.client.client import JobReading, SlurmClient, explained, find_job
from dashboard.apply.slurm.client.job_state import JobFacts
from dashboard.apply.slurm.client.programs import TIMEOUT_SECONDS
from dashboard.apply.slurm.client.requests import payload_of
from dashboard.apply.slurm.client.responses import CommandAnswer, CommandOutcome
from data.base.errors import ApplyError, CollectorError
from data.records.changes import Change, ChangeStep, StepOutcome, StepResult

_POLL_SECONDS = 0.5
_ENDING_SECONDS = 1800.0
"""How long the last run of a requeued job may take to end: an epilog may copy for minutes."""
_NEVER_WAITS = ("gone", "OVER", "RUNNING", "SUSPENDED")
"""What does not turn into waiting by itself."""
Clock = Callable[[], datetime]


def result(
    outcome: StepOutcome, detail: str, retry_after_seconds: float | None = None
) -> StepResult:
    """Return the result of a step."""
    return StepResult(outcome=outcome, detail=detail, retry_after_seconds=retry_after_seconds)


def is_same_job(change: Change, facts: JobFacts) -> bool:
    """Return whether a job is the one of the change: number, submit time and owner.

    A requeue gives it another submit time; the one that the change itself makes is known by the
    count of restarts.
    """
    state = dict(change.target.state)
    if (facts.job.raw_id, facts.job.user) != (state["number"], state["user"]):
        return False
    if facts.submitted == state["submitted"] and str(facts.restarts) == state["Restarts"]:
        return True
    ours = any(step.verb == "requeuehold" for step in change.steps)
    return ours and facts.restarts == int(state["Restarts"]) + 1


def is_later_run(change: Change, facts: JobFacts) -> bool:
    """Return whether a job is that of the change, requeued since by somebody else or by a failure.

    Every requeue counts one restart more, and the count of a number used again begins at none.
    """
    state = dict(change.target.state)
    same = (facts.job.raw_id, facts.job.user) == (state["number"], state["user"])
    return same and facts.restarts > int(state["Restarts"])


class StepSender:
    """Sends the steps of changes to jobs through one client."""

    def __init__(self, client: SlurmClient, *, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    def send(self, step: ChangeStep, change: Change) -> StepResult:
        """Send one step when the job still is as the change needs it."""
        try:
            reading = self._read(change)
        except (CollectorError, ApplyError) as error:
            return result(StepOutcome.BUSY, f"step not sent: {explained(error)}")
        if reading is None or not is_same_job(change, reading.facts):
            return result(StepOutcome.REFUSED, "step not sent: the job is gone, or is another one")
        if step.verb == "wait":
            return self._wait(change)
        stop = self._unfit(step, change, reading)
        if stop is not None:
            return stop
        answer = self._client.send(json.loads(step.payload))
        return self._after(step, change, answer)

    def _read(self, change: Change) -> JobReading | None:
        return find_job(self._client, dict(change.target.state)["number"], self._clock())

    def _wait(self, change: Change) -> StepResult:
        """Wait until a requeued job has let go of its nodes: only then it can be changed."""
        ends = time.monotonic() + TIMEOUT_SECONDS
        state = "unknown"
        while True:
            try:
                reading = self._read(change)
                state = reading.facts.state if reading else "gone"
            except (CollectorError, ApplyError) as error:
                state = explained(error)
            if state == "PENDING":
                return result(StepOutcome.DONE, "the job waits and can be changed")
            if time.monotonic() >= ends or state in _NEVER_WAITS:
                break
            time.sleep(_POLL_SECONDS)
        if state in _NEVER_WAITS:
            # A controller that is killed forgets what it took in within the last seconds.
            lost = " again: its requeue was lost or it was released" if state == "RUNNING" else ""
            return result(StepOutcome.REFUSED, f"the job is {state}{lost}")
        return StepResult(
            outcome=StepOutcome.BUSY,
            detail=f"the job is still {state}: its requeue waits for the end of its last run",
            wait_within_seconds=_ENDING_SECONDS,
        )

    def _unfit(self, step: ChangeStep, change: Change, reading: JobReading) -> StepResult | None:
        """Return the reason not to send a step: it holds already, or the job has moved on."""
        facts = reading.facts
        now = facts.value(step.field)
        before, after = step.before or "", step.after or ""
        stale = step.field == "Gres" and facts.total_is_stale
        if holds(step, facts) and not stale and (step.verb != "requeuehold" or facts.held != "no"):
            return result(StepOutcome.DONE, f"{step.field} is {now or 'unset'} already")
        needed = _state_needed(step)
        if needed and facts.state not in needed:
            why = "started" if facts.state == "RUNNING" else f"became {facts.state}"
            return result(StepOutcome.REFUSED, f"step not sent: the job {why} meanwhile")
        if moved := _moved_on(change, reading) or _not_alone(step, facts):
            return result(StepOutcome.REFUSED, f"step not sent: {moved}")
        # From 24.11 on a job that gave up nodes and is requeued shows both numbers, such as 2-3.
        span = f"{before.partition('-')[0]}-{after.rpartition('-')[2]}"
        same = same_value(step.field, now, before) or (step.field == "NumNodes" and now == span)
        if not same and not (stale and holds(step, facts)):
            return result(
                StepOutcome.REFUSED,
                f"step not sent: {step.field} is {now!r}, neither {before!r} nor {after!r}",
            )
        if step.field == "TimeLimit" and _has_run_longer(facts, after):
            return result(
                StepOutcome.REFUSED,
                f"step not sent: the job has run for more than {after} min and would be killed",
            )
        return None

    def _after(self, step: ChangeStep, change: Change, answer: CommandAnswer) -> StepResult:
        """Decide by a look what came of a command, whatever was answered to it."""
        try:
            reading = self._read(change)
        except (CollectorError, ApplyError) as error:
            return result(StepOutcome.UNKNOWN, f"{answer.words}; cannot look: {explained(error)}")
        if reading is None:
            outcome = StepOutcome.DONE if step.verb == "cancel" else StepOutcome.UNKNOWN
            return result(outcome, "Slurm no longer knows the job")
        facts = reading.facts
        if step.verb == "hold" and facts.state != "PENDING":
            return self._take_hold_back(change, facts)
        if holds(step, facts):
            reply = f", though Slurm said: {answer.words}"
            reply *= answer.outcome is not CommandOutcome.YES
            return result(StepOutcome.DONE, f"{step.field} is {step.after or 'unset'}{reply}")
        if not same_value(step.field, facts.value(step.field), step.before or ""):
            value = facts.value(step.field)
            return result(StepOutcome.UNKNOWN, f"{step.field} is {value!r}; {answer.words}")
        return _without_effect(step, answer)

    def _take_hold_back(self, change: Change, facts: JobFacts) -> StepResult:
        """Release a job that started just before it was held.

        Else it would keep priority 0 and stay waiting after its next requeue (measured).
        """
        state = dict(change.target.state)
        payload = payload_of(
            state["interface"],
            "release",
            address=state["address"],
            number=state["number"],
            field="Hold",
            value="no",
        )
        answer = self._client.send(payload)
        if answer.outcome is CommandOutcome.YES:
            return result(
                StepOutcome.REFUSED,
                f"the job became {facts.state} meanwhile; its hold was taken back",
            )
        return result(
            StepOutcome.UNKNOWN,
            f"the job became {facts.state} while it was held, and the hold could not be taken "
            f"back: {answer.words}. Run `scontrol release {state['address']}`",
        )


def _without_effect(step: ChangeStep, answer: CommandAnswer) -> StepResult:
    if answer.outcome is CommandOutcome.YES and step.verb != "cancel":
        return result(StepOutcome.REFUSED, f"Slurm said yes and {step.field} did not change")
    outcome = {
        CommandOutcome.NO: StepOutcome.REFUSED,
        CommandOutcome.LATER: StepOutcome.BUSY,
        CommandOutcome.NOTHING: StepOutcome.UNKNOWN,
        CommandOutcome.YES: StepOutcome.UNKNOWN,
    }[answer.outcome]
    return result(outcome, answer.words or "not yet seen", answer.retry_after_seconds)


def holds(step: ChangeStep, facts: JobFacts) -> bool:
    """Return whether the value of a step is in force."""
    after = step.after or ""
    if step.verb == "cancel":
        return facts.state in ("OVER", "COMPLETING")
    if step.verb == "requeuehold":
        return facts.restarts >= int(after)
    if step.field == "StartTime" and after and facts.eligible_at is not None:
        return facts.eligible_at.isoformat() == after
    return same_value(step.field, facts.value(step.field), after)


_WAITING_FIELDS = {
    "Gres", "TresPerJob", "TresPerTask", "NumTasks", "StartTime", "Partition", "Features",
}  # fmt: skip


def _state_needed(step: ChangeStep) -> tuple[str, ...]:
    if step.verb == "hold" or step.field in _WAITING_FIELDS:
        return ("PENDING",)
    if step.verb == "requeuehold":
        return ("RUNNING",)
    if step.field == "NumNodes":
        return ("PENDING",) if "-" in (step.after or "") else ("RUNNING", "SUSPENDED")
    if step.verb == "cancel":
        return ("RUNNING", "SUSPENDED")
    return ()


_REQUEUE_FIELDS = {"JobState", "submitted", "Restarts", "nodes", "batch_host", "NumNodes"}


def _moved_on(change: Change, reading: JobReading) -> str:
    """Return the differences from what the change needs, without its own effects."""
    facts = reading.facts
    ours = {step.field for step in change.steps}
    if any(step.verb == "requeuehold" for step in change.steps):
        ours |= _REQUEUE_FIELDS
    if any(step.field in ("NumNodes", "Gres", "TresPerJob", "TresPerTask", "NumTasks")
           for step in change.steps):  # fmt: skip
        ours |= {"gpus", "nodes", "NumTasks"}
    now = {
        "interface": reading.interface,
        "address": facts.address,
        "nodes": ",".join(facts.job.nodes),
        "gpus": facts.value("gpus"),
        "batch_host": facts.batch_host,
    } | {field: facts.value(field) for field in _FIELDS}
    for key, then in change.target.state:
        if key in ours or key not in now or key in ("JobState", "Hold"):
            continue
        requeued = str(facts.restarts) != dict(change.target.state).get("Restarts")
        if not (unchanged if requeued else same_value)(key, now[key], then):
            return f"{key} is {now[key]!r}, it was {then!r}"
    return ""


def _not_alone(step: ChangeStep, facts: JobFacts) -> str:
    if facts.is_het:
        return "it is a component of a heterogeneous job"
    if facts.array_state == "mixed" and step.verb not in CONTROL:
        return "other tasks of its array run by now"
    if step.verb == "requeuehold" and facts.held != "no":
        return "somebody holds the job: released after its requeue, it would start against that"
    return ""


_FIELDS = (
    "Partition", "Features", "Gres", "TresPerJob", "TresPerTask", "NumNodes", "NumTasks",
    "TimeLimit", "StartTime",
)  # fmt: skip


def _has_run_longer(facts: JobFacts, minutes: str) -> bool:
    started = facts.job.started_at
    if facts.state == "PENDING" or started is None or not minutes:
        return False
    return (facts.read_at - started).total_seconds() >= float(minutes) * 60
