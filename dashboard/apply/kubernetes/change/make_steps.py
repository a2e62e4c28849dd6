"""The steps of a change and of its way back, from what a look saw. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from collectors.kubernetes.workloads import INSTANCE
from dashboard.apply.kubernetes.change import autoscaler_bounds, node_layouts
from dashboard.apply.kubernetes.change.edits import edits_for
from dashboard.apply.kubernetes.change.observe import (
    KUBECTL_FACT,
    PODS_FACT,
    ROOM_FACT,
    ObservedTarget,
    no_room,
    observation_of,
)
from dashboard.apply.kubernetes.change.steps import (
    avoids_surge,
    command_of,
    ended_pods,
    outage,
    steps_for,
)
from dashboard.apply.kubernetes.state.field_owners import tracked
from dashboard.apply.kubernetes.state.free_capacity import UNKNOWN
from dashboard.apply.kubernetes.state.immutable_fields import in_template, require_possible
from dashboard.apply.kubernetes.state.json_patch import (
    Edit,
    as_text,
    names_of,
    operations_of,
    patched,
    value_at,
)
from data.base.errors import ChangeRefusedError, StalePlanError
from data.records.changes import Change, ChangeStep, Target
from data.records.recommendations import Recommendation


def change_for(recommendation: Recommendation, target: Target) -> Change:
    """Return the change. Errors: ChangeRefusedError, with the difference of the manifest."""
    view = observation_of(target)
    if recommendation.action.spec.cuts:
        details = dict(recommendation.details)
        layout = details.get("mig_layout") or details.get("layout", "")
        return _cut(recommendation.digest, target, view, layout)
    edits = edits_for(recommendation, view.place.kind, view.document, view.facts)
    require_possible(view.place, view.document, edits, view.facts)
    steps = steps_for(view.place, view.path, view.document, edits, surge=not no_room(target))
    return _change(recommendation.digest, target, view, steps, edits)


def change_back(change: Change, target: Target) -> Change:
    """Return the change that restores what `change` touched. Errors: StalePlanError.

    What an earlier way back touched beside it and left half-way is restored too. It never adds a
    pod before one is gone: what is given back may hold larger pods, and what has failed is to end
    soon.
    """
    view = observation_of(target)
    edits = list(_restoring(change, view.document))
    if node_layouts.CUT_FACT in view.facts:
        return _cut_back(change, target, view, edits)
    steps = steps_for(view.place, view.path, view.document, edits, surge=False)
    return _change(change.recommendation_digest, target, view, steps, edits)


def _change(
    digest: str,
    target: Target,
    view: ObservedTarget,
    steps: tuple[ChangeStep, ...],
    edits: list[Edit],
) -> Change:
    after = patched(view.document, operations_of(edits))
    reverse = [edit.reversed() for edit in reversed(edits)]
    return Change(
        recommendation_digest=digest,
        target=target,
        steps=steps,
        undo=steps_for(view.place, view.path, after, reverse, surge=False),
        notes=tuple(_notes(view, steps, edits)),
    )


def _cut(digest: str, target: Target, view: ObservedTarget, layout: str | None) -> Change:
    plan = node_layouts.CutPlan.of(view.facts)
    steps = node_layouts.cut_steps(view.place, view.path, view.document, plan, layout)
    before = value_at(view.document, plan.layout_at)
    after = view.document
    for step in steps:
        after = patched(after, command_of(step).operations)
    return Change(
        recommendation_digest=digest,
        target=target,
        steps=steps,
        undo=node_layouts.cut_steps(view.place, view.path, after, plan, before),
        notes=tuple(node_layouts.notes(plan, layout)),
    )


def _cut_back(
    change: Change, target: Target, view: ObservedTarget, edits: Sequence[Edit]
) -> Change:
    """Return the change back to the layout of before, while nobody holds its slices."""
    if not edits:
        return replace(change, target=target, steps=(), undo=change.steps)
    if users := view.facts.get(PODS_FACT):
        raise ChangeRefusedError(
            f"pods hold GPUs of {view.place.word}: {users}",
            "Take back what they were given first, or drain the node.",
        )
    layout_at = node_layouts.CutPlan.of(view.facts).layout_at
    before = value_at(observation_of(change.target).document, layout_at)
    return _cut(change.recommendation_digest, target, view, before)


def field_values(change: Change, done: int | None = None) -> dict[str, list[Any]]:
    """Return by pointer the values of a field: as it was, then after each of `done` steps."""
    steps = [command_of(step).edits for step in change.steps]
    histories: dict[str, list[Any]] = {}
    for index, edits in enumerate(steps):
        for at, (before, _after) in edits.items():
            histories.setdefault(at, [before] * (index + 1))
        for at, values in histories.items():
            values.append(edits[at][1] if at in edits else values[-1])
    return {at: values[: None if done is None else done + 1] for at, values in histories.items()}


def _restoring(change: Change, document: Mapping[str, Any]) -> Iterator[Edit]:
    for at, values in field_values(change).items():
        now = value_at(document, at)
        if as_text(now) == as_text(values[0]):
            continue
        if as_text(now) not in map(as_text, values):
            raise StalePlanError(
                f"{at} of {change.target.name} is {as_text(now)}: neither what was sent "
                f"({as_text(values[-1])}) nor what was before ({as_text(values[0])})",
                "Someone else has changed it since; decide by hand.",
            )
        yield Edit(at=at, before=now, after=values[0], what=names_of(at)[-1])
    yield from _left_by_a_way_back(change, document)


def _left_by_a_way_back(change: Change, document: Mapping[str, Any]) -> Iterator[Edit]:
    """Yield the edits of fields that only a way back sets, where one set them and was cut short."""
    original = observation_of(change.target).document
    fields = field_values(change)
    edits = [edit for step in change.undo for edit in command_of(step).edits.items()]
    for at in dict.fromkeys(at for at, _values in edits if at not in fields):
        now, before = value_at(document, at), value_at(original, at)
        between = [as_text(value) for field, values in edits if field == at for value in values]
        if as_text(now) != as_text(before) and as_text(now) in between:
            yield Edit(at=at, before=now, after=before, what=names_of(at)[-1])


def _notes(view: ObservedTarget, steps: tuple[ChangeStep, ...], edits: list[Edit]) -> Iterator[str]:
    kind, facts = view.place.kind, view.facts
    if facts.get(KUBECTL_FACT):
        yield (
            "A person keeps its manifest and sends it with kubectl apply: change it there too, or "
            "the next apply undoes this."
        )
    if INSTANCE in facts:
        yield tracked(facts[INSTANCE])
    if any(map(in_template, edits)):
        yield from _rollout_notes(view, steps)
    if kind == "Node":
        yield from _node_notes(view, back=bool(edits) and not edits[0].after)
    yield from ended_pods(kind, view.document, edits)
    if any(edit.at == "/spec/replicas" and edit.after == 1 for edit in edits):
        yield "One pod is left: none takes over while it starts anew."
    if kind in ("PyTorchJob", "MPIJob") and any(edit.at.endswith("/replicas") for edit in edits):
        yield "Its workers meet anew (elastic rendezvous); some operators restart them all."
    if kind == "JobSet" and not any(edit.what == "suspend" for edit in edits):
        yield "Most releases of JobSet let no number of jobs or pods change: the rehearsal tells."
    yield from autoscaler_bounds.notes(kind, edits)
    if kind == "CronJob":
        yield "It holds from the next run on: a run under way keeps what it has."
    elif any(edit.what == "suspend" for edit in edits):
        yield "Suspending deletes the pods: work since the last checkpoint is lost."


def _rollout_notes(view: ObservedTarget, steps: tuple[ChangeStep, ...]) -> Iterator[str]:
    if avoids_surge(steps):
        yield (
            "No node has room for one more pod, so pods are replaced one by one, each gone before "
            "its successor starts (maxSurge 0, maxUnavailable 1 until the rollout is over)."
        )
    elif view.facts.get(ROOM_FACT) == UNKNOWN:
        yield (
            "Whether a node has room for the one more pod of the rollout is unknown: nodes, pods "
            "or quotas may not be listed, or their numbers are not understood. On full nodes the "
            "rollout would wait (set maxSurge to 0 then)."
        )
    if view.place.kind == "Job" and len(steps) > 1:
        yield "Its pods are deleted and made anew: work since the last checkpoint is lost."
    first = patched(view.document, command_of(steps[0]).operations)
    yield from outage(view.place.kind, first)


def _node_notes(view: ObservedTarget, *, back: bool) -> Iterator[str]:
    pods = view.facts.get(PODS_FACT, "")
    name = view.place.name
    if back:
        yield "Pods are put on the node again. One that was powered off has to be switched on."
        return
    yield (
        "Cordoning moves nothing. To empty the node, once the owners of its pods agree: "
        f"kubectl drain {name} --ignore-daemonsets --delete-emptydir-data. Way back: kubectl "
        f"uncordon {name}."
    )
    yield f"Pods with GPUs on it: {pods}." if pods else "No pod with GPUs is on it."
