"""Draining a node so that nothing new is placed on it, and taking it back into service.

A drained node keeps its jobs until they end. The reason names the recommendation, so that only our
own drain is ever taken back.
"""

import json
from datetime import datetime

from collectors.slurm.queue_facts import OWN_REASON_PREFIX
from collectors.slurm.records import Record
from collectors.slurm.values import gpus_of, text_of, words_of
from dashboard.apply.slurm.change.send import result
from dashboard.apply.slurm.client.client import SlurmClient, explained, queue_of
from dashboard.apply.slurm.client.requests import by_hand, encoded, payload_of
from dashboard.apply.slurm.client.responses import CommandAnswer, CommandOutcome
from data.base.errors import ApplyError, CollectorError, StalePlanError, scrub
from data.records.changes import (
    Change,
    ChangeStep,
    ReadBack,
    StepOutcome,
    StepResult,
    Target,
)
from data.records.changes import VerificationResult as Verdict
from data.records.recommendations import Recommendation

KIND = "slurm-node"
_DOWN_STATES = ("DOWN", "FAIL", "ERROR", "UNKNOWN", "FUTURE", "INVAL", "REBOOT", "MAINT")
UP = "up"
_DRAIN_NOTE = (
    "Jobs on the node run to their end; nothing new is placed there. Powering it down is the "
    "site's own step."
)


def node_target(client: SlurmClient, name: str) -> Target:
    """Read a node. Errors: CollectorError, StalePlanError when it is gone."""
    answered = client.nodes()
    record = next((entry for entry in answered.records if text_of(entry.get("name")) == name), None)
    if record is None:
        raise StalePlanError(f"Slurm has no node {scrub(name)!r}", "Run a new cycle.")
    gpus = ",".join(f"{gpu.gpu_type}:{gpu.count}" for gpu in gpus_of(record.get("gres")))
    partitions = record.get("partitions")
    return Target(
        kind=KIND,
        name=name,
        # A name is a node's identity; its boot time is 0 for a while after every resume.
        identity=name,
        state=(
            ("interface", answered.interface),
            ("gpus", gpus),
            ("partitions", ",".join(sorted(text_of(partitions).split(",")))),
            ("NodeState", _service(record)),
        ),
    )


def require_no_new_jobs(client: SlurmClient, name: str, planned_at: datetime) -> None:
    """Refuse a node on which jobs were started after the plan.

    Errors: StalePlanError, which names them; CollectorError.
    """
    newer = sorted(
        job.raw_id
        for job in queue_of(client)
        if not job.is_over
        and name in job.nodes
        and job.started_at is not None
        and job.started_at > planned_at
    )
    if newer:
        raise StalePlanError(
            f"node {name} was to be free, but jobs were started there after the plan of "
            f"{planned_at:%Y-%m-%d %H:%M:%S} UTC: {', '.join(newer)}",
            "Run a new cycle.",
        )


def _service(record: Record) -> str:
    """Return `up`, `drain: REASON`, or Slurm's words for a node out of service."""
    words = words_of(record.get("state")) + words_of(record.get("state_flags"))
    if any(word.startswith(_DOWN_STATES) for word in words):
        return "+".join(words)
    if any(word.startswith("DRAIN") for word in words):
        return f"drain: {text_of(record.get('reason'))}"
    return UP


def _state_text(service: str) -> str:
    """Return the service of a node in words."""
    if service == UP:
        return "the node takes jobs"
    verb, _, reason = service.partition(": ")
    return f"the node takes no new jobs ({verb}{f', reason {reason}' if reason else ''})"


def drain_change(recommendation: Recommendation, target: Target) -> Change:
    """Return drain of a node and its way back. Errors: StalePlanError when it is out already."""
    now = dict(target.state)["NodeState"]
    if now != UP:
        raise StalePlanError(
            f"node {target.name} is out of service already: {now}", "Nothing to do."
        )
    reason = drain_reason(recommendation)
    return Change(
        recommendation_digest=recommendation.digest,
        target=target,
        steps=(_step("drain", target, UP, f"drain: {reason}", reason),),
        undo=(_step("resume", target, f"drain: {reason}", UP, ""),),
        notes=(_DRAIN_NOTE,),
    )


def drain_reason(recommendation: Recommendation) -> str:
    """Return the reason that marks a drain as that of a recommendation."""
    return f"{OWN_REASON_PREFIX}{recommendation.recommendation_id}"


def _step(verb: str, target: Target, before: str, after: str, value: str) -> ChangeStep:
    interface = dict(target.state)["interface"]
    return ChangeStep(
        verb=verb,
        target=target.name,
        field="NodeState",
        before=before,
        after=after,
        payload=encoded(
            payload_of(
                interface, verb, address=target.name, number="", field="NodeState", value=value
            )
        ),
        text=by_hand(verb, target.name, "NodeState", value),
    )


def drain_back(change: Change, target: Target) -> Change:
    """Return the way back of a drain or a resume. Errors: StalePlanError."""
    step = change.steps[0]
    now = dict(target.state)["NodeState"]
    if now != step.after:
        raise StalePlanError(
            f"node {target.name} is now {now!r}, not {step.after!r}",
            "Somebody changed it since: nothing is restored.",
        )
    back, after = ("resume", UP) if step.verb == "drain" else ("drain", step.before or "")
    value = "" if back == "resume" else after.removeprefix("drain: ")
    return Change(
        recommendation_digest=change.recommendation_digest,
        target=target,
        steps=(_step(back, target, now, after, value),),
        undo=change.steps,
    )


def send_to_node(client: SlurmClient, step: ChangeStep, change: Change) -> StepResult:
    """Send the step of a node, once, when the node still is as the change needs it."""
    try:
        target = node_target(client, change.target.name)
    except (CollectorError, ApplyError) as error:
        return result(StepOutcome.BUSY, f"step not sent: {explained(error)}")
    now = dict(target.state)["NodeState"]
    if now == step.after:
        return result(StepOutcome.DONE, f"{_state_text(now)} already")
    if target.fingerprint != change.target.fingerprint:
        return result(
            StepOutcome.REFUSED, f"step not sent: it is another node, or {_state_text(now)} now"
        )
    answer = client.send(json.loads(step.payload))
    try:
        state = dict(node_target(client, change.target.name).state)["NodeState"]
    except (CollectorError, ApplyError) as error:
        return result(StepOutcome.UNKNOWN, f"{answer.words}; cannot look: {explained(error)}")
    return _outcome(step, answer, state)


def _outcome(step: ChangeStep, answer: CommandAnswer, state: str) -> StepResult:
    if state == step.after:
        return result(StepOutcome.DONE, _state_text(state))
    if state != step.before or answer.outcome is CommandOutcome.NOTHING:
        return result(StepOutcome.UNKNOWN, f"{_state_text(state)}; {answer.words}")
    if answer.outcome is CommandOutcome.LATER:
        return result(StepOutcome.BUSY, answer.words, answer.retry_after_seconds)
    return result(StepOutcome.REFUSED, answer.words or "Slurm said yes and the node is as before")


def read_back_node(client: SlurmClient, change: Change, done: int) -> ReadBack:
    """Look once at the node of a change. Never raises."""
    try:
        target = node_target(client, change.target.name)
    except StalePlanError as error:
        return ReadBack(seen=Verdict.GONE, detail=str(error))
    except (CollectorError, ApplyError) as error:
        return ReadBack(seen=Verdict.UNREADABLE, detail=explained(error))
    now = dict(target.state)["NodeState"]
    step = change.steps[0]
    if done and now == step.after:
        state = Verdict.AS_INTENDED
    else:
        state = Verdict.UNTOUCHED if now == step.before else Verdict.DIFFERENT
    return ReadBack(seen=state, detail=_state_text(now), observed=(("NodeState", now),))
