"""Signs that each pod of a workload has a share of its work or data: the pods are not copies.

Equal numbers say nothing: a Job may run as many pods as it has completions, and each of them still
does its own part. Only the owner's mark says that the pods share the work.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from collectors.kubernetes.api import Document
from collectors.kubernetes.objects import labels_of
from collectors.kubernetes.workloads import is_elastic_in_kueue
from collectors.shared.json_parts import list_in, part, text_in, time_in, whole_number
from data.records.feasible_changes import CHECKPOINT_AT, CHECKPOINTS

ELASTIC_MARK = "trimtab/elastic"
"""Annotation by which an owner says that the pods of a workload share its work or data."""
_CHECKPOINTS, _CHECKPOINT_AT = "trimtab/checkpoints", "trimtab/checkpoint-at"
"""Annotations: that a workload writes checkpoints, and when it wrote its last one."""
ELASTIC = "elastic"
"""The fact of a workload whose pods share its work, as its owner or its launcher says."""
_OF_ELASTIC_HOROVOD = re.compile(r"--host-discovery-script|--min-np")
_NODE_RANGE = re.compile(r"(?:^|\s)(?:--nnodes[=\s]|PET_NNODES=)\d+:\d+(?!\S)")
"""torchrun that takes a range of nodes: it goes on with fewer."""
_OWN_NUMBER = re.compile(
    r"JOB_COMPLETION_INDEX|\b(?:POD|SHARD|REPLICA)_(?:INDEX|ORDINAL)\b"
    r"|\b(?:HOSTNAME|POD_NAME)(?:##|%%?|:|/)|(?:pod|job-completion|group)-index"
)
"""Names of labels and variables by which a container learns which of the pods it runs in."""
_JOBS_AT: Mapping[str, tuple[str, ...]] = {"Job": (), "CronJob": ("spec", "jobTemplate")}
_MAY_BE_ELASTIC = (*_JOBS_AT, "JobSet", "MPIJob")
_TEMPLATES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "Job": (("spec", "template"),),
    "MPIJob": (("spec", "mpiReplicaSpecs", "Launcher", "template"),),
    "CronJob": (("spec", "jobTemplate", "spec", "template"),),
    "Deployment": (("spec", "template"),),
    "StatefulSet": (("spec", "template"),),
    "LeaderWorkerSet": (
        ("spec", "leaderWorkerTemplate", "leaderTemplate"),
        ("spec", "leaderWorkerTemplate", "workerTemplate"),
    ),
}


def is_marked_elastic(marks: Mapping[str, str]) -> bool:
    """Return whether labels and annotations let an object's number of pods change."""
    return is_elastic_in_kueue(marks) or marks.get(ELASTIC_MARK) == "true"


def is_elastic(kind: str, document: Document) -> bool:
    """Return whether an owner says that pods share the work: by a mark, or by their launcher."""
    says = (_OF_ELASTIC_HOROVOD if kind == "MPIJob" else _NODE_RANGE).search
    return is_marked_elastic(labels_of(document)) or any(map(says, _lines(kind, document)))


def scale_down_refusal(kind: str, document: Document) -> str:
    """Return the reason why fewer pods save nothing or drop work, '' where they may be fewer.

    Each completion of a Job runs a pod to its end, whenever that is. Without completions it is a
    work queue, whose pods share the work. The completions of an indexed Job follow its pods where
    its owner marked it, and it has one for each ("elastic indexed Jobs", Kubernetes 1.27).
    """
    if kind == "JobSet":
        return _of_job_set(document)
    if kind not in _JOBS_AT:
        return ""
    spec = part(document, *_JOBS_AT[kind], "spec")
    completions, pods = part(spec, "completions"), part(spec, "parallelism")
    if completions is None or (follows(spec) and is_elastic(kind, document)):
        return ""
    return (
        f"each of its {completions} completions needs a pod of its own until it is done: "
        f"fewer than {1 if pods is None else pods} pods at a time hold as many GPU-hours "
        f"in all, for longer (only an elastic launcher or the annotation {ELASTIC_MARK}=true of an "
        "indexed Job says otherwise)"
    )


def follows(spec: object) -> bool:
    """Return whether completions of a Job's spec may follow its pods: indexed, one for each."""
    pods = part(spec, "parallelism")
    completions = whole_number(part(spec, "completions"))
    same = completions == (1 if pods is None else whole_number(pods))
    return part(spec, "completionMode") == "Indexed" and completions is not None and same


def _of_job_set(document: Document) -> str:
    if is_marked_elastic(labels_of(document)):
        return ""
    return (
        "each of its jobs and their completions has a share of the work: fewer of them leave it "
        f"undone (the annotation {ELASTIC_MARK}=true says otherwise)"
    )


def scaling_refusal(kind: str, document: Document) -> str:
    """Return the reason why another number of replicas loses work or data, '' without one."""
    if shared := _shared_claims(kind, document):
        return f"its pods share the claim {', '.join(shared)}: fewer of them free no GPU"
    if kind not in ("StatefulSet", "LeaderWorkerSet") or is_marked_elastic(labels_of(document)):
        return ""
    claims = [
        text_in(claim, "metadata", "name")
        for claim in list_in(document, "spec", "volumeClaimTemplates")
    ]
    signs = [f"each of its pods has a volume of its own ({', '.join(claims)})"] if claims else []
    name = re.escape(text_in(document, "metadata", "name"))
    peer = re.compile(rf"(?<![\w.-])(?:{name}-\d+)(?![\w-])")
    for line in _lines(kind, document):
        if _OWN_NUMBER.search(line):
            signs.append("each of its pods asks for its own number, as shards and ranks do")
        elif name and (match := peer.search(line)):
            signs.append(f"its pods are told to find {match[0]}, one of them")
    if not signs:
        return ""
    return (
        f"{signs[0]}: another number of them may lose work or data (the annotation "
        f"{ELASTIC_MARK}=true says otherwise)"
    )


def own_work_facts(kind: str, document: Document) -> Iterator[tuple[str, str]]:
    """Yield as facts of a job why its number of pods may not change, '' where it may."""
    generation = part(document, "metadata", "generation")
    yield "generation", str(generation) if type(generation) is int else ""
    yield "fixed_work", scale_down_refusal(kind, document)
    yield "own_shares", scaling_refusal(kind, document)
    yield "deleted_when_stopped", stop_refusal(document)
    yield ELASTIC, "yes" if kind in _MAY_BE_ELASTIC and is_elastic(kind, document) else ""


def checkpoint_facts(document: Document, seen_at: datetime) -> Iterator[tuple[str, str]]:
    """Yield that an owner says a workload writes checkpoints, and when it wrote the last one."""
    marks = labels_of(document)
    if marks.get(_CHECKPOINTS) == "true":
        yield CHECKPOINTS, f"the annotation {_CHECKPOINTS}"
    written = time_in(document, "metadata", "annotations", _CHECKPOINT_AT)
    if written is not None and written <= seen_at:
        yield CHECKPOINT_AT, written.isoformat()


def stop_refusal(document: Document) -> str:
    """Return the reason why stopping a workload deletes data, '' where nothing is deleted."""
    policy = part(document, "spec", "persistentVolumeClaimRetentionPolicy", "whenScaled")
    if policy != "Delete" or not list_in(document, "spec", "volumeClaimTemplates"):
        return ""
    return "its volumes are deleted with its pods (whenScaled: Delete)"


def _shared_claims(kind: str, document: Document) -> list[str]:
    """Return the claims (DRA) that all pods of a template name, instead of having their own."""
    return [
        name
        for place in _TEMPLATES.get(kind, ())
        for claim in list_in(document, *place, "spec", "resourceClaims")
        if (name := text_in(claim, "resourceClaimName"))
    ]


def _lines(kind: str, document: Document) -> Iterator[str]:
    """Yield the commands of the containers of a workload, and their variables with their values."""
    for place in _TEMPLATES.get(kind, ()):
        spec = part(document, *place, "spec")
        for section in ("initContainers", "containers"):
            for container in list_in(spec, section):
                words = (*list_in(container, "command"), *list_in(container, "args"))
                yield " ".join(map(str, words))
                for entry in list_in(container, "env"):
                    field = text_in(entry, "valueFrom", "fieldRef", "fieldPath")
                    yield f"{text_in(entry, 'name')}={text_in(entry, 'value') or field}"
