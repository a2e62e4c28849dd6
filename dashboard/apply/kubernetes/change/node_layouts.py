"""Another layout for a free node: cordon it, name the layout, wait for the offer, uncordon it.

A label names the layout: that of the GPU operator's MIG manager, which says in another label how it
fares, or that of the device plugin's config manager, which says nothing. Right after the first was
set the second is still that of the cut before: a cut is made when the manager does not say
otherwise and the node offers exactly what the layout says. A node that bears no label of the device
plugin has the plugin's default, which a removed label brings back.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import yaml

from collectors.kubernetes.api import Document, KubernetesApi
from collectors.kubernetes.client import path_of_config_map
from collectors.kubernetes.nodes import file_of, layouts_in
from collectors.kubernetes.objects import gpu_resources, model_of
from collectors.shared.json_parts import count_of, list_in, part, text_in, time_in
from dashboard.apply.contract.applier import CloseResult, Remains
from dashboard.apply.kubernetes.change.steps import StepCommand, StepWait, command_of, sent, step_of
from dashboard.apply.kubernetes.state import reading
from dashboard.apply.kubernetes.state.api_errors import meaning_of
from dashboard.apply.kubernetes.state.json_patch import (
    Edit,
    Operation,
    operations_of,
    pointer,
    value_at,
)
from dashboard.apply.kubernetes.state.object_paths import Place
from dashboard.common.kubernetes_writer import FIELD_MANAGER, KubernetesWriter
from data.base.errors import ApplyError, ChangeRefusedError, CollectorError, StalePlanError
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.fleet import MigLayout
from data.facts.gpu_resources import (
    COUNT_LABEL,
    MIG_LAYOUT_LABEL,
    MIG_STATE_LABEL,
    MIG_STRATEGY_LABEL,
    PLUGIN_CONFIG_LABEL,
    SHARED_GPU,
    WHOLE_GPU,
    resource_of,
)
from data.facts.identifiers import canonical_json
from data.records.changes import Change, ChangeStep
from data.records.changes import VerificationResult as Verdict
from data.records.recommendations import BOARD_SHARES, Recommendation

CUT_FACT = "layouts"
"""Fact of a target: the ConfigMap, and what the node offers by layout, as JSON."""
_CORDON_AT = "/spec/unschedulable"
_PENDING_STATES = ("pending", "rebooting")
_DONE_STATES = ("", "success")
_NEW_CYCLE = "Run a new cycle."


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPlan:
    """The ConfigMap of the layouts, and what the node offers by resource under each of the two.

    `label` of the node names its layout, '' is that of a node without the label. Model and number
    of boards are those of the whole node: its labels may say else once it is cut. `state`,
    `strategy` and `present` are what manager and node said when they were looked at. Of one whose
    last cut had failed a failure tells nothing of this one.
    """

    label: str
    source: str
    model: str
    boards: int
    offers: Mapping[str, Mapping[str, int]]
    state: str = ""
    strategy: str = ""
    present: Mapping[str, int] = field(default_factory=dict)

    @property
    def layout_at(self) -> str:
        """The pointer to the label."""
        return pointer("metadata", "labels", self.label)

    def seen(self, node: Document) -> "CutPlan":
        """Return it with what a node says now."""
        return replace(
            self,
            state="" if _state(node) in _DONE_STATES else _state(node),
            strategy=text_in(node, "metadata", "labels", MIG_STRATEGY_LABEL),
            present=gpu_resources(node),
        )

    @classmethod
    def of(cls, facts: Mapping[str, str]) -> "CutPlan":
        """Return it from the facts of a target."""
        return cls(**json.loads(facts[CUT_FACT]))

    def holds(self, document: Document) -> bool:
        """Return whether a node offers what its layout says."""
        offer = self.offers.get(text_in(document, "metadata", "labels", self.label))
        return offer is not None and gpu_resources(document) == offer


def cut_fact(
    api: KubernetesApi, catalogue: GpuCatalogue, recommendation: Recommendation, node: Document
) -> str:
    """Return the fact of a node that is to be cut. Errors: StalePlanError, ChangeRefusedError.

    The node has to be as the plan saw it: in use, whole, at rest under a layout that is offered
    still, as is the new one. One node is cut at a time.
    """
    details, name = dict(recommendation.details), text_in(node, "metadata", "name")
    shares = BOARD_SHARES in details
    label = PLUGIN_CONFIG_LABEL if shares else MIG_LAYOUT_LABEL
    labels = part(node, "metadata", "labels")
    before, state = text_in(labels, label), text_in(labels, MIG_STATE_LABEL)
    boards = {WHOLE_GPU: recommendation.now.gpu_count}
    strategy = text_in(labels, MIG_STRATEGY_LABEL)
    for holds, why in (
        (part(node, "spec", "unschedulable") is not True, "is cordoned, so others have plans"),
        (gpu_resources(node) == boards, f"offers {gpu_resources(node)}, not {boards}"),
        (
            shares or strategy == "mixed",
            f"offers slices by the strategy {strategy or 'unknown'}, not mixed",
        ),
        (state in _DONE_STATES, f"has a MIG manager that says {state}"),
    ):
        if not holds:
            raise StalePlanError(f"node {name} {why}", _NEW_CYCLE)
    plan = CutPlan(
        label=label,
        source=details.get("layouts_of" if shares else "mig_layouts_of", ""),
        model=model_of(node, catalogue),
        boards=boards[WHOLE_GPU] if shares else count_of(text_in(labels, COUNT_LABEL)),
        offers={},
    )
    if shares:
        _require_alone(api, name)
        config = details.get("layout", "")
        if before == config:
            why = f"bears {label}={config} and offers whole boards: its device plugin is deaf to it"
            raise StalePlanError(f"node {name} {why}", "See the log of its config manager.")
        offers = {before: boards, config: _shares(api, plan, config)}
        if offers[config] != {SHARED_GPU: int(details[BOARD_SHARES]) * plan.boards}:
            text = f"{plan.source} offers {offers[config] or 'no shares'} by {config}"
            raise StalePlanError(f"{text}, not {details[BOARD_SHARES]} of each board", _NEW_CYCLE)
        return canonical_json(replace(plan, offers=offers).seen(node))
    layouts = _layouts(api, catalogue, plan)
    now, then = layouts.get(before), layouts.get(details.get("mig_layout", ""))
    if now is None or now.cut or now.whole != recommendation.now.gpu_count:
        raise StalePlanError(f"node {name} has no way back: its layout is {before!r}", _NEW_CYCLE)
    if then is None or recommendation.change != f"MIG layout {then.describe()}":
        text = "not offered" if then is None else then.describe()
        raise StalePlanError(f"the layout {details.get('mig_layout')} is {text} now", _NEW_CYCLE)
    _require_alone(api, name)
    offers = {layout.name: _offers(layout) for layout in (now, then)}
    return canonical_json(replace(plan, offers=offers).seen(node))


def cut_fact_again(
    api: KubernetesApi, catalogue: GpuCatalogue, facts: Mapping[str, str], node: Document
) -> str:
    """Return the fact as it is now. Errors: StalePlanError where a layout has become another."""
    plan = CutPlan.of(facts)
    if plan.label == PLUGIN_CONFIG_LABEL:
        for name, offers in plan.offers.items():
            if SHARED_GPU in offers and _shares(api, plan, name) != offers:
                raise StalePlanError(f"{plan.source} has changed: {name}", _NEW_CYCLE)
        return canonical_json(plan.seen(node))
    layouts = _layouts(api, catalogue, plan)
    for name, offers in plan.offers.items():
        if name not in layouts or _offers(layouts[name]) != offers:
            raise StalePlanError(f"{plan.source} has changed: the layout {name}", _NEW_CYCLE)
    return canonical_json(plan.seen(node))


def _state(node: Document) -> str:
    return text_in(node, "metadata", "labels", MIG_STATE_LABEL)


def _config_map(api: KubernetesApi, source: str) -> Document:
    path = path_of_config_map(source)
    answer = reading.asking(api, path)
    if not answer.ok:
        raise ChangeRefusedError(
            f"the layouts of {source} cannot be read: {meaning_of(answer, path, verb='get')}",
            "See deploy/kubernetes-mig-layouts.yaml for the role.",
        )
    return answer.found


def _shares(api: KubernetesApi, plan: CutPlan, name: str) -> dict[str, int]:
    """Return the offer of a node under a configuration of the device plugin, by resource.

    Empty unless it shares every board by time slicing and under the resource of shares: pods that
    ask for a whole GPU would get a share otherwise.
    """
    text = part(_config_map(api, plan.source), "data", name)
    try:
        config = yaml.safe_load(text) if isinstance(text, str) else None
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError, TypeError):
        return {}
    entries = list_in(config, "sharing", "timeSlicing", "resources")
    replicas = count_of(part(entries[0], "replicas")) if entries else 0
    slicing = {
        "renameByDefault": True,
        "failRequestsGreaterThanOne": True,
        "resources": [{"name": WHOLE_GPU, "replicas": replicas}],
    }
    is_alike = part(config, "sharing") == {"timeSlicing": slicing}
    return {SHARED_GPU: plan.boards * replicas} if is_alike else {}


def _layouts(api: KubernetesApi, catalogue: GpuCatalogue, plan: CutPlan) -> dict[str, MigLayout]:
    model, text = catalogue.find(plan.model), file_of(_config_map(api, plan.source))
    layouts = () if model is None else layouts_in(text, model, plan.boards)
    return {layout.name: layout for layout in layouts}


def _offers(layout: MigLayout) -> dict[str, int]:
    boards = {WHOLE_GPU: layout.whole} if layout.whole else {}
    return boards | {resource_of(profile): count for profile, count in layout.slices.items()}


def _require_alone(api: KubernetesApi, name: str) -> None:
    """Refuse (ChangeRefusedError) to cut a node while another one is being cut."""
    others = {text_in(node, "metadata", "name"): _state(node) for node in reading.nodes(api) or []}
    busy = [other for other, state in others.items() if state in _PENDING_STATES and other != name]
    if busy:
        raise ChangeRefusedError(
            f"node {busy[0]} is being cut: one node is cut at a time", "Wait until it is over."
        )


def cut_steps(
    place: Place, path: str, document: Document, plan: CutPlan, layout: str | None
) -> tuple[ChangeStep, ...]:
    """Return the steps that give a node another layout, None for no label, while nobody uses it."""
    before, cordoned = value_at(document, plan.layout_at), value_at(document, _CORDON_AT)
    name = Edit(at=plan.layout_at, before=before, after=layout, what=plan.label)
    cordon = Edit(at=_CORDON_AT, before=cordoned, after=True, what="unschedulable")
    away = [] if cordoned is True else [cordon]
    back = Edit(at=_CORDON_AT, before=True, after=None, what="unschedulable")
    guard: Operation = {"op": "test", "path": _CORDON_AT, "value": True}
    steps = (
        step_of(place, path, away, (), StepWait.NOTHING),
        step_of(place, path, [] if before == layout else [name], [guard], StepWait.FREE),
        step_of(place, path, [back], (), StepWait.CUT),
    )
    return tuple(step for step in steps if step is not None)


def notes(plan: CutPlan, layout: str | None) -> Iterator[str]:
    """Yield the notes for a person before a node is cut."""
    offers = plan.offers[layout or ""]
    offer = ", ".join(f"{count} of {name}" for name, count in sorted(offers.items()))
    if plan.label == PLUGIN_CONFIG_LABEL:
        yield f"The device plugin starts anew with it. Then the node offers {offer}."
        yield "Time slicing holds no pod to a part of the memory of its board."
    else:
        yield "Its MIG manager stops the node's GPU services while it works."
        yield f"Then it offers {offer}."
    yield "It is cordoned meanwhile. If that fails, the layout of before is named again."


def pending_condition(
    command: StepCommand, facts: Mapping[str, str], node: Document, pods: str
) -> tuple[str, bool]:
    """Return the condition that a step waits for, '' for none, and whether it can still come."""
    if command.wait is StepWait.FREE:
        return (f"pods with GPUs are on the node: {pods}", False) if pods else ("", True)
    plan = CutPlan.of(facts)
    if plan.holds(node) and _state(node) in _DONE_STATES:
        return "", True
    return _waits(node), plan.state == "failed" or _state(node) != "failed"


def _waits(node: Document) -> str:
    offered = ", ".join(f"{name} {count}" for name, count in gpu_resources(node).items())
    state = _state(node)
    says = f"the MIG manager says {state}, and " if state else ""
    return f"{says}the node offers {offered or 'no GPU'}"


def effect(facts: Mapping[str, str], node: Document, *, over: bool) -> tuple[Verdict, str]:
    """Return the effect of the steps so far on a node; `over` once all were taken."""
    plan = CutPlan.of(facts)
    if _state(node) == "failed" and plan.state != "failed":
        return Verdict.FAILING, _waits(node)
    if over and not plan.holds(node):
        return Verdict.NOT_YET, _waits(node)
    return Verdict.AS_INTENDED, _waits(node)


def between_steps(change: Change, sent_steps: int) -> str:
    """Return the remains of a change on a node between two steps, '' for none."""
    if not 0 < sent_steps < len(change.steps):
        return ""
    return f"node {change.target.name} is cordoned (by hand: kubectl uncordon {change.target.name})"


def close(
    api: KubernetesWriter,
    change: Change,
    facts: Mapping[str, str],
    limit: timedelta,
    *,
    sent: int,
    pods: str,
) -> CloseResult:
    """Name the layout of before again, and uncordon the node once it offers that. Never raises.

    `sent` steps were. A node whose manager does not give that back within `limit` stays cordoned.
    One on which `pods` hold GPUs by now keeps its layout.
    """
    place = Place(kind="Node", namespace="", name=change.target.name)
    path = facts["path"]
    try:
        answer = reading.asking(api, path)
        node = reading.object_in(answer, path, place)
        if text_in(node, "metadata", "uid") != change.target.identity:
            return CloseResult(
                left=Remains.AS_IT_IS, detail="the node is another one of the same name"
            )
        layout_at = CutPlan.of(facts).layout_at
        is_set = any(layout_at in command_of(step).edits for step in change.steps[:sent])
        over = _is_over(answer.at, _last_written(node), limit)
        edit, closed = _next_edit(change, facts, node, is_set=is_set, over=over)
        if edit is not None and edit.at == layout_at and pods:
            detail = f"pods hold GPUs of its slices, so it stays cut: {pods}"
            return CloseResult(left=Remains.PART, detail=detail)
        if edit is not None:
            _send(api, path, node, edit)
    except ApplyError as error:
        if isinstance(error, StalePlanError | ChangeRefusedError):
            return CloseResult(left=Remains.AS_IT_IS, detail=str(error))
        return CloseResult(left=Remains.UNKNOWN, detail=str(error))
    return closed


def _next_edit(
    change: Change, facts: Mapping[str, str], node: Document, *, is_set: bool, over: bool
) -> tuple[Edit | None, CloseResult]:
    """Return the next edit on the way back, and the remains after it.

    `is_set`: the layout may have been, so that its manager may be at work; `over`: for too long.
    """
    edits = {
        where: values for step in change.steps for where, values in command_of(step).edits.items()
    }
    plan = CutPlan.of(facts)
    before, after = edits.get(plan.layout_at, (value_at(node, plan.layout_at),) * 2)
    label, cordoned = value_at(node, plan.layout_at), value_at(node, _CORDON_AT)
    name = change.target.name
    stays = f"stays cordoned (kubectl uncordon {name})" if cordoned else "takes pods"
    by_hand = f"node {name} {stays}"
    if label == after and label != before:
        back = Edit(at=plan.layout_at, before=after, after=before, what=plan.label)
        detail = f"the layout {before or 'of nodes without the label'} is named again"
        return back, CloseResult(left=Remains.UNKNOWN, detail=detail)
    if label != before:
        return None, CloseResult(
            left=Remains.PART, detail=f"others named the layout {label}; {by_hand}"
        )
    if not is_set or (plan.holds(node) and _state(node) in _DONE_STATES):
        if cordoned is not True:
            return None, CloseResult(left=Remains.NOTHING, detail="nothing of the change stands")
        uncordon = Edit(at=_CORDON_AT, before=True, after=None, what="unschedulable")
        return uncordon, CloseResult(left=Remains.UNKNOWN, detail="the node is uncordoned")
    if over:
        return None, CloseResult(left=Remains.PART, detail=f"{_waits(node)}; {by_hand}")
    return None, CloseResult(
        left=Remains.UNKNOWN, detail=f"waits for the old layout: {_waits(node)}"
    )


def _is_over(at: datetime | None, since: datetime | None, limit: timedelta) -> bool:
    return at is not None and since is not None and at - since > limit


def _last_written(node: Document) -> datetime | None:
    """Return when Trimtab last changed a node, by the server's clock."""
    times = (
        time_in(entry, "time")
        for entry in list_in(node, "metadata", "managedFields")
        if text_in(entry, "manager") == FIELD_MANAGER
    )
    return max((time for time in times if time is not None), default=None)


def _send(api: KubernetesWriter, path: str, node: Document, edit: Edit) -> None:
    command = StepCommand(path=path, operations=operations_of([edit]), wait=StepWait.NOTHING)
    try:
        answer = api.patch(path, sent(command, node))
    except CollectorError as error:
        raise ApplyError(error.message, "It is looked at again.") from error
    if not answer.ok:
        raise ApplyError(meaning_of(answer, path, verb="patch"), "It is looked at again.")
