"""The fresh look: a target as it is now, with all that a change of it depends on.

A target's state holds the leaves of the object's excerpt under their pointers, the API path, and
facts from elsewhere (room for a rollout, the server's version) under plain names.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from collectors.kubernetes.api import Document, KubernetesApi
from collectors.kubernetes.kinds import excerpt
from collectors.kubernetes.objects import claims_of
from collectors.kubernetes.own_work import own_work_facts
from collectors.kubernetes.workloads import INSTANCE
from collectors.shared.json_parts import count_of, list_in, part, text_in, time_in
from dashboard.apply.kubernetes.change import autoscaler_bounds, node_layouts
from dashboard.apply.kubernetes.change.edits import LABEL_FACT, edits_for
from dashboard.apply.kubernetes.change.steps import avoids_surge, command_of, has_surge
from dashboard.apply.kubernetes.state import reading
from dashboard.apply.kubernetes.state.field_owners import (
    instance_of,
    owners_of,
    was_applied_by_hand,
)
from dashboard.apply.kubernetes.state.free_capacity import NO, UNKNOWN, asked_by, room_for
from dashboard.apply.kubernetes.state.immutable_fields import (
    SERVER_FACT,
    SHARES,
    in_template,
    refuse_with_difference,
)
from dashboard.apply.kubernetes.state.json_patch import (
    Edit,
    document_of,
    leaves,
    operations_of,
    patched,
    value_at,
)
from dashboard.apply.kubernetes.state.object_paths import (
    AUTOSCALERS,
    Place,
    autoscaler_place,
    node_place,
    place_of,
)
from dashboard.apply.kubernetes.state.pod_spec import profile_of, roles_of
from dashboard.apply.kubernetes.state.quotas import doubts, quota_use_of_pod, refusal
from data.base.errors import ChangeRefusedError, StalePlanError
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.gpu_resources import PRODUCT_LABEL
from data.records.changes import Change, Target
from data.records.recommendations import Recommendation

PATH_FACT = "path"
ROOM_FACT = "room for one more pod"
KUBECTL_FACT = "kept with kubectl apply"
PODS_FACT = "pods with GPUs"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTarget:
    """A target put together again: where it is, its excerpt, and the facts beside it."""

    place: Place
    path: str
    document: Document
    facts: Mapping[str, str]


def observation_of(target: Target) -> ObservedTarget:
    """Return the observation in a target's state."""
    namespace, _, name = target.name.rpartition("/")
    facts = {name: value for name, value in target.state if not name.startswith("/")}
    return ObservedTarget(
        place=Place(kind=target.kind, namespace=namespace, name=name),
        path=facts.get(PATH_FACT, ""),
        document=document_of(pair for pair in target.state if pair[0].startswith("/")),
        facts=facts,
    )


def target_of(
    place: Place, path: str, document: Document, facts: Mapping[str, str], owners: Iterable[str]
) -> Target:
    """Return the target that an object is."""
    return Target(
        kind=place.kind,
        name=place.label,
        identity=text_in(document, "metadata", "uid"),
        version=text_in(document, "metadata", "resourceVersion"),
        state=(*leaves(excerpt(document)), *sorted(({PATH_FACT: path} | dict(facts)).items())),
        owners=tuple(owners),
    )


def look(
    api: KubernetesApi,
    catalogue: GpuCatalogue,
    recommendation: Recommendation,
    *,
    carried_by: frozenset[str] = frozenset(),
) -> Target:
    """Return the target of a recommendation. Errors: as `Applier.look`.

    `carried_by` are owners through whom the change goes, so that they do not stand against it.
    """
    place = _place(api, recommendation)
    path, document = reading.fetch(api, place)
    reading.require_living(place, document)
    reading.require_older(place, document, recommendation.created_at)
    _require_as_planned(recommendation, place, document)
    facts = _own_facts(api, place, document)
    model = recommendation.proposed.gpu_model
    if model != recommendation.now.gpu_model and recommendation.proposed.gpu_count:
        facts |= _label(api, catalogue, model)
    if place.kind == "Node":
        pods = reading.pods(api, fieldSelector=f"spec.nodeName={place.name}")
        _require_nothing_new(place, pods or [], recommendation.created_at)
        facts[PODS_FACT] = _pods_text(pods)
        if recommendation.action.spec.cuts:
            _require_free(place, facts[PODS_FACT])
            facts[node_layouts.CUT_FACT] = node_layouts.cut_fact(
                api, catalogue, recommendation, document
            )
    edits = edits_for(recommendation, place.kind, document, facts)
    owners = _owners(api, place, document, edits)
    against = [name for name in owners if name not in carried_by]
    if place.kind in AUTOSCALERS and not against:
        scaling, above = autoscaler_bounds.scaled_by(api, recommendation, place, document, edits)
        facts |= scaling
        scaled = scaling[autoscaler_bounds.SCALES_FACT].partition("/")[2]
        against = [f"{name} (of {scaled})" for name in above if name not in carried_by]
    if against:
        raise refuse_with_difference(
            place, document, edits, f"{' and '.join(against)} would undo the change"
        )
    if place.kind == "Deployment" and has_surge(document) and any(map(in_template, edits)):
        facts[ROOM_FACT] = _room(api, place, document, edits)
    return target_of(place, path, document, facts, owners)


def look_again(
    api: KubernetesApi,
    catalogue: GpuCatalogue,
    change: Change,
    *,
    carried_by: frozenset[str] = frozenset(),
) -> Target:
    """Return the target of a change as it is now. Errors: as `Applier.look`.

    A change that needs no room is not asked for room again, and pods that left a node are no
    reason not to cordon it: what was approved holds all the more.
    """
    view, edits = observation_of(change.target), edits_in(change)
    path, document = reading.fetch(api, view.place, view.path)
    if text_in(document, "metadata", "uid") != change.target.identity:
        raise StalePlanError(
            f"{view.place.word} in {view.place.namespace or 'the cluster'} is another object of "
            "the same name",
            "Run a new cycle and approve its recommendation.",
        )
    reading.require_living(view.place, document)
    facts = _own_facts(api, view.place, document)
    for name in view.facts:
        if name.startswith(LABEL_FACT):
            facts |= _label(api, catalogue, name.removeprefix(LABEL_FACT))
    if PODS_FACT in view.facts:
        now = pods_on(api, view.place.name)
        fewer = set(now.split(", ")) <= set(view.facts[PODS_FACT].split(", ")) | {""}
        facts[PODS_FACT] = view.facts[PODS_FACT] if fewer else now
    if node_layouts.CUT_FACT in view.facts:
        facts[node_layouts.CUT_FACT] = node_layouts.cut_fact_again(
            api, catalogue, view.facts, document
        )
    if autoscaler_bounds.SCALES_FACT in view.facts:
        facts[autoscaler_bounds.SCALES_FACT] = view.facts[autoscaler_bounds.SCALES_FACT]
        autoscaler_bounds.require_scaling(
            view.place, document, facts[autoscaler_bounds.SCALES_FACT]
        )
    if ROOM_FACT in view.facts:
        facts[ROOM_FACT] = view.facts[ROOM_FACT]
        if not avoids_surge(change.steps):
            facts[ROOM_FACT] = _room(api, view.place, document, edits)
    owners = _owners(api, view.place, document, edits)
    if against := [name for name in owners if name not in carried_by]:
        raise ChangeRefusedError(
            f"{view.place.word} in {view.place.namespace}: {' and '.join(against)} would undo the "
            "change",
            "Change where its manifest is kept.",
        )
    return target_of(view.place, path, document, facts, owners)


def _place(api: KubernetesApi, recommendation: Recommendation) -> Place:
    if recommendation.action.spec.of_node:
        return node_place(dict(recommendation.details).get("node", ""))
    if recommendation.action.spec.bound:
        autoscaler = dict(recommendation.details).get("autoscaler", "")
        return autoscaler_place(autoscaler, recommendation.job_id)
    return reading.topmost(api, place_of(recommendation.job_id))


def _require_as_planned(recommendation: Recommendation, place: Place, document: Document) -> None:
    """Refuse (StalePlanError) an object that wants other GPUs than the plan saw."""
    roles = roles_of(place.kind, document)
    if not roles:
        return  # a kind that can only be stopped, or a node
    total = sum(role.gpus for role in roles)
    if place.kind == "Job":
        total = min(total, roles[0].gpus_each * _pods_left(document))
    profile, planned = profile_of(document, roles), recommendation.now
    # Nodes with the strategy `single` give slices under the name of whole GPUs.
    same_profile = profile in (None, "", planned.mig_profile)
    if total != planned.gpu_count or not same_profile:
        raise StalePlanError(
            f"{place.word} in {place.namespace} now asks for {total} GPUs"
            f"{f' (slices {profile})' if profile else ''}, the plan saw {planned.describe()}",
            "Run a new cycle and approve its recommendation.",
        )


def _pods_left(job: Document) -> int:
    """Return the number of pods that a Job has still to bring to their end."""
    spec, status = part(job, "spec"), part(job, "status")
    completions = part(spec, "completions")
    if completions is None:
        return count_of(part(spec, "parallelism"))
    return max(0, count_of(completions) - count_of(part(status, "succeeded") or 0))


def _own_facts(api: KubernetesApi, place: Place, document: Document) -> dict[str, str]:
    facts = {}
    if place.kind == "Job":
        facts[SERVER_FACT] = reading.server_version(api)
    labels = dict(own_work_facts(place.kind, document))
    facts |= {fact: labels[name] for name, fact in SHARES.items() if labels[name]}
    if was_applied_by_hand(document):
        facts[KUBECTL_FACT] = "yes"
    if place.kind != "Node" and (instance := instance_of(document)):
        facts[INSTANCE] = instance
    return facts


def _owners(
    api: KubernetesApi, place: Place, document: Document, edits: Sequence[Edit]
) -> tuple[str, ...]:
    if place.kind == "Node":
        return ()
    fields = [edit.at for edit in edits]
    if place.kind == "Job" and any(edit.after == 0 for edit in edits):
        fields.append("/spec/suspend")  # no pods at all are as good as that
    return owners_of(place, document, fields, reading.autoscalers(api, place.namespace))


def _label(api: KubernetesApi, catalogue: GpuCatalogue, model: str) -> dict[str, str]:
    """Return the product label that most nodes carry for a model."""
    labels = [
        text_in(node, "metadata", "labels", PRODUCT_LABEL)
        for node in reading.nodes(api) or []
        if catalogue.recognise(text_in(node, "metadata", "labels", PRODUCT_LABEL)) == model
    ]
    most = max(sorted(set(labels)), key=labels.count, default="")
    return {LABEL_FACT + model: most}


def pods_on(api: KubernetesApi, node: str) -> str:
    """Return the pods with GPUs on a node as one text, UNKNOWN when they may not be listed."""
    return _pods_text(reading.pods(api, fieldSelector=f"spec.nodeName={node}"))


def _pods_text(pods: list[Document] | None) -> str:
    """Return the pods that hold GPUs, with their number of them, as one text."""
    if pods is None:
        return UNKNOWN
    gpus_by_pod = {
        f"{text_in(pod, 'metadata', 'namespace')}/{text_in(pod, 'metadata', 'name')}": gpus
        for pod in pods
        if (gpus := _held_by(pod))
    }
    return ", ".join(f"{name} ({gpus})" for name, gpus in sorted(gpus_by_pod.items()))


def _held_by(pod: Document) -> str:
    """Return the number of GPUs that a pod holds, '' of none, `?` where it is not understood.

    So is that of a pod with claims (DRA), which may be for anything.
    """
    spec = part(pod, "spec")
    if text_in(pod, "status", "phase") in ("Succeeded", "Failed"):
        return ""
    count = asked_by(spec).total()
    unsure = claims_of(pod) or asked_by(spec, unread=1) != asked_by(spec)
    return "?" if unsure else str(count or "")


def _require_nothing_new(place: Place, pods: Iterable[Document], planned_at: datetime) -> None:
    """Refuse (StalePlanError) a node on which pods with GPUs were placed after the plan."""
    newer = [pod for pod in pods if _held_by(pod) and _placed_after(pod, planned_at)]
    if newer:
        raise StalePlanError(
            f"{place.word} was to be free, but pods with GPUs were placed there after the plan of "
            f"{planned_at:%Y-%m-%d %H:%M:%S} UTC: {_pods_text(newer)}",
            "Run a new cycle.",
        )


def _require_free(place: Place, pods: str) -> None:
    """Refuse (StalePlanError) to cut a node that somebody holds."""
    if pods:
        raise StalePlanError(
            f"{place.word} was to be free, and holds pods with GPUs: {pods}", "Run a new cycle."
        )


def _placed_after(pod: Document, planned_at: datetime) -> bool:
    conditions = list_in(pod, "status", "conditions")
    scheduled = [entry for entry in conditions if text_in(entry, "type") == "PodScheduled"]
    at = (time_in(scheduled[0], "lastTransitionTime") if scheduled else None) or time_in(
        pod, "metadata", "creationTimestamp"
    )
    return at is not None and at > planned_at


def _room(api: KubernetesApi, place: Place, document: Document, edits: Iterable[Edit]) -> str:
    pod_spec = value_at(patched(document, operations_of(edits)), "/spec/template/spec")
    quotas, more = reading.quotas(api, place.namespace), quota_use_of_pod(pod_spec)
    if refusal(quotas or [], more):
        return NO
    nodes, pods = reading.nodes(api), reading.pods(api)
    if nodes is None or pods is None or any(doubts(quotas, more)):
        return UNKNOWN
    return room_for(pod_spec, nodes, pods)


def edits_in(change: Change) -> list[Edit]:
    """Return every edit of a change."""
    return [
        Edit(at=at, before=before, after=after, what="")
        for step in change.steps
        for at, (before, after) in command_of(step).edits.items()
    ]


def no_room(target: Target) -> bool:
    """Return whether a rollout of this target would wait for a GPU for ever."""
    return dict(target.state).get(ROOM_FACT) == NO
