"""Steps of edits: what is moved aside before them, and put back after.

A Job's pod template moves only while it is suspended and has no pods. A Deployment on full nodes
first has to take a pod away before it makes a new one, or the rollout waits for ever. Pure.
"""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from collectors.kubernetes.workload_state import is_suspended
from collectors.shared.json_parts import count_of
from dashboard.apply.kubernetes.change.edits import edit
from dashboard.apply.kubernetes.state.immutable_fields import in_template, is_fewer
from dashboard.apply.kubernetes.state.json_patch import (
    ABSENT,
    Edit,
    Operation,
    as_text,
    edits_of,
    names_of,
    operations_of,
    pointer,
    value_at,
)
from dashboard.apply.kubernetes.state.object_paths import Place
from dashboard.apply.kubernetes.state.pod_spec import Document
from data.facts.identifiers import canonical_json
from data.records.changes import ChangeStep

VERB = "patch"
_STRATEGY = "/spec/strategy/rollingUpdate"
_SUSPEND = "/spec/suspend"
_SCALED = "/spec/scaleTargetRef"
_SERVICES = ("Deployment", "StatefulSet", "LeaderWorkerSet", "RayService")
_WITHOUT_SURGE = {"maxSurge": 0, "maxUnavailable": 1}


class StepWait(StrEnum):
    """Condition before a step may be sent."""

    NOTHING = ""
    NO_PODS = "no-pods"
    ROLLED_OUT = "rolled-out"
    FREE = "free"
    CUT = "cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCommand:
    """Payload of a step: a JSON patch of the object at `path`, sent after `wait`."""

    path: str
    operations: list[Operation]
    wait: StepWait

    @property
    def edits(self) -> dict[str, tuple[Any, Any]]:
        """(before, after) by pointer."""
        return edits_of(self.operations)


def command_of(step: ChangeStep) -> StepCommand:
    """Return the command of a step's payload."""
    fields = json.loads(step.payload)
    return StepCommand(
        path=fields["path"], operations=fields["operations"], wait=StepWait(fields["wait"])
    )


def sent(command: StepCommand, document: Document) -> list[Operation]:
    """Return the patch as it is sent: refused unless the object is the one, and as, just seen."""
    metadata = document["metadata"]
    return [
        {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
        {
            "op": "replace",
            "path": "/metadata/resourceVersion",
            "value": metadata["resourceVersion"],
        },
        *command.operations,
    ]


def steps_for(
    place: Place, path: str, document: Document, edits: Sequence[Edit], *, surge: bool = True
) -> tuple[ChangeStep, ...]:
    """Return the steps of the edits; without `surge` pods are replaced one by one, never added."""
    template = [entry for entry in edits if in_template(entry)]
    others = [entry for entry in edits if not in_template(entry)]
    guards = _guards(document, edits)
    before: list[Edit] = []
    after: list[Edit] = list(others) if template else []
    wait_before = wait_after = StepWait.NOTHING
    if template and place.kind == "Job":
        suspended = value_at(document, _SUSPEND) is True
        wait_before = StepWait.NO_PODS
        if not suspended:
            before = [edit(document, _SUSPEND, True, "suspend")]
            after = [*after, _back(before[0])]
    elif template and place.kind == "Deployment":
        if not surge and has_surge(document):
            # In one patch with the template: alone it would let a rollout that is stuck go on, and
            # take away the pods that still serve.
            strategy = _without_surge(document)
            template = [*strategy, *template]
            after = [*after, *map(Edit.reversed, strategy)]
        if after:
            wait_after = StepWait.ROLLED_OUT
    steps = [
        step_of(place, path, before, (), StepWait.NOTHING),
        step_of(place, path, template or others, guards, wait_before),
        step_of(place, path, after, (), wait_after),
    ]
    return tuple(step for step in steps if step is not None)


def _back(suspend: Edit) -> Edit:
    """Resume: to what was there, or to false where a server filled that in meanwhile."""
    return Edit(at=suspend.at, before=True, after=suspend.before or False, what=suspend.what)


def has_surge(document: Document) -> bool:
    """Return whether a Deployment makes new pods before it takes old ones away."""
    spec = value_at(document, "/spec/strategy")
    if isinstance(spec, Mapping) and spec.get("type") == "Recreate":
        return False
    return value_at(document, f"{_STRATEGY}/maxSurge") not in (0, "0%")


def outage(kind: str, document: Document) -> Iterator[str]:
    """Yield the warning that a rollout under this strategy leaves no pod at work for a while."""
    replicas = value_at(document, "/spec/replicas")
    pods = 1 if replicas is None else count_of(replicas)
    together = kind == "Deployment" and value_at(document, "/spec/strategy/type") == "Recreate"
    first = kind == "StatefulSet" or not has_surge(document)
    if kind not in ("Deployment", "StatefulSet") or not pods:
        return
    if pods == 1 and not (first or together):
        yield (
            "It has one pod. Taking the change back ends that pod before a new one starts: the "
            "service would be down until then."
        )
    elif pods == 1 or together or (first and _unavailable(document, pods) >= pods):
        ends = "its one pod ends" if pods == 1 else f"all {pods} pods end"
        yield (
            f"The service goes down during the change: {ends} before a new one starts, and it "
            "stays down for as long as no new pod finds a node."
        )


def ended_pods(kind: str, document: Document, edits: Iterable[Edit]) -> Iterator[str]:
    """Yield the warning that fewer pods end running ones, and what that costs."""
    if kind == "CronJob" or is_suspended(document):
        return
    for entry in filter(is_fewer, edits):
        if kind not in _SERVICES:
            before = 1 if entry.before is None else entry.before
            yield (
                f"The change from {before} to {entry.after} deletes running pods: what they did "
                "since their last checkpoint is lost, and has to be done again."
            )
        elif not entry.after:
            yield "All its pods end: nothing serves until someone raises their number again."


def _unavailable(document: Document, pods: int) -> int:
    """Return the number of pods that a rolling update may take away at a time."""
    limit = str(value_at(document, f"{_STRATEGY}/maxUnavailable") or "1")
    percent = limit.removesuffix("%")
    return count_of(limit) if percent == limit else pods * count_of(percent) // 100


def ends_first(document: Document, steps: Iterable[ChangeStep]) -> bool:
    """Return whether a Deployment's rollout ends a pod before it makes a new one."""
    return avoids_surge(steps) or not has_surge(document)


def avoids_surge(steps: Iterable[ChangeStep]) -> bool:
    """Return whether steps let a rollout replace pods one by one."""
    return any(at.startswith(_STRATEGY) for step in steps for at in command_of(step).edits)


def _without_surge(document: Document) -> list[Edit]:
    if value_at(document, _STRATEGY) is None:
        return [edit(document, _STRATEGY, _WITHOUT_SURGE, "rollingUpdate")]
    return [
        edit(document, f"{_STRATEGY}/{name}", value, name)
        for name, value in _WITHOUT_SURGE.items()
        if value_at(document, f"{_STRATEGY}/{name}") != value
    ]


_NAMED_BY = {
    "resources": ("name", 0),
    "workerGroupSpecs": ("groupName", 2),
    "replicatedJobs": ("name", 2),
}
"""Name in a pointer to the field beside it that names the list's element, and its distance."""


def _guards(document: Document, edits: Iterable[Edit]) -> list[Operation]:
    """Return tests that every element of a list still is where it was: lists have no names.

    And that an autoscaler still scales what it did.
    """
    tests: list[Operation] = []
    if (scaled := value_at(document, _SCALED)) is not None:
        tests.append({"op": "test", "path": _SCALED, "value": scaled})
    for entry in edits:
        names = names_of(entry.at)
        for marker, (field, distance) in _NAMED_BY.items():
            if marker in names:
                at = pointer(*names[: names.index(marker) + distance], field)
                guard = {"op": "test", "path": at, "value": value_at(document, at)}
                if guard["value"] is not None and guard not in tests:
                    tests.append(guard)
    return tests


def step_of(
    place: Place,
    path: str,
    edits: Sequence[Edit],
    guards: Sequence[Operation],
    wait: StepWait,
) -> ChangeStep | None:
    """Return the step that makes the edits once what it waits for holds, None without any."""
    if not edits:
        return None
    operations = [*guards, *operations_of(edits)]
    # Limits and requests say the same: people need it once.
    rows = list(
        dict.fromkeys((entry.what, _text(entry.before), _text(entry.after)) for entry in edits)
    )
    return ChangeStep(
        verb=VERB,
        target=f"{place.word} in {place.namespace}" if place.namespace else place.word,
        field="; ".join(what for what, _before, _after in rows),
        before=_text_of([before for _what, before, _after in rows]),
        after=_text_of([after for _what, _before, after in rows]),
        payload=canonical_json({"path": path, "operations": operations, "wait": wait}),
        text=by_hand(place, operations),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else as_text(value)


def _text_of(texts: Sequence[str]) -> str | None:
    """Return values for people, None where every field is unset."""
    return None if set(texts) == {ABSENT} else "; ".join(texts)


def by_hand(place: Place, operations: Sequence[Operation]) -> str:
    """Return the command that a person would type."""
    namespace = f"-n {shlex.quote(place.namespace)} " if place.namespace else ""
    patch = shlex.quote(json.dumps(list(operations), separators=(",", ":")))
    return f"kubectl {namespace}patch {shlex.quote(place.word)} --type json -p {patch}"
