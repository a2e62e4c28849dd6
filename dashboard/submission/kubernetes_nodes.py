"""The nodes of a Kubernetes as a fleet: whole GPUs, the CPU and memory beside them, taints."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from collectors.kubernetes.api import Document
from collectors.kubernetes.kinds import lean
from collectors.kubernetes.nodes import read_node
from collectors.kubernetes.objects import (
    gpu_resources,
    list_in,
    mig_offer,
    part,
    read_pod,
    shares_gpus,
    text_in,
)
from dashboard.submission.fleet import SubmissionNode, Taint
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.clock import utc_now
from data.gpu_resources import PRODUCT_LABEL, WHOLE_GPU
from data.units import BYTES_PER_MIB

_QUANTITY = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)([mkMGTPE]|[KMGTPE]i)?")
_DECIMAL = {"": 1.0, "m": 1e-3} | {unit: 1e3**power for power, unit in enumerate("kMGTPE", 1)}
_FACTORS = _DECIMAL | {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)}
_BLOCKING = ("NoSchedule", "NoExecute")


@dataclass(slots=True)
class _Held:
    """What pods ask for, by node; `cpus` and `memory_bytes` of pods without GPUs alone."""

    gpus: Counter[str] = field(default_factory=Counter)
    cpus: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    memory_bytes: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


def fleet_nodes(
    nodes: Iterable[Document],
    pods: Iterable[Document],
    catalogue: GpuCatalogue,
    *,
    tolerated: Collection[str],
) -> Iterator[SubmissionNode]:
    """Yield the nodes that offer whole GPUs, less what bound pods ask for.

    CPU and memory are what a node can allocate less the requests of its pods without GPUs: what
    jobs with GPUs can share. A node with a taint whose key is not tolerated takes no jobs.
    """
    held = _held_by(pods)
    for document in nodes:
        offered = gpu_resources(document)
        if not offered.get(WHOLE_GPU) or mig_offer(offered) or shares_gpus(document):
            continue
        node = read_node(document, catalogue, seen_at=utc_now(), source="kubernetes")
        name, gpus = node.name, offered[WHOLE_GPU]
        cpus = quantity(part(document, "status", "allocatable", "cpu"))
        memory = quantity(part(document, "status", "allocatable", "memory"))
        taints = tuple(_taints(document))
        cordoned = part(document, "spec", "unschedulable") is True
        yield SubmissionNode(
            name=name,
            gpu_type=node.gpu_model,
            word=text_in(document, "metadata", "labels", PRODUCT_LABEL),
            gpus=gpus,
            free_gpus=max(0, gpus - held.gpus[name]),
            cpus=None if cpus is None else max(0.0, cpus - held.cpus[name]),
            memory_mib=None
            if memory is None
            else max(0.0, memory - held.memory_bytes[name]) / BYTES_PER_MIB,
            takes_jobs=node.state == "Ready"
            and not cordoned
            and all(taint.key in tolerated for taint in taints),
            taints=taints,
        )


def asked_by(kind: str, entry: Any) -> Any:
    """Return an entry of a list; of a pod without GPUs only its node, phase and requests.

    For `KubernetesClient.listed`: most pods of a cluster have no GPUs.
    """
    kept = lean(kind, entry)
    if kind != "Pod" or kept is entry:
        return kept
    asked = [
        {"resources": {"requests": part(container, "resources", "requests")}}
        for container in list_in(entry, "spec", "containers")
    ]
    return {
        "spec": {"nodeName": text_in(entry, "spec", "nodeName"), "containers": asked},
        "status": {"phase": text_in(entry, "status", "phase")},
    }


def _held_by(pods: Iterable[Document]) -> _Held:
    held = _Held()
    for document in pods:
        pod = read_pod(document)
        node = text_in(document, "spec", "nodeName")
        if pod is not None:
            if pod.holds:
                whole = (ask.count for ask in pod.requests if not ask.mig_profile)
                held.gpus[pod.node] += sum(whole)
        elif node and text_in(document, "status", "phase") not in ("Succeeded", "Failed"):
            for container in list_in(document, "spec", "containers"):
                asked = part(container, "resources", "requests")
                held.cpus[node] += quantity(part(asked, "cpu")) or 0.0
                held.memory_bytes[node] += quantity(part(asked, "memory")) or 0.0
    return held


def quantity(found: object) -> float | None:
    """Return a quantity of Kubernetes such as 7910m or 527Gi, None for anything else."""
    match = _QUANTITY.fullmatch(str(found))
    return None if match is None else float(match[1]) * _FACTORS[match[2] or ""]


def _taints(document: Document) -> Iterator[Taint]:
    for taint in list_in(document, "spec", "taints"):
        if text_in(taint, "effect") in _BLOCKING:
            yield Taint(
                key=text_in(taint, "key"),
                value=text_in(taint, "value"),
                effect=text_in(taint, "effect"),
            )
