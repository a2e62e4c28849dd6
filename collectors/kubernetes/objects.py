"""What Kubernetes' objects say of GPUs, from their plain JSON. Names and labels are untrusted."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from collectors.kubernetes.client import Document
from data.catalogue.gpu_catalogue import GpuCatalogue

WHOLE_GPU = "nvidia.com/gpu"
_SHARED_GPU = "nvidia.com/gpu.shared"
_MIG = re.compile(r"nvidia\.com/mig-([0-9a-z.+]{1,40}?)(?:\.shared)?")
_SHARED_PRODUCT = re.compile(r"-(?:SHARED|MIG-[0-9a-z.+]+)$")
_GPU_DEVICE = re.compile(r"gpu-(\d{1,3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The object that controls another."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRequest:
    """GPUs of one resource: whole boards (`mig_profile` ''), MIG instances, or shares of boards."""

    mig_profile: str
    shared: bool
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """A pod that asks for GPUs."""

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

    @property
    def gpus(self) -> int:
        """All GPUs and instances that it asks for."""
        return sum(one.count for one in self.requests)


def part(document: object, *names: str) -> Any:
    """Give what is found by these names one inside the other, None where one is missing."""
    for name in names:
        if not isinstance(document, Mapping):
            return None
        document = document.get(name)
    return document


def text_in(document: object, *names: str) -> str:
    """Give a text found by these names, '' when there is none."""
    found = part(document, *names)
    return found if isinstance(found, str) else ""


def list_in(document: object, *names: str) -> list[Any]:
    """Give a list found by these names, empty when there is none."""
    found = part(document, *names)
    return found if isinstance(found, list) else []


def time_in(document: object, *names: str) -> datetime | None:
    """Give a time (RFC 3339) found by these names, None when there is none."""
    try:
        found = datetime.fromisoformat(text_in(document, *names))
    except ValueError:
        return None
    return found.astimezone(UTC) if found.tzinfo else None


def labels_of(document: Document) -> dict[str, str]:
    """Give the labels and annotations of an object together."""
    found: dict[str, str] = {}
    for where in ("labels", "annotations"):
        pairs = part(document, "metadata", where)
        if isinstance(pairs, Mapping):
            found |= {str(name): str(value) for name, value in pairs.items()}
    return found


def controller_of(document: Document) -> Owner | None:
    """Give the owner that controls an object, else its first owner."""
    owners = [one for one in list_in(document, "metadata", "ownerReferences")
              if text_in(one, "kind") and text_in(one, "name")]  # fmt: skip
    owners.sort(key=lambda one: part(one, "controller") is not True)
    if not owners:
        return None
    return Owner(kind=text_in(owners[0], "kind"), name=text_in(owners[0], "name"))


def requests_of(pod_spec: object) -> tuple[GpuRequest, ...]:
    """Give the GPUs of a pod's spec: containers together, or its largest init container's."""
    main: dict[str, int] = {}
    for container in list_in(pod_spec, "containers"):
        for name, count in _asked(container):
            main[name] = main.get(name, 0) + count
    for container in list_in(pod_spec, "initContainers"):
        for name, count in _asked(container):
            main[name] = max(main.get(name, 0), count)
    found = []
    for name, count in sorted(main.items()):
        mig = _MIG.fullmatch(name)
        found.append(
            GpuRequest(
                mig_profile=mig.group(1) if mig else "",
                shared=name == _SHARED_GPU or name.endswith(".shared"),
                count=count,
            )
        )
    return tuple(found)


def _asked(container: object) -> Iterator[tuple[str, int]]:
    limits = part(container, "resources", "limits")
    for name, quantity in limits.items() if isinstance(limits, Mapping) else ():
        known = name in (WHOLE_GPU, _SHARED_GPU) or _MIG.fullmatch(str(name))
        count = count_of(quantity)
        if known and count:
            yield str(name), count


def count_of(quantity: object) -> int:
    """Give the whole number of a quantity, "2" or 2; 0 for anything else."""
    text = str(quantity)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def read_pod(pod: Document) -> PodFacts | None:
    """Give a pod's facts, None when it asks for no GPU."""
    spec, status = part(pod, "spec"), part(pod, "status")
    requests = requests_of(spec)
    claims = tuple(
        text_in(one, "resourceClaimName") for one in list_in(status, "resourceClaimStatuses")
    )
    if not requests and not claims:
        return None
    statuses = list_in(status, "containerStatuses")
    ends = [time_in(one, "state", "terminated", "finishedAt") for one in statuses]
    phase = text_in(status, "phase")
    over = phase in ("Succeeded", "Failed")
    return PodFacts(
        namespace=text_in(pod, "metadata", "namespace"),
        name=text_in(pod, "metadata", "name"),
        uid=text_in(pod, "metadata", "uid"),
        node=text_in(spec, "nodeName"),
        phase=phase,
        requests=requests,
        claims=tuple(filter(None, claims)),
        owner=controller_of(pod),
        started_at=time_in(status, "startTime"),
        ended_at=max((one for one in ends if one), default=None) if over else None,
        created_at=time_in(pod, "metadata", "creationTimestamp"),
        reason=_waiting(status),
    )


def _waiting(status: object) -> str:
    """Give why a pod waits: what the scheduler or a container says."""
    for one in list_in(status, "conditions"):
        if text_in(one, "type") == "PodScheduled" and text_in(one, "status") == "False":
            return text_in(one, "message") or text_in(one, "reason")
    for one in list_in(status, "containerStatuses"):
        reason = text_in(one, "state", "waiting", "reason")
        if reason:
            return reason
    return text_in(status, "reason")


def gpu_resources(node: Document) -> dict[str, int]:
    """Give the GPU resources that a node offers, by name."""
    offered = part(node, "status", "allocatable")
    if not isinstance(offered, Mapping):
        return {}
    return {
        str(name): count_of(quantity)
        for name, quantity in offered.items()
        if str(name).startswith("nvidia.com/") and count_of(quantity)
    }


def mig_offer(resources: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Give (profile, count) of the MIG instances among a node's resources."""
    pairs = ((_MIG.fullmatch(name), count) for name, count in sorted(resources.items()))
    return tuple((match.group(1), count) for match, count in pairs if match)


def model_of(node: Document, catalogue: GpuCatalogue) -> str:
    """Give the catalogue's name of a node's GPUs from their product label, '' without one."""
    product = text_in(node, "metadata", "labels", "nvidia.com/gpu.product")
    if not product:
        return ""
    return catalogue.recognise(_SHARED_PRODUCT.sub("", product))


def shares_gpus(node: Document) -> bool:
    """Whether a node's device plugin hands one board to several pods."""
    strategy = text_in(node, "metadata", "labels", "nvidia.com/gpu.sharing-strategy")
    return strategy in ("time-slicing", "mps")


def claimed_devices(claim: Document) -> Iterator[tuple[str, str]]:
    """Give (node, index) of the GPUs that a DRA claim was given, where its device names tell."""
    for result in list_in(claim, "status", "allocation", "devices", "results"):
        match = _GPU_DEVICE.fullmatch(text_in(result, "device"))
        if text_in(result, "driver") == "gpu.nvidia.com" and match:
            yield text_in(result, "pool"), match.group(1)
