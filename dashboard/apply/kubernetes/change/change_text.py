"""Changes as text that a person runs, by the code that makes the steps of the applier.

The object is its excerpt as it was collected, so that the patch is the one that is sent while the
object stays so: the applier adds its uid and its resourceVersion. Without an excerpt the object is
taken to be what the store knows of the job. Every patch tests that it is, so that the server
refuses it otherwise.
"""

import json
import shlex
from collections.abc import Iterator
from typing import Any

import yaml

from collectors.kubernetes.kinds import EXCERPT, SCALER_EXCERPT
from collectors.kubernetes.workloads import SCALED_OBJECT
from dashboard.apply.contract.applier import ChangeText
from dashboard.apply.kubernetes.change import autoscaler_bounds
from dashboard.apply.kubernetes.change.edits import LABEL_FACT, edits_for
from dashboard.apply.kubernetes.change.steps import command_of, ended_pods, steps_for
from dashboard.apply.kubernetes.state.field_owners import (
    has_known_fields,
    is_rewriting_owner,
    tracked,
)
from dashboard.apply.kubernetes.state.immutable_fields import (
    SERVER_FACT,
    SHARES,
    in_template,
    refuse_with_difference,
    require_possible,
)
from dashboard.apply.kubernetes.state.json_patch import Edit
from dashboard.apply.kubernetes.state.object_paths import (
    Place,
    autoscaler_place,
    node_place,
    place_of,
)
from data.base.errors import ChangeRefusedError, scrub
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.gpu_resources import (
    MIG_LAYOUT_LABEL,
    MIG_STATE_LABEL,
    PLUGIN_CONFIG_LABEL,
    PRODUCT_LABEL,
    SHARED_GPU,
    resource_of,
)
from data.facts.jobs import Job
from data.records.changes import ChangeStep
from data.records.feasible_changes import SERVER_VERSION
from data.records.recommendations import BOARD_SHARES, Recommendation

_COUNTS = {
    "Deployment": "replicas",
    "StatefulSet": "replicas",
    "Job": "parallelism",
    "CronJob": "parallelism",
}
"""Where a kind says how many pods it has; those of the others have roles that only a look tells."""


def kubernetes_change(recommendation: Recommendation, job: Job | None) -> ChangeText:
    """Return the patch file for a workload, or for the owner of a pod whose workload is not known.

    A workload of several pods gets fewer pods, one of a single pod fewer or smaller GPUs. Errors:
    ChangeRefusedError when neither says it, or when the job id is no `namespace/kind/name` or
    `namespace/pod` whose names Kubernetes allows.
    """
    if recommendation.action.spec.of_node:
        return _node_text(recommendation)
    if recommendation.action.spec.bound:
        return _bound_text(recommendation, job)
    origin = place_of(recommendation.job_id)
    place = origin
    if origin.kind == "Pod":  # its owner, which most often is a Deployment
        place = Place(kind="Deployment", namespace=origin.namespace, name="OWNER")
    document = _assumed(recommendation, place, job)
    model = recommendation.proposed.gpu_model
    facts = {LABEL_FACT + model: _product(model)} | _target_facts(job)
    edits = edits_for(recommendation, place.kind, document, facts)
    require_possible(place, document, edits, facts)
    owners, notes = _owners(job, [edit.at for edit in edits])
    if owners:
        why = f"{' and '.join(owners)} would undo the change"
        raise refuse_with_difference(place, document, edits, why)
    steps = steps_for(place, place.paths()[0], document, edits)
    lines = [
        f"# {recommendation.now.describe()} -> {recommendation.proposed.describe()}",
        f"# recommendation {recommendation.digest}",
        *(f"# {note}" for note in notes),
        *_how(origin, place),
    ]
    lines += [f"# {note}" for note in _notes(recommendation, place, job, document, edits)]
    if len(steps) > 1:
        lines += [
            f"# {len(steps)} patches, each a file of its own: send the second when no pod is left.",
            "# Suspending deletes the pods: work since their last checkpoint is lost.",
        ]
    return _patch_file(recommendation, lines, *steps)


def _notes(
    recommendation: Recommendation,
    place: Place,
    job: Job | None,
    document: dict[str, Any],
    edits: list[Edit],
) -> Iterator[str]:
    """Yield the notes for a person before the patch is run."""
    is_collected, of_template = EXCERPT in _facts_of(job), any(map(in_template, edits))
    if place.kind == "CronJob":
        yield "It holds from the next run on: a run under way keeps what it has."
    yield from ended_pods(place.kind, document, edits)
    if of_template and not is_collected:
        yield "The GPUs are those of the first container; adapt the index if another one has them,"
        yield "and lower those of init containers too: a pod holds the larger number."
        yield "Where the container states requests of GPUs, set them to the same number."
    if of_template and place.kind != "CronJob":
        yield "On full nodes the rollout waits for ever: set maxSurge to 0 until it is over."
        if _pods_of(job)[0] == 1 and place.kind in ("Deployment", "StatefulSet"):
            yield (
                "It has one pod: without room for a second one the service goes down during the "
                "change, and stays down for as long as no new pod finds a node."
            )
    if recommendation.now.gpu_model != recommendation.proposed.gpu_model:
        merged = "" if is_collected else "nodeSelector replaces an existing one: merge by hand. "
        yield (
            f"{merged}The label is what gpu-feature-discovery writes: check it against "
            f"{PRODUCT_LABEL} of the wanted nodes."
        )


def _product(model: str) -> str:
    """Return gpu-feature-discovery's label for nodes of a model; no look tells it here."""
    entry = load_gpu_catalogue().find(model)
    names = entry.vendor_names if entry is not None else ()
    return names[0].replace(" ", "-") if names else model


def _patch_file(recommendation: Recommendation, lines: list[str], *steps: ChangeStep) -> ChangeText:
    body = yaml.safe_dump_all([command_of(step).operations for step in steps], sort_keys=False)
    return ChangeText(
        file_name=f"{recommendation.recommendation_id}.kubernetes-patch.yaml",
        text="\n".join(lines) + "\n" + body,
    )


def _bound_text(recommendation: Recommendation, job: Job | None) -> ChangeText:
    autoscaler = dict(recommendation.details).get("autoscaler", "")
    place = autoscaler_place(autoscaler, recommendation.job_id)
    excerpt = _facts_of(job).get(SCALER_EXCERPT)
    document = json.loads(excerpt) if excerpt else None
    document = document or autoscaler_bounds.bounds_as_planned(recommendation, place.kind)
    edits = edits_for(recommendation, place.kind, document, {})
    (step,) = steps_for(place, place.paths()[0], document, edits)
    lines = [
        f"# {place.word} of {recommendation.job_id}: {scrub(recommendation.change)}",
        f"# recommendation {recommendation.digest}",
        *(f"# {note}" for note in autoscaler_bounds.notes(place.kind, edits)),
        f"# The way back: the same field with {step.before}.",
        *_how(place, place),
    ]
    if place.kind == SCALED_OBJECT:
        lines.append(
            f"# Where {step.field} is not set, KEDA has its default: add it, without test."
        )
    return _patch_file(recommendation, lines, step)


def _node_text(recommendation: Recommendation) -> ChangeText:
    details = dict(recommendation.details)
    name = shlex.quote(node_place(details.get("node", "")).name)
    lines = ["#!/bin/sh", f"# recommendation {recommendation.digest}", "set -eu"]
    if recommendation.action.spec.cuts:
        label, layout = MIG_LAYOUT_LABEL, details.get("mig_layout", "")
        waits = f"Once {MIG_STATE_LABEL} says success, and the node offers what was cut"
        back = "with the layout of before"
        if BOARD_SHARES in details:
            label, layout = PLUGIN_CONFIG_LABEL, details.get("layout", "")
            waits = f"Once the node offers {SHARED_GPU}, {details[BOARD_SHARES]} for each board"
            back = "with the label as it was before"
        lines += [
            "# No pod with GPUs may be on it: it would have to share them.",
            f"kubectl cordon {name}",
            f"kubectl label node {name} --overwrite {shlex.quote(f'{label}={layout}')}",
            f"# {waits}:",
            f"#    kubectl uncordon {name}",
            f"# The way back: the same {back}.",
        ]
        return _script(recommendation, lines)
    place = node_place(details.get("node", ""))
    nothing: dict[str, Any] = {"spec": {}}
    edits = edits_for(recommendation, place.kind, nothing, {})
    (step,) = steps_for(place, place.paths()[0], nothing, edits)
    lines += [
        "# No further pod is put on it; the pods that run there stay.",
        f"# The same as: kubectl cordon {name}",
        step.text,
        "# To move the pods, once their owners agree:",
        f"#    kubectl drain {name} --ignore-daemonsets",
        f"# The way back: kubectl uncordon {name}",
    ]
    return _script(recommendation, lines)


def _script(recommendation: Recommendation, lines: list[str]) -> ChangeText:
    return ChangeText(
        file_name=f"{recommendation.recommendation_id}.kubernetes.sh", text="\n".join(lines) + "\n"
    )


def _owners(job: Job | None, fields: list[str]) -> tuple[list[str], list[str]]:
    """Return the scheduler's owners that would undo a change of the fields, and those that may."""
    facts = job.scheduler if job is not None else None
    names = facts.managed_by if facts else ()
    undoing = [name for name in names if is_rewriting_owner(name, fields)]
    notes = [
        f"{scrub(name)} owns fields of it, and would undo a change of these."
        for name in undoing
        if not has_known_fields(name)
    ]
    instance = dict(facts.extra).get("instance_label", "") if facts else ""
    notes += [scrub(tracked(instance))] if instance else []
    return [name for name in undoing if has_known_fields(name)], notes


def _how(origin: Place, place: Place) -> list[str]:
    at = shlex.quote(origin.namespace)
    if origin.kind == "Pod":
        owner, pod = "OWNER", shlex.quote(origin.name)
        lines = [
            "# 1. find the workload that owns the pod:",
            f"#    kubectl -n {at} get pod {pod} -o jsonpath='{{.metadata.ownerReferences}}'",
            "# 2. check that it has this one pod: the patch is refused where it has more replicas",
            "# 3. check, then apply (OWNER is e.g. deployment/NAME):",
        ]
    else:
        owner, lines = shlex.quote(place.word), ["# check, then apply:"]
    patch = f"#    kubectl -n {at} patch {owner} --type json --patch-file THIS_FILE"
    return [*lines, f"{patch} --dry-run=server", patch]


def _assumed(recommendation: Recommendation, place: Place, job: Job | None) -> dict[str, Any]:
    """Return the object as it was collected, else as the plan and the scheduler told of it.

    Errors: ChangeRefusedError.
    """
    now, proposed = recommendation.now, recommendation.proposed
    if excerpt := _facts_of(job).get(EXCERPT):
        collected: dict[str, Any] = json.loads(excerpt)
        return collected
    pods, each = _pods_of(job)
    if proposed.gpu_count == 0:
        spec: dict[str, Any] = {_COUNTS.get(place.kind, "replicas"): pods}
        if place.kind == "CronJob":
            spec = {}
        elif place.kind not in _COUNTS and place.kind != "LeaderWorkerSet":
            spec = {"runPolicy": {}}
        return {"spec": spec}
    each = each or (now.gpu_count if pods == 1 else 0)
    if place.kind not in _COUNTS or pods * each != now.gpu_count:
        raise ChangeRefusedError(
            f"{recommendation.job_id} has {pods} pods with {each or 'unknown'} GPUs each: "
            f"{now.describe()} -> {proposed.describe()} is no change of their number alone",
            "Change its manifest by hand, or approve a recommendation of fewer GPUs.",
        )
    facts = () if job is None else job.scheduling.extra
    container = {"resources": {"limits": {resource_of(now.mig_profile, facts): str(each)}}}
    template = {"spec": {"containers": [container]}}
    spec = {_COUNTS[place.kind]: pods, "template": template}
    return {"spec": {"jobTemplate": {"spec": spec}} if place.kind == "CronJob" else spec}


def _pods_of(job: Job | None) -> tuple[int, int]:
    """Return (running pods, GPUs a pod) as the scheduler told, (1, 0) when it did not."""
    facts = _facts_of(job)
    pods, each = facts.get("pods", ""), facts.get("gpus_per_pod", "")
    return (int(pods), int(each)) if pods.isdecimal() and each.isdecimal() else (1, 0)


def _target_facts(job: Job | None) -> dict[str, str]:
    """Return the facts of a target that the scheduler told of its job."""
    labels = _facts_of(job)
    facts = {fact: labels[name] for name, fact in SHARES.items() if name in labels}
    return facts | {SERVER_FACT: labels.get(SERVER_VERSION, "")}


def _facts_of(job: Job | None) -> dict[str, str]:
    return {} if job is None else job.extra
