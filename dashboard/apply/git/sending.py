"""Sends one step to the repository or its forge, once, and reads a change back from both."""

from datetime import timedelta

from dashboard.apply.base import Closed, Left
from dashboard.apply.git.forge import Forge, ForgeAnswer, ForgeCutError, PullRequest
from dashboard.apply.git.manifests import edited, line_difference
from dashboard.apply.git.repository import base_copy
from dashboard.apply.git.steps import (
    CLOSE,
    PUSH,
    edits_of_plan,
    live_change,
    order_of,
    push_order,
)
from dashboard.apply.kubernetes import checking
from dashboard.apply.kubernetes.api import KubernetesApi
from dashboard.apply.kubernetes.look import seen_of
from data.apply_settings import GitApplySettings
from data.errors import ApplyError, ChangeRefusedError, StalePlanError, scrub
from data.records.changes import Change, ChangeStep, ReadBack, StepOutcome, StepResult
from data.records.changes import VerificationResult as Verdict


def execute(
    settings: GitApplySettings, forge: Forge, step: ChangeStep, change: Change
) -> StepResult:
    """Send a step. Never raises; nothing is sent twice that has arrived already."""
    try:
        if step.verb == PUSH:
            return _push(settings, step, change)
        if step.verb == CLOSE:
            return _close(forge, order_of(step)["branch"])
        return _open(forge, step)
    except (ChangeRefusedError, StalePlanError) as error:
        return StepResult(outcome=StepOutcome.REFUSED, detail=str(error))
    except ForgeCutError as error:
        return StepResult(outcome=StepOutcome.UNKNOWN, detail=error.message)
    except ApplyError as error:
        return StepResult(outcome=StepOutcome.BUSY, detail=f"nothing was sent: {error.message}")


def _push(settings: GitApplySettings, step: ChangeStep, change: Change) -> StepResult:
    """Commit on the base as it is now, where the file is still the one that was approved."""
    order = push_order(change)
    with base_copy(settings) as copy:
        file = next((found for found in copy.files(order.path) if found.path == order.path), None)
        if file is None or file.blob != order.blob:
            raise StalePlanError(
                f"{order.path} has changed on {settings.base_branch} since it was approved",
                "Run a new cycle and approve its recommendation.",
            )
        text = copy.text(file)
        changed = edited(text, seen_of(change.target).place, edits_of_plan(live_change(change)))
        if changed is None or line_difference(file.path, text, changed) != step.text:
            raise StalePlanError("the difference is not the one that was approved", "")
        commit, blob = copy.commit_file(file, changed, order.message, order.at)
        if copy.branch_head(order.branch):
            if copy.blob_on(order.branch, order.path) == blob:
                return StepResult(outcome=StepOutcome.DONE, detail="the branch was there already")
            raise ChangeRefusedError(
                f"the branch {order.branch} holds something else", "Delete it at the forge."
            )
        return copy.push(commit, order.branch)


def _open(forge: Forge, step: ChangeStep) -> StepResult:
    order = order_of(step)
    there = forge.request_of(order["branch"])
    if there is not None:
        return StepResult(outcome=StepOutcome.DONE, detail=f"it is open already: {there.url}")
    return _told(forge.open(order["branch"], order["title"], order["body"]), 201)


def _close(forge: Forge, branch: str) -> StepResult:
    there = forge.request_of(branch)
    if there is None or there.state != "open":
        return StepResult(outcome=StepOutcome.DONE, detail="no request is open")
    return _told(forge.close(there.number), 200, 201)


def _told(answer: ForgeAnswer, *good: int) -> StepResult:
    if answer.status in good:
        url = answer.found.get("html_url", "") if isinstance(answer.found, dict) else ""
        return StepResult(outcome=StepOutcome.DONE, detail=scrub(f"done: {url}", limit=300))
    if answer.status >= 500 or answer.status < 400:
        return StepResult(outcome=StepOutcome.UNKNOWN, detail=answer.words)
    outcome = StepOutcome.BUSY if answer.status == 429 else StepOutcome.REFUSED
    return StepResult(outcome=outcome, detail=answer.words)


def read_back(
    settings: GitApplySettings,
    forge: Forge,
    api: KubernetesApi,
    change: Change,
    *,
    done: int,
    patience: timedelta,
) -> ReadBack:
    """Look once, at the request first and at the live object once it is merged. Never raises."""
    try:
        if change.steps[0].verb == CLOSE:
            return _closed(forge.request_of(order_of(change.steps[0])["branch"]))
        order = push_order(change)
        there = forge.request_of(order.branch)
        if there is None and done == 1:
            return _of_branch(settings, order.branch)
    except ApplyError as error:
        return ReadBack(seen=Verdict.UNREADABLE, detail=str(error))
    if there is not None and there.state == "open":
        return ReadBack(seen=Verdict.NOT_YET, detail=f"waits to be merged: {there.url}")
    if there is not None and there.state == "closed":
        reason = forge.reason(there.number)
        detail = f"closed without merging{f' ({reason})' if reason else ''}: {there.url}"
        return ReadBack(seen=Verdict.DECLINED, detail=detail)
    found = checking.read_back(api, live_change(change), done=1, patience=patience)
    if found.seen is not Verdict.UNTOUCHED:
        return found
    # A forge may delete a request that was merged: the cluster then has the last word.
    detail = (
        f"merged at {there.at}, and the cluster has not taken it: {there.url}"
        if there is not None
        else f"there is no request of {order.branch}"
    )
    return ReadBack(seen=Verdict.UNTOUCHED, detail=detail, observed=found.observed)


def _of_branch(settings: GitApplySettings, branch: str) -> ReadBack:
    """Return whether a branch was pushed."""
    with base_copy(settings) as copy:
        if copy.branch_head(branch):
            return ReadBack(seen=Verdict.NOT_YET, detail=f"{branch} is pushed")
    return ReadBack(seen=Verdict.UNTOUCHED, detail=f"{branch} is not pushed")


def _closed(there: PullRequest | None) -> ReadBack:
    """Return what became of closing a request."""
    if there is None or there.state == "closed":
        return ReadBack(seen=Verdict.AS_INTENDED, detail="no request is open: nothing changes")
    seen = Verdict.UNTOUCHED if there.state == "open" else Verdict.DIFFERENT
    return ReadBack(seen=seen, detail=f"the request is {there.state}: {there.url}")


def give_up(forge: Forge, change: Change) -> Closed:
    """Close the request of a change that is given up half-way. Never raises."""
    branch = str(order_of(change.steps[0])["branch"])
    try:
        there = forge.request_of(branch)
        if there is not None and there.state == "merged":
            return Closed(left=Left.AS_IT_IS, detail=f"merged: {there.url}")
        result = _close(forge, branch)
    except ApplyError as error:
        return Closed(left=Left.UNKNOWN, detail=error.message)
    if result.outcome is not StepOutcome.DONE:
        return Closed(left=Left.UNKNOWN, detail=result.detail)
    return Closed(left=Left.NOTHING, detail=f"nothing is merged; {branch} may be left to delete")
