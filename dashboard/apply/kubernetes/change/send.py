"""Sends one step, once: look, check, patch, and say what is known right after."""

from datetime import timedelta

from collectors.kubernetes.api import ApiAnswer, CutError, Document, KubernetesApi
from dashboard.apply.kubernetes.change import node_layouts
from dashboard.apply.kubernetes.change.dry_run import differing
from dashboard.apply.kubernetes.change.observe import ObservedTarget, observation_of, pods_on
from dashboard.apply.kubernetes.change.steps import VERB, StepCommand, StepWait, command_of, sent
from dashboard.apply.kubernetes.state import reading
from dashboard.apply.kubernetes.state.api_errors import outcome_of
from dashboard.apply.kubernetes.state.field_owners import owners_of
from dashboard.apply.kubernetes.state.json_patch import as_text, value_at
from dashboard.apply.kubernetes.state.rollout import (
    has_no_pods,
    has_rolled_out,
    trouble,
    waiting_for,
)
from dashboard.common.kubernetes_writer import KubernetesWriter
from data.base.errors import ApplyError, CollectorError, TrimtabError
from data.records.changes import Change, ChangeStep, StepOutcome, StepResult

_GRACE_SECONDS, _DEADLINE_SECONDS = 30, 600
"""What Kubernetes gives a pod to end, and a Deployment to roll out, where they name no time."""
_GRACES, _MARGIN_SECONDS = 2.5, 5.0
"""A pod has ended well within this: a kubelet under load comes late to the end of the grace."""


def execute(
    api: KubernetesWriter,
    step: ChangeStep,
    change: Change,
    *,
    rollout_timeout: timedelta,
    cutting_limit: timedelta,
) -> StepResult:
    """Send a step with the resourceVersion of a look taken now. Never raises.

    A patch leaves at most once. It tests the uid and every value that the step replaces, so that
    the server itself refuses it when the object is no longer as it was approved.
    """
    command, view = command_of(step), observation_of(change.target)
    if step.verb != VERB or command.path != view.path:
        return _refused("the step is not of this change")
    try:
        answer = reading.asking(api, view.path)
        document = reading.object_in(answer, view.path, view.place)
    except TrimtabError as error:
        if type(error) is ApplyError:  # nothing answers: nothing was sent, and a later try may do
            return StepResult(outcome=StepOutcome.BUSY, detail=f"no look: {error}")
        return _refused(str(error))
    why = _moved(command, view, change, document)
    if why:
        return _refused(why)
    if command.wait in (StepWait.FREE, StepWait.CUT):
        waiting = _not_cut_yet(api, command, view, document, cutting_limit)
    else:
        waiting = _not_yet(api, command, view, answer, rollout_timeout)
    return waiting or _send(api, command, document)


def _moved(command: StepCommand, view: ObservedTarget, change: Change, document: Document) -> str:
    """Return the difference from the approved object, '' where it is the same."""
    uid = value_at(document, "/metadata/uid")
    if uid != change.target.identity:
        return f"{change.target.name} is another object of the same name (uid {uid})"
    if value_at(document, "/metadata/deletionTimestamp"):
        return f"{change.target.name} is being deleted"
    owners = () if view.place.kind == "Node" else owners_of(view.place, document, command.edits)
    if owners:
        return f"{' and '.join(owners)} would undo the change of {change.target.name}"
    tested = {entry["path"] for entry in command.operations if entry["op"] == "test"}
    for operation in command.operations:
        now = value_at(document, operation["path"])
        expected = operation.get("value") if operation["op"] in ("test", "replace") else None
        if operation["op"] == "test" and as_text(now) != as_text(expected):
            return f"{operation['path']} is {as_text(now)}, not {as_text(expected)} as approved"
        if operation["op"] == "add" and operation["path"] not in tested and now is not None:
            return f"{operation['path']} is {as_text(now)}, where nothing was"
    return ""


def _not_yet(
    api: KubernetesApi,
    command: StepCommand,
    view: ObservedTarget,
    answer: ApiAnswer,
    rollout_timeout: timedelta,
) -> StepResult | None:
    """Return BUSY while something has still to happen before the step, None when nothing has.

    The answer names the time that the object itself allows, over which the tries are spread. A
    rollout whose pods have waited for longer than `rollout_timeout` is not waited for.
    """
    document = answer.found
    if command.wait is StepWait.NO_PODS and not has_no_pods(document):
        grace = value_at(document, "/spec/template/spec/terminationGracePeriodSeconds")
        seconds = _GRACES * (grace if isinstance(grace, int) else _GRACE_SECONDS) + _MARGIN_SECONDS
        return StepResult(
            outcome=StepOutcome.BUSY,
            detail="its pods are still ending",
            wait_within_seconds=seconds,
        )
    if command.wait is StepWait.ROLLED_OUT and not has_rolled_out(document):
        work = reading.work_of(api, view.place, document)
        failed = trouble(work, now=answer.at, rollout_timeout=rollout_timeout) if work else ""
        if failed:
            return _refused(f"its rollout fails: {failed}")
        limit = value_at(document, "/spec/progressDeadlineSeconds")
        waits = waiting_for(work) if work else ""
        return StepResult(
            outcome=StepOutcome.BUSY,
            detail=f"its rollout is not over{f'; {waits}' if waits else ''}",
            wait_within_seconds=float(limit if isinstance(limit, int) else _DEADLINE_SECONDS),
        )
    return None


def _not_cut_yet(
    api: KubernetesApi,
    command: StepCommand,
    view: ObservedTarget,
    document: Document,
    limit: timedelta,
) -> StepResult | None:
    """Return BUSY while a node's MIG manager works, a refusal where it fails or pods are there."""
    pods = pods_on(api, view.place.name) if command.wait is StepWait.FREE else ""
    why, may_come = node_layouts.pending_condition(command, view.facts, document, pods)
    if not why:
        return None
    if not may_come:
        return _refused(why)
    return StepResult(
        outcome=StepOutcome.BUSY, detail=why, wait_within_seconds=limit.total_seconds()
    )


def _send(api: KubernetesWriter, command: StepCommand, document: Document) -> StepResult:
    operations = sent(command, document)
    try:
        if command.wait is not StepWait.NOTHING:  # it could not be rehearsed before
            rehearsed = api.patch(command.path, operations, dry_run=True)
            if not rehearsed.ok:
                return _not_done(rehearsed, command.path)
            different = list(differing(document, command, rehearsed.found))
            if different:
                return _refused(f"the server would store something else: {_text(different)}")
    except CollectorError as error:
        return StepResult(outcome=StepOutcome.BUSY, detail=f"no dry run: {error.message}")
    try:
        answer = api.patch(command.path, operations)
    except CutError as error:
        return StepResult(outcome=StepOutcome.UNKNOWN, detail=error.message)
    except CollectorError as error:
        return StepResult(outcome=StepOutcome.BUSY, detail=error.message)
    if not answer.ok:
        return outcome_of(answer, command.path)
    different = list(differing(document, command, answer.found))
    if not different:
        return StepResult(outcome=StepOutcome.DONE, detail="done")
    if value_at(answer.found, "/metadata/resourceVersion") == operations[1]["value"]:
        return _refused(f"the server dropped the change: {_text(different)}")
    return StepResult(outcome=StepOutcome.DONE, detail=f"done, but differently: {_text(different)}")


def _not_done(answer: ApiAnswer, path: str) -> StepResult:
    """Return the outcome of a dry run that failed: nothing has changed, whatever it was."""
    result = outcome_of(answer, path)
    if result.outcome is StepOutcome.UNKNOWN:
        return StepResult(outcome=StepOutcome.BUSY, detail=f"no dry run: {result.detail}")
    return result


def _text(different: list[tuple[str, str, str]]) -> str:
    return "; ".join(f"{at} is {value}, not {target}" for at, target, value in different)


def _refused(detail: str) -> StepResult:
    return StepResult(outcome=StepOutcome.REFUSED, detail=detail)
