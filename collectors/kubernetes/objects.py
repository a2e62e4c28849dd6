"""GPUs in Kubernetes objects, from their plain JSON. Names and labels are untrusted."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from collectors.kubernetes.api import Document
from collectors.shared.json_parts import (
    count_of,
    fit,
    list_in,
    part,
    text_in,
    time_in,
    whole_number,
)
from data.base.units import BYTES_PER_MIB
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.gpu_resources import (
    BOARDS,
    COUNT_LABEL,
    FRACTION_RESOURCES,
    MIG_PREFIX,
    PRODUCT_LABELS,
    SHARED_GPU,
    SHARING_LABEL,
    WHOLE_GPU,
    resource_of,
)
from data.facts.identifiers import SHORT_ID_LENGTH, digest_of
from data.records.serving import MAX_START_SECONDS

_MIG = re.compile(rf"{re.escape(MIG_PREFIX)}([0-9a-z.+]{{1,40}}?)(?:\.shared)?")
_SHARED_PRODUCT = re.compile(r"-SHARED$")
_MIG_PRODUCT = re.compile(r"-MIG-([0-9a-z.+]{1,40})$")
KAI_SCHEDULER, KAI_DEVICES = "kai-scheduler", "gpu-fraction-num-devices"
MILLI = 1000


@dataclass(frozen=True, slots=True)
class HostRequest:
    """CPU and memory in the units in which the scheduler adds them up."""

    cpu_milli: int = 0
    memory_bytes: int = 0

    @property
    def cpus(self) -> float:
        """CPUs."""
        return self.cpu_milli / MILLI

    @property
    def memory_mib(self) -> float:
        """Memory in MiB."""
        return self.memory_bytes / BYTES_PER_MIB

    def __add__(self, other: "HostRequest") -> "HostRequest":
        """Return both together."""
        return HostRequest(self.cpu_milli + other.cpu_milli, self.memory_bytes + other.memory_bytes)

    def __sub__(self, other: "HostRequest") -> "HostRequest":
        """Return the difference, nothing where the other is larger."""
        return HostRequest(
            max(0, self.cpu_milli - other.cpu_milli),
            max(0, self.memory_bytes - other.memory_bytes),
        )

    def times(self, count: int) -> "HostRequest":
        """Return as much for so many pods."""
        return HostRequest(self.cpu_milli * count, self.memory_bytes * count)

    def most(self, other: "HostRequest") -> "HostRequest":
        """Return the larger of each."""
        return HostRequest(
            max(self.cpu_milli, other.cpu_milli), max(self.memory_bytes, other.memory_bytes)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodShare:
    """Parts of boards that others may be on too.

    `by` says in words who shares them out; `boards` are UUIDs or indices, empty where nobody tells;
    `ratio` is the pod's part of each, None where that is not known. `reserved_by` is the pod whose
    name stands for the board in readings, '' where none does.
    """

    by: str
    boards: tuple[str, ...] = ()
    ratio: float | None = None
    reserved_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The object that controls another; `group` is '' for the core group or where none is told."""

    kind: str
    name: str
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRequest:
    """GPUs of one resource: whole boards (`mig_profile` ''), MIG instances, or shares of boards."""

    mig_profile: str
    shared: bool
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """A pod that asks for GPUs. `rules`: what binds it to some nodes (`placement_rules`).

    `queue` is that of its scheduler (`scheduler_queues`), `budget` a disruption budget that allows
    none of its pods to be ended now, '' where it has none. `asks` is what it requests beside GPUs,
    None where that is not known.

    `start_seconds` from being put on a node to being ready, None where that is not told. `runs` is
    a digest of the image and command of what holds its GPUs, and of these. `resource` counts its
    boards where it is another than usual. `unread` are the requests that are not understood.
    `scheduler` is the name of the one that puts it on a node.
    """

    namespace: str
    name: str
    uid: str
    node: str
    phase: str
    requests: tuple[GpuRequest, ...]
    claims: tuple[str, ...]
    owner: Owner | None
    started_at: datetime | None
    ended_at: datetime | None
    created_at: datetime | None
    reason: str
    template_hash: str = ""
    rules: str = ""
    queue: str = ""
    budget: str = ""
    start_seconds: float | None = None
    runs: str = ""
    resource: str = ""
    asks: HostRequest | None = None
    share: PodShare | None = None
    unread: str = ""
    scheduler: str = ""

    @property
    def holds(self) -> bool:
        """Return whether it has devices of a node: from its binding, before any container runs."""
        return bool(self.node) and self.phase in ("Pending", "Running", "Unknown")

    @property
    def waits(self) -> bool:
        """Return whether it has found no node yet."""
        return not self.node and self.phase == "Pending"

    @property
    def gpus(self) -> int:
        """All GPUs and instances that it asks for."""
        return sum(request.count for request in self.requests)


def labels_of(document: Document) -> dict[str, str]:
    """Return the labels and annotations of an object together."""
    labels: dict[str, str] = {}
    for where in ("labels", "annotations"):
        pairs = part(document, "metadata", where)
        if isinstance(pairs, Mapping):
            labels |= {str(name): fit(str(value)) for name, value in pairs.items()}
    return labels


def controller_of(document: Document) -> Owner | None:
    """Return the owner that controls an object, else its first owner."""
    owners = [entry for entry in list_in(document, "metadata", "ownerReferences")
              if text_in(entry, "kind") and text_in(entry, "name")]  # fmt: skip
    owners.sort(key=lambda entry: part(entry, "controller") is not True)
    if not owners:
        return None
    group, slash, _version = text_in(owners[0], "apiVersion").partition("/")
    return Owner(
        kind=text_in(owners[0], "kind"),
        name=text_in(owners[0], "name"),
        group=group if slash else "",
    )


def requests_of(pod_spec: object) -> tuple[GpuRequest, ...]:
    """Return the GPUs of a pod's spec: containers together, or its largest init container's.

    An init container that is restarted always is a sidecar: it runs beside the containers.
    Where memory or cores of a board are asked for too, the GPUs are pieces of boards.
    """
    first = list_in(pod_spec, "initContainers")
    sidecars = [entry for entry in first if text_in(entry, "restartPolicy") == "Always"]
    main: dict[str, int] = {}
    for container in [*list_in(pod_spec, "containers"), *sidecars]:
        for name, count in _gpu_limits(container):
            main[name] = main.get(name, 0) + count
    for container in first:
        for name, count in _gpu_limits(container):
            main[name] = max(main.get(name, 0), count)
    pieces = any(name in FRACTION_RESOURCES for name in main)
    requests = []
    for name, count in sorted(main.items()):
        if name not in FRACTION_RESOURCES:
            mig = _MIG.fullmatch(name)
            requests.append(
                GpuRequest(
                    mig_profile=mig.group(1) if mig else "",
                    shared=pieces or name == SHARED_GPU or name.endswith(".shared"),
                    count=count,
                )
            )
    return tuple(requests)


def _gpu_limits(container: object) -> Iterator[tuple[str, int]]:
    limits = part(container, "resources", "limits")
    for name, amount in limits.items() if isinstance(limits, Mapping) else ():
        count = count_of(amount)
        if is_read(str(name)) and count:
            yield str(name), count


def _fraction_of(pod: Document) -> tuple[GpuRequest, ...]:
    """Return the share of a board that KAI-scheduler's annotations ask for: it has no resource."""
    if text_in(pod, "spec", "schedulerName") != KAI_SCHEDULER:
        return ()
    notes = labels_of(pod)
    if not notes.get("gpu-fraction") and not notes.get("gpu-memory"):
        return ()
    count = whole_number(notes.get(KAI_DEVICES, "1"))
    return (GpuRequest(mig_profile="", shared=True, count=count),) if count else ()


def _is_gpu(resource: str) -> bool:
    """Return whether it counts GPUs: NVIDIA's operators also offer network cards and memory."""
    return resource in (*BOARDS, SHARED_GPU) or _MIG.fullmatch(resource) is not None


def is_read(resource: str) -> bool:
    """Return whether requests of a resource are understood."""
    return _is_gpu(resource) or resource in FRACTION_RESOURCES


def claims_of(pod: Document) -> tuple[str, ...]:
    """Return the names of a pod's claims: the status has those that were made from a template."""
    entries = (
        *list_in(pod, "spec", "resourceClaims"),
        *list_in(pod, "status", "resourceClaimStatuses"),
    )
    names = (text_in(entry, "resourceClaimName") for entry in entries)
    return tuple(dict.fromkeys(filter(None, names)))


def read_pod(pod: Document) -> PodFacts | None:
    """Return a pod's facts, None when it asks for no GPU and claims no device."""
    spec, status = part(pod, "spec"), part(pod, "status")
    requests, claims = requests_of(spec) or _fraction_of(pod), claims_of(pod)
    if not requests and not claims:
        return None
    statuses = list_in(status, "containerStatuses")
    ends = [time_in(statuse, "state", "terminated", "finishedAt") for statuse in statuses]
    if not any(ends):  # an evicted pod may list no container
        ends = [time_in(entry, "lastTransitionTime") for entry in list_in(status, "conditions")]
    phase = text_in(status, "phase")
    over = phase in ("Succeeded", "Failed")
    return PodFacts(
        namespace=text_in(pod, "metadata", "namespace"),
        name=text_in(pod, "metadata", "name"),
        uid=text_in(pod, "metadata", "uid"),
        node=text_in(spec, "nodeName"),
        phase=phase,
        requests=requests,
        claims=claims,
        owner=controller_of(pod),
        started_at=time_in(status, "startTime"),
        ended_at=max((end for end in ends if end), default=None) if over else None,
        created_at=time_in(pod, "metadata", "creationTimestamp"),
        reason=_waiting(status),
        template_hash=text_in(pod, "metadata", "labels", "pod-template-hash"),
        start_seconds=_start_seconds(spec, status),
        runs=_runs(spec),
        resource=next(filter(BOARDS[1:].__contains__, _names_asked(spec)), ""),
        scheduler=text_in(spec, "schedulerName"),
    )


def _names_asked(spec: object) -> Iterator[str]:
    return (name for entry in list_in(spec, "containers") for name, _count in _gpu_limits(entry))


def _serving(spec: object) -> list[Any]:
    """Return the containers that hold the GPUs; all where none is told to."""
    containers = list_in(spec, "containers")
    return [entry for entry in containers if _has_device(entry)] or list(containers)


def _runs(spec: object) -> str:
    """Return a digest, as a command may hold secrets."""
    containers = [
        [text_in(entry, "image"), *(list_in(entry, name) for name in ("command", "args"))]
        for entry in _serving(spec)
    ]
    return digest_of([str(containers), requests_of(spec)])[:SHORT_ID_LENGTH]


def _start_seconds(spec: object, status: object) -> float | None:
    """Return the seconds from PodScheduled to Ready; None where Ready does not tell of serving.

    Without a probe of its GPU containers a pod is ready as soon as they run, before a model is
    loaded. After a restart, and longer than MAX_START_SECONDS after it was scheduled, Ready tells
    of a later time.
    """
    serving = _serving(spec)
    probed = all(part(entry, "readinessProbe") or part(entry, "startupProbe") for entry in serving)
    statuses = list_in(status, "containerStatuses")
    restarted = any(part(entry, "restartCount") != 0 for entry in statuses)
    scheduled, ready = (_since(status, name) for name in ("PodScheduled", "Ready"))
    if not probed or restarted or scheduled is None or ready is None:
        return None
    seconds = (ready - scheduled).total_seconds()
    return seconds if 0 <= seconds <= MAX_START_SECONDS else None


def _has_device(container: object) -> bool:
    return any(_gpu_limits(container)) or bool(list_in(container, "resources", "claims"))


def _since(status: object, condition: str) -> datetime | None:
    """Return since when a condition of a pod is true, None while it is not."""
    for entry in list_in(status, "conditions"):
        if text_in(entry, "type") == condition and text_in(entry, "status") == "True":
            return time_in(entry, "lastTransitionTime")
    return None


def on_node(pod: PodFacts, node: Document) -> PodFacts:
    """Return the pod with what whole GPUs of its node really are: instances, shared replicas."""
    profile, shared = single_profile(node), shares_gpus(node)
    requests = [
        request
        if request.mig_profile or request.shared
        else replace(request, mig_profile=profile, shared=shared)
        for request in pod.requests
    ]
    return replace(pod, requests=tuple(requests))


def _waiting(status: object) -> str:
    """Return the reason why a pod waits, by its scheduler or a container."""
    for entry in list_in(status, "conditions"):
        if text_in(entry, "type") == "PodScheduled" and text_in(entry, "status") == "False":
            return text_in(entry, "message") or text_in(entry, "reason")
    for entry in list_in(status, "containerStatuses"):
        reason = text_in(entry, "state", "waiting", "reason")
        if reason:
            return reason
    return text_in(status, "reason")


def gpu_resources(node: Document) -> dict[str, int]:
    """Return the GPU resources that a node offers, by name.

    Where the device plugin calls every MIG instance a GPU (strategy `single`), they are named as
    the instances that they are.
    """
    offered = part(node, "status", "allocatable")
    if not isinstance(offered, Mapping):
        return {}
    profile = single_profile(node)
    count_by_resource: dict[str, int] = {}
    for name, amount in offered.items():
        count = count_of(amount)
        if _is_gpu(str(name)) and count:
            resource = resource_of(profile) if profile and name == WHOLE_GPU else str(name)
            count_by_resource[resource] = count_by_resource.get(resource, 0) + count
    return count_by_resource


def single_profile(node: Document) -> str:
    """Return MIG profile that a node offers under the name of whole GPUs, '' when it does not."""
    match = _MIG_PRODUCT.search(_SHARED_PRODUCT.sub("", _product(node)))
    return match.group(1) if match else ""


def boards_of(node: Document) -> int:
    """Return the number of whole boards that a node offers; a shared board counts once.

    0 where boards are shared and no label tells how many there are: replicas are no boards.
    """
    resources = gpu_resources(node)
    offered = sum(resources.get(name, 0) for name in (*BOARDS, SHARED_GPU))
    if shares_gpus(node) or resources.get(SHARED_GPU):
        return min(count_of(text_in(node, "metadata", "labels", COUNT_LABEL)), offered)
    return offered


def _product(node: Document) -> str:
    labels = (text_in(node, "metadata", "labels", name) for name in PRODUCT_LABELS)
    return next(filter(None, labels), "")


def mig_offer(resources: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return (profile, count) of the MIG instances among a node's resources."""
    pairs = ((_MIG.fullmatch(name), count) for name, count in sorted(resources.items()))
    return tuple((match.group(1), count) for match, count in pairs if match)


def model_of(node: Document, catalogue: GpuCatalogue) -> str:
    """Return the catalogue's name of a node's GPUs from their product label, '' without one."""
    product = product_of(node)
    return catalogue.recognise(product) if product else ""


def product_of(node: Document) -> str:
    """Return the product label of a node's GPUs without what it says of slices and sharing."""
    return _MIG_PRODUCT.sub("", _SHARED_PRODUCT.sub("", _product(node)))


def shares_gpus(node: Document) -> bool:
    """Return whether a node's device plugin hands one board to several pods, in whatever way."""
    return text_in(node, "metadata", "labels", SHARING_LABEL) not in ("", "none")
