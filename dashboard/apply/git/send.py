"""Sends one step to the repository or its forge, once, and reads a change back from both."""

from datetime import timedelta

from collectors.kubernetes.api import KubernetesApi
from dashboard.apply.contract.applier import CloseResult, Remains
from dashboard.apply.git.find_manifest import edited_at
from dashboard.apply.git.forge import Forge, ForgeAnswer, ForgeCutError, PullRequest
from dashboard.apply.git.manifests import line_difference
from dashboard.apply.git.repository import GitCopy, base_copy
from dashboard.apply.git.steps import (
    CLOSE,
    PUSH,
    edits_of_plan,
    facts_of,
    live_change,
    order_of,
    push_order,
)
from dashboard.apply.git.values import ValuePlace
from dashboard.apply.kubernetes.change import verify
from dashboard.apply.kubernetes.change.observe import observation_of
from dashboard.common.escaping import shown
from data.base.errors import ApplyError, ChangeRefusedError, StalePlanError
from data.records.changes import Change, ChangeStep, ReadBack, StepOutcome, StepResult
from data.records.changes import VerificationResult as Verdict
from data.settings.apply import GitApplySettings

_MAX_AUTHOR = 80


def execute(
    settings: GitApplySettings, forge: Forge, step: ChangeStep, change: Change
) -> StepResult:
    """Send a step. Never raises; nothing is sent twice that has arrived already."""
    try:
        if step.verb == PUSH:
            return _push(settings, change)
        require_same_place(settings, change)
        if step.verb == CLOSE:
            return _close(forge, order_of(step)["branch"])
        return _open(settings, forge, step, change)
    except (ChangeRefusedError, StalePlanError) as error:
        return StepResult(outcome=StepOutcome.REFUSED, detail=str(error))
    except ForgeCutError as error:
        return StepResult(outcome=StepOutcome.UNKNOWN, detail=error.message)
    except ApplyError as error:
        return StepResult(outcome=StepOutcome.BUSY, detail=f"nothing was sent: {error.message}")


def require_same_place(settings: GitApplySettings, change: Change) -> None:
    """Refuse where the settings name another repository or base than the change was made for.

    Errors: StalePlanError.
    """
    facts = facts_of(change.target)
    there, now = (facts["repository"], facts["base"]), (settings.repository, settings.base_branch)
    if there != now:
        raise StalePlanError(
            f"the change is for {' '.join(there)}, and apply_git names {' '.join(now)} now",
            "Set apply_git.repository and base_branch back, or run a new cycle.",
        )


def _commit(settings: GitApplySettings, copy: GitCopy, change: Change) -> str:
    """Return the commit of a change on the base as it is now: the same commit each time.

    Errors: StalePlanError where the place, the file or the difference is not the approved one.
    """
    require_same_place(settings, change)
    order = push_order(change)
    file = next((entry for entry in copy.files(order.path) if entry.path == order.path), None)
    if file is None or file.blob != order.blob:
        raise StalePlanError(
            f"{order.path} has changed on {settings.base_branch} since it was approved",
            "Run a new cycle and approve its recommendation.",
        )
    text = copy.text(file)
    changed = _edited(text, change)
    difference = None if changed is None else line_difference(file.path, text, changed)
    if changed is None or difference != change.steps[0].text:
        raise StalePlanError("the difference is not the one that was approved", "")
    return copy.commit_file(file, changed, order.message, order.at)


def _push(settings: GitApplySettings, change: Change) -> StepResult:
    """Commit on the base as it is now, and push that commit to a branch that is new."""
    branch = push_order(change).branch
    with base_copy(settings) as copy:
        commit, head = _commit(settings, copy, change), copy.branch_head(branch)
        if not head:
            return copy.push(commit, branch)
    _require_own(branch, head, commit)
    return StepResult(outcome=StepOutcome.DONE, detail="the branch was there already")


def _open(settings: GitApplySettings, forge: Forge, step: ChangeStep, change: Change) -> StepResult:
    """Open the request of a branch that holds the approved commit and nothing else."""
    order = order_of(step)
    branch = order["branch"]
    there = forge.request_of(branch)
    if there is None or there.state == "open":
        with base_copy(settings) as copy:
            _require_own(branch, copy.branch_head(branch), _commit(settings, copy, change))
    if there is not None:
        return StepResult(
            outcome=StepOutcome.DONE, detail=f"it is {there.state} already: {there.url}"
        )
    return _result_of(forge.open(branch, order["title"], order["body"]), 201)


def _require_own(branch: str, head: str, commit: str) -> None:
    """Refuse a branch whose head is not the approved commit: others may push to it too."""
    if head != commit:
        raise ChangeRefusedError(
            f"the branch {branch} already exists with other content, or its base has moved on"
            if head
            else f"the branch {branch} is gone",
            "Delete it at the forge, and run a new cycle.",
        )


def _close(forge: Forge, branch: str) -> StepResult:
    there = forge.request_of(branch)
    if there is None or there.state != "open":
        return StepResult(outcome=StepOutcome.DONE, detail="no request is open")
    return _result_of(forge.close(there.number), 200, 201)


def _result_of(answer: ForgeAnswer, *good: int) -> StepResult:
    if answer.status in good:
        return StepResult(outcome=StepOutcome.DONE, detail=f"done: {answer.url}")
    if answer.status >= 500 or answer.status < 400:
        return StepResult(outcome=StepOutcome.UNKNOWN, detail=answer.words)
    busy = answer.status == 429 or "rate limit" in answer.words
    outcome = StepOutcome.BUSY if busy else StepOutcome.REFUSED
    return StepResult(outcome=outcome, detail=answer.words)


def read_back(
    settings: GitApplySettings,
    forge: Forge,
    api: KubernetesApi,
    change: Change,
    *,
    done: int,
    rollout_timeout: timedelta,
) -> ReadBack:
    """Look once, at the request first and at the live object once it is merged. Never raises."""
    if not change.steps:
        return ReadBack(seen=Verdict.AS_INTENDED, detail="nothing was sent")
    try:
        if change.steps[0].verb == CLOSE:
            require_same_place(settings, change)
            return _closed(forge.request_of(order_of(change.steps[0])["branch"]))
        order = push_order(change)
        there = _request_of(settings, forge, change)
        if there is None and done == 1:
            return _of_branch(settings, change)
        if there is not None and there.state == "open":
            foreign = _foreign_commit(settings, change)
            detail = f"waiting to be merged{foreign}: {there.url}"
            return ReadBack(seen=Verdict.NOT_YET, detail=detail)
    except ApplyError as error:
        return ReadBack(seen=Verdict.UNREADABLE, detail=str(error))
    if there is not None and there.state == "closed":
        reason = forge.reason(there.number)
        detail = f"closed without merging{f' ({reason})' if reason else ''}: {there.url}"
        return ReadBack(seen=Verdict.DECLINED, detail=detail)
    live = verify.read_back(api, live_change(change), done=1, rollout_timeout=rollout_timeout)
    if live.seen is not Verdict.UNTOUCHED:
        return live
    # A forge may delete a request that was merged: the cluster then has the last word.
    detail = (
        f"merged at {there.at}, and not yet synced to the cluster: {there.url}"
        if there is not None
        else f"no pull request for branch {order.branch}"
    )
    return ReadBack(seen=Verdict.UNTOUCHED, detail=detail, observed=live.observed)


def _request_of(settings: GitApplySettings, forge: Forge, change: Change) -> PullRequest | None:
    """Return the request of a change, None where the settings name another place by now."""
    try:
        require_same_place(settings, change)
    except StalePlanError:
        return None
    return forge.request_of(push_order(change).branch)


def _of_branch(settings: GitApplySettings, change: Change) -> ReadBack:
    """Return whether the branch holds the commit of a change."""
    branch = push_order(change).branch
    with base_copy(settings) as copy:
        head = copy.branch_head(branch)
        if not head:
            return ReadBack(seen=Verdict.UNTOUCHED, detail=f"{branch} is not pushed")
        try:
            _require_own(branch, head, _commit(settings, copy, change))
        except (ChangeRefusedError, StalePlanError) as error:
            return ReadBack(seen=Verdict.DIFFERENT, detail=str(error))
    return ReadBack(seen=Verdict.NOT_YET, detail=f"{branch} is pushed")


def _foreign_commit(settings: GitApplySettings, change: Change) -> str:
    """Return the commit on an open request's branch beside the approved one, '' for none.

    The base may have moved on since: what counts is that the newest commit is the approved words
    and the approved edit of the approved file. Errors: ApplyError.
    """
    order = push_order(change)
    with base_copy(settings) as copy:
        if not copy.branch_head(order.branch):
            return f", and the branch {order.branch} is gone"
        newest = copy.branch_commit(order.branch)
        mine = newest.is_on_base and newest.message.strip() == order.message.strip()
        if mine and (mine := len(newest.files) == 1):
            ((before, after),) = newest.files
            same = (before.path, before.mode, before.blob) == (order.path, order.mode, order.blob)
            mine = same and after.mode == order.mode
            mine = mine and _edited(copy.text(before), change) == copy.text(after)
    if mine:
        return ""
    who = shown(newest.author, limit=_MAX_AUTHOR)
    return f", with a commit on its branch that nobody approved ({newest.commit[:12]} by {who})"


def _edited(text: str, change: Change) -> str | None:
    """Return the text of a change's file with its edits made. Errors: ChangeRefusedError."""
    order = push_order(change)
    other = ValuePlace.of(order.values) if order.values else None
    edits = edits_of_plan(live_change(change))
    return edited_at(text, observation_of(change.target).place, edits, other)


def _closed(there: PullRequest | None) -> ReadBack:
    """Return the result of closing a request."""
    if there is None or there.state == "closed":
        return ReadBack(seen=Verdict.AS_INTENDED, detail="no request is open: nothing changes")
    verdict = Verdict.UNTOUCHED if there.state == "open" else Verdict.DIFFERENT
    return ReadBack(seen=verdict, detail=f"the request is {there.state}: {there.url}")


def close_request(settings: GitApplySettings, forge: Forge, change: Change) -> CloseResult:
    """Close the request of a change that is given up half-way. Never raises."""
    branch = str(order_of(change.steps[0])["branch"])
    try:
        require_same_place(settings, change)
        there = forge.request_of(branch)
        if there is not None and there.state == "merged":
            return CloseResult(left=Remains.AS_IT_IS, detail=f"merged: {there.url}")
        result = _close(forge, branch)
    except ApplyError as error:
        return CloseResult(left=Remains.UNKNOWN, detail=error.message)
    if result.outcome is not StepOutcome.DONE:
        return CloseResult(left=Remains.UNKNOWN, detail=result.detail)
    return CloseResult(
        left=Remains.NOTHING, detail=f"nothing is merged; {branch} may be left to delete"
    )
