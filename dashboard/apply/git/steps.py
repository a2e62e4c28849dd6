"""Content of the steps of a Git change, and the change of the live object behind them."""

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from collectors.kubernetes.workloads import INSTANCE
from dashboard.apply.contract.applier import GIT_FACT
from dashboard.apply.git.manifests import NumberEdit, number_edits
from dashboard.apply.kubernetes.change.make_steps import change_for as live_change_for
from dashboard.apply.kubernetes.change.observe import KUBECTL_FACT, observation_of
from dashboard.apply.kubernetes.change.steps import StepWait, command_of
from data.base.errors import ChangeRefusedError
from data.facts.identifiers import canonical_json
from data.records.changes import Change, ChangeStep, Target
from data.records.recommendations import Recommendation

PUSH, REQUEST, CLOSE = "push", "pull-request", "close-request"
_WARNING_FACTS = (KUBECTL_FACT, INSTANCE)
"""Facts that only warn who patches a live object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOrder:
    """Order of a commit: the new content of a file, and the branch that it goes to.

    `values` is the other place (`OtherPlace.text`) of what is not in a manifest.
    """

    path: str
    mode: str
    blob: str
    branch: str
    message: str
    at: int
    live: str
    values: str = ""


def push_order(change: Change) -> PushOrder:
    """Return the order of a change's first step."""
    return PushOrder(**json.loads(change.steps[0].payload))


def facts_of(target: Target) -> dict[str, str]:
    """Return the facts of the repository in a target's state."""
    pairs = (pair for pair in target.state if pair[0].startswith(GIT_FACT))
    return {name.removeprefix(GIT_FACT): value for name, value in pairs}


def with_facts(target: Target, **facts: str) -> Target:
    """Return a target whose state also holds facts of the repository, in place of older ones."""
    entries = sorted(
        (f"{GIT_FACT}{name}", value) for name, value in (facts_of(target) | facts).items()
    )
    others = (pair for pair in target.state if not pair[0].startswith(GIT_FACT))
    return replace(target, state=(*others, *entries))


def order_of(step: ChangeStep) -> dict[str, Any]:
    """Return the order in the payload of a step."""
    order: dict[str, Any] = json.loads(step.payload)
    return order


def live_plan(recommendation: Recommendation, target: Target) -> Change:
    """Return the change that a patch would make; pure. Errors: ChangeRefusedError.

    What takes several steps in a cluster (a Job that is suspended, a rollout without room) is
    no matter of one commit.
    """
    state = tuple(pair for pair in target.state if pair[0] not in _WARNING_FACTS)
    change = live_change_for(recommendation, replace(target, state=state))
    waits = [command_of(step).wait for step in change.steps]
    if waits != [StepWait.NOTHING]:
        raise ChangeRefusedError(
            f"{target.name} needs {len(waits)} steps; one commit cannot do that",
            "Change it in the repository by hand, or make room for one more pod.",
        )
    return change


def edits_of_plan(plan: Change) -> tuple[NumberEdit, ...]:
    """Return the edits of the manifest. Errors: ChangeRefusedError."""
    document = observation_of(plan.target).document
    return number_edits(document, command_of(plan.steps[0]).edits)


def live_change(change: Change) -> Change:
    """Return the change of the live object that a Git change stands for, to read it back."""
    step = replace(change.steps[0], payload=push_order(change).live)
    return replace(change, steps=(step,), undo=())


def push_step(plan: Change, order: PushOrder, difference: str) -> ChangeStep:
    """Return the step that commits. It names the object and the field as a patch does.

    So a change by either way is known to replace one by the other.
    """
    fields = {name: value for name, value in asdict(order).items() if name != "values" or value}
    payload = canonical_json(fields)
    return replace(plan.steps[0], verb=PUSH, payload=payload, text=difference)


def request_step(repository: str, branch: str, title: str, body: str) -> ChangeStep:
    """Return the step that opens the request."""
    payload = {"branch": branch, "title": title, "body": body}
    return _of_request(REQUEST, repository, None, branch, payload, f"open a request: {title}")


def close_step(repository: str, branch: str) -> ChangeStep:
    """Return the step that closes the request of a branch."""
    text = f"close the request of {branch}"
    return _of_request(CLOSE, repository, branch, None, {"branch": branch}, text)


def _of_request(
    verb: str,
    repository: str,
    before: str | None,
    after: str | None,
    payload: dict[str, str],
    text: str,
) -> ChangeStep:
    return ChangeStep(
        verb=verb,
        target=repository,
        field=f"request of {payload['branch']}",
        before=before,
        after=after,
        payload=canonical_json(payload),
        text=text,
    )
