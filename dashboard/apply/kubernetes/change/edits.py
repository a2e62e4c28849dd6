"""Edits of an object's fields for a recommendation. Pure.

A recommendation speaks of a job's GPUs in all; an object of pods, and of GPUs in each of them.
"""

from collections.abc import Mapping
from typing import Any

from collectors.kubernetes.own_work import ELASTIC, follows
from dashboard.apply.kubernetes.change.autoscaler_bounds import bound_edit
from dashboard.apply.kubernetes.state.immutable_fields import (
    FEWER_FACT,
    NUMBER_FACT,
    is_resized_suspended,
)
from dashboard.apply.kubernetes.state.json_patch import Edit, names_of, pointer, value_at
from dashboard.apply.kubernetes.state.pod_spec import (
    Document,
    GpuContainer,
    Role,
    holders,
    roles_by_claims,
    roles_of,
)
from data.base.errors import ChangeRefusedError
from data.facts.gpu_resources import PRODUCT_LABEL, SHARED_GPU, WHOLE_GPU, resource_of
from data.records.plans import Configuration
from data.records.recommendations import SHARE_RESOURCE, Recommendation

PER_POD = "gpus_per_pod"
"""Detail of a recommendation that wants fewer or more GPUs in each pod, not fewer or more pods."""

LABEL_FACT = "label of "
"""Fact that begins so: the product label that nodes carry for a model of the catalogue."""

_STOP_EDITS: Mapping[str, tuple[str, Any]] = {
    "Deployment": ("/spec/replicas", 0),
    "StatefulSet": ("/spec/replicas", 0),
    "LeaderWorkerSet": ("/spec/replicas", 0),
    # Not suspend, which old servers drop: a Job of no pods at a time is as paused.
    "Job": ("/spec/parallelism", 0),
    "CronJob": ("/spec/suspend", True),
    "PyTorchJob": ("/spec/runPolicy/suspend", True),
    "MPIJob": ("/spec/runPolicy/suspend", True),
    "TrainJob": ("/spec/suspend", True),
    "JobSet": ("/spec/suspend", True),
    "RayCluster": ("/spec/suspend", True),
    "RayJob": ("/spec/suspend", True),
}
"""What makes a workload give all its pods back and keeps it."""


def edits_for(
    recommendation: Recommendation, kind: str, document: Document, facts: Mapping[str, str]
) -> list[Edit]:
    """Return the edits of an object, or of its excerpt. Errors: ChangeRefusedError."""
    if recommendation.action.spec.of_node:
        return [] if recommendation.action.spec.cuts else _cordon(document)
    if recommendation.action.spec.bound:
        return [bound_edit(recommendation, kind, document)]
    if recommendation.proposed.gpu_count == 0:
        return _stop(recommendation, kind, document)
    roles = roles_of(kind, document) or roles_by_claims(
        kind, document, recommendation.now.gpu_count
    )
    if not roles:
        raise ChangeRefusedError(
            f"no pod template of {recommendation.job_id} asks for GPUs that can be counted",
            "Change its manifest by hand.",
        )
    resources = {entry.resource for role in roles for entry in holders(document, role.template_at)}
    if SHARED_GPU in resources and SHARE_RESOURCE not in dict(recommendation.details):
        raise ChangeRefusedError(
            f"the pods of {recommendation.job_id} hold shares of boards ({SHARED_GPU}), and "
            "fewer shares alone free no board",
            "Change its manifest by hand.",
        )
    if _same_devices(recommendation) and PER_POD not in dict(recommendation.details):
        pods = max(1, roles[0].count)
        stays = NUMBER_FACT in facts or (FEWER_FACT in facts and is_resized_suspended(kind, facts))
        if stays and recommendation.proposed.gpu_count % pods == 0:
            return _per_pod(recommendation, document, roles, facts)
        counted = _counts(recommendation, document, roles, facts)
        if counted:
            return counted
    return _per_pod(recommendation, document, roles, facts)


def edit(document: Document, at: str, after: Any, what: str) -> Edit:
    """Return the edit that sets a field, with the nearest parent that has to be made for it."""
    *above, _last = names_of(at)
    for depth in range(1, len(above) + 1):
        if value_at(document, pointer(*above[:depth])) is None:
            for name in reversed(names_of(at)[depth:]):
                after = {name: after}
            return Edit(at=pointer(*above[:depth]), before=None, after=after, what=what)
    return Edit(at=at, before=value_at(document, at), after=after, what=what)


def _same_devices(recommendation: Recommendation) -> bool:
    now, proposed = recommendation.now, recommendation.proposed
    return (now.gpu_model, now.mig_profile) == (proposed.gpu_model, proposed.mig_profile)


def _cordon(document: Document) -> list[Edit]:
    change = edit(document, "/spec/unschedulable", True, "unschedulable")
    if change.before is True:
        raise ChangeRefusedError("the node is cordoned already", "Drain it, or run a new cycle.")
    return [change]


def _stop(recommendation: Recommendation, kind: str, document: Document) -> list[Edit]:
    if kind not in _STOP_EDITS:
        raise ChangeRefusedError(
            f"a {kind} such as {recommendation.job_id} cannot be stopped and kept",
            "Delete it by hand once its owner agrees.",
        )
    at, value = _STOP_EDITS[kind]
    change = edit(document, at, value, names_of(at)[-1])
    if change.before == change.after:
        raise ChangeRefusedError(
            f"{recommendation.job_id} has stopped already: {at} is {value}", "Run a new cycle."
        )
    return [change]


def _counts(
    recommendation: Recommendation,
    document: Document,
    roles: list[Role],
    facts: Mapping[str, str],
) -> list[Edit] | None:
    """Return another number of pods; None when no number of whole pods gives the GPUs."""
    total = sum(entry.gpus for entry in roles)
    for role in sorted(roles, key=lambda entry: -entry.gpus):
        rest = recommendation.proposed.gpu_count - (total - role.gpus)
        if role.count_at and rest > 0 and rest % role.gpus_each == 0:
            count = rest // role.gpus_each
            if count != role.count:
                return [
                    edit(document, role.count_at, count, f"{role.name} ({role.gpus_each} GPUs)"),
                    *_followers(document, role, count, facts),
                ]
    return None


def _followers(document: Document, role: Role, count: int, facts: Mapping[str, str]) -> list[Edit]:
    """Return the edits that follow a count: bounds of Ray's groups, completions of elastic Jobs."""
    parent = role.count_at.rpartition("/")[0]
    last = names_of(role.count_at)[-1]
    edits = []
    elastic = facts.get(ELASTIC) == "yes"
    if last == "parallelism" and elastic and follows(value_at(document, parent)):
        edits.append(edit(document, f"{parent}/completions", count, "completions"))
    if "workerGroupSpecs" in role.count_at:
        for name, outside in (("minReplicas", count.__lt__), ("maxReplicas", count.__gt__)):
            bound = value_at(document, f"{parent}/{name}")
            if isinstance(bound, int) and outside(bound):
                edits.append(edit(document, f"{parent}/{name}", count, name))
    return edits


def _per_pod(
    recommendation: Recommendation, document: Document, roles: list[Role], facts: Mapping[str, str]
) -> list[Edit]:
    """Return other GPUs in each pod, where all pods are alike."""
    proposed = recommendation.proposed
    role = roles[0]
    pods = sum(entry.count * entry.pods_each for entry in roles)
    users = holders(document, role.template_at)
    mains = [entry for entry in users if not entry.first]
    if len(roles) > 1 or len(mains) != 1 or pods == 0 or proposed.gpu_count % pods:
        parts = ", ".join(f"{entry.count} × {entry.gpus_each} ({entry.name})" for entry in roles)
        raise ChangeRefusedError(
            f"{recommendation.job_id} has {pods} pods with GPUs {parts} in {len(mains)} "
            f"containers a pod: {recommendation.now.describe()} -> {proposed.describe()} is no "
            "change of the number of pods alone, nor of the GPUs of one container each",
            "Change its manifest by hand, or approve a recommendation of fewer GPUs.",
        )
    count = proposed.gpu_count // pods
    wish = dict(recommendation.details).get(PER_POD, str(count))
    if wish != str(count):
        raise ChangeRefusedError(
            f"{recommendation.job_id} would get {count} GPUs in each of {pods} pods, not {wish}",
            "Run a new cycle: its number of pods has changed.",
        )
    resource = _resource(recommendation, mains[0])
    edits = [
        change
        for entry in users
        if not entry.first or entry.count > count or entry.resource != resource
        for change in _container(document, entry, resource, min(count, entry.count) if entry.first
                                 else count)
    ]  # fmt: skip
    if recommendation.now.gpu_model != proposed.gpu_model:
        edits.append(_selector(document, role, proposed, facts))
    if not edits:
        raise ChangeRefusedError(
            f"{recommendation.job_id} has {proposed.describe()} already", "Run a new cycle."
        )
    return edits


def _resource(recommendation: Recommendation, entry: GpuContainer) -> str:
    now, proposed = recommendation.now, recommendation.proposed
    if resource := dict(recommendation.details).get(SHARE_RESOURCE):
        return resource
    if now.mig_profile == proposed.mig_profile:
        return entry.resource
    if now.mig_profile and entry.resource == WHOLE_GPU:
        raise ChangeRefusedError(
            f"{recommendation.job_id} gets its slices under the name of whole GPUs "
            "(MIG strategy single): a label of the nodes chooses their size",
            "Change the nodeSelector of its manifest by hand.",
        )
    return resource_of(proposed.mig_profile)


def _container(document: Document, entry: GpuContainer, resource: str, count: int) -> list[Edit]:
    """Return the edits of one container: limits and, where they are written, equal requests."""
    edits = []
    sections = ("limits", "requests") if entry.requested else ("limits",)
    for section in sections:
        at = f"{entry.at}/resources/{section}"
        what = f"{resource} of container {entry.name}" if entry.name else resource
        old, new = at + pointer(entry.resource), at + pointer(resource)
        if resource != entry.resource:
            gone = f"{entry.resource} of container {entry.name}"
            edits.append(Edit(at=old, before=value_at(document, old), after=None, what=gone))
        after = str(count)
        if value_at(document, new) != after:
            edits.append(Edit(at=new, before=value_at(document, new), after=after, what=what))
    return edits


def _selector(
    document: Document, role: Role, proposed: Configuration, facts: Mapping[str, str]
) -> Edit:
    label = facts.get(LABEL_FACT + proposed.gpu_model, "")
    if not label:
        raise ChangeRefusedError(
            f"no node has a label {PRODUCT_LABEL} that says {proposed.gpu_model}",
            "Enable gpu-feature-discovery, or change the nodeSelector by hand.",
        )
    at = role.template_at + pointer("nodeSelector", PRODUCT_LABEL)
    return edit(document, at, label, PRODUCT_LABEL)
