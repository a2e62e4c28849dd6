"""The nodes of a Kubernetes as a fleet: whole GPUs, the CPU and memory beside them, taints."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from collectors.kubernetes.api import Document
from collectors.kubernetes.host_requests import allocatable, asked_by_pods
from collectors.kubernetes.nodes import read_node
from collectors.kubernetes.objects import (
    HostRequest,
    gpu_resources,
    mig_offer,
    read_pod,
    shares_gpus,
)
from collectors.shared.json_parts import list_in, part, text_in
from dashboard.submission.job.fleet import SubmissionNode, Taint
from data.base.clock import utc_now
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.gpu_resources import PRODUCT_LABEL, WHOLE_GPU

_BLOCKING = ("NoSchedule", "NoExecute")


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
    gpus_by_node, others = _held_by(pods)
    requests = asked_by_pods(others)
    for document in nodes:
        offered = gpu_resources(document)
        if not offered.get(WHOLE_GPU) or mig_offer(offered) or shares_gpus(document):
            continue
        node = read_node(document, catalogue, seen_at=utc_now(), source="kubernetes")
        name, gpus = node.name, offered[WHOLE_GPU]
        has, theirs = allocatable(document), requests.get(name, HostRequest())
        free = None if has is None or theirs is None else has - theirs
        taints = tuple(_taints(document))
        cordoned = part(document, "spec", "unschedulable") is True
        yield SubmissionNode(
            name=name,
            gpu_type=node.gpu_model,
            word=text_in(document, "metadata", "labels", PRODUCT_LABEL),
            gpus=gpus,
            free_gpus=max(0, gpus - gpus_by_node[name]),
            cpus=None if free is None else free.cpus,
            memory_mib=None if free is None else free.memory_mib,
            takes_jobs=node.state == "Ready"
            and not cordoned
            and all(taint.key in tolerated for taint in taints),
            taints=taints,
        )


def _held_by(pods: Iterable[Document]) -> tuple[Counter[str], list[Document]]:
    """Return the whole GPUs that pods hold by node, and the pods without GPUs."""
    gpus, others = Counter[str](), list[Document]()
    for document in pods:
        pod = read_pod(document)
        if pod is None:
            others.append(document)
        elif pod.holds:
            gpus[pod.node] += sum(ask.count for ask in pod.requests if not ask.mig_profile)
    return gpus, others


def _taints(document: Document) -> Iterator[Taint]:
    for taint in list_in(document, "spec", "taints"):
        if text_in(taint, "effect") in _BLOCKING:
            yield Taint(
                key=text_in(taint, "key"),
                value=text_in(taint, "value"),
                effect=text_in(taint, "effect"),
            )
