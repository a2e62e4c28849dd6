"""Kinds of pods of a workload, with their number and their GPUs, from an object or its excerpt."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from collectors.kubernetes.objects import requests_of
from collectors.shared.json_parts import count_of, list_in, part, text_in
from dashboard.apply.kubernetes.state.json_patch import pointer, value_at
from data.facts.gpu_resources import BOARDS, MIG_PREFIX, SHARED_GPU

Document = Mapping[str, Any]

_OF_CONTAINERS = ("containers", "initContainers")
_COUNTED_RESOURCES = (*BOARDS, SHARED_GPU)


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Pods of one template. `count_at` is '' where their number cannot be changed.

    A unit of the count makes `pods_each` pods with `gpus_each` GPUs in all.
    """

    name: str
    count_at: str
    count: int
    gpus_each: int
    template_at: str
    pods_each: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of all its pods."""
        return self.count * self.gpus_each


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuContainer:
    """A container that asks for GPUs of one resource."""

    at: str
    name: str
    resource: str
    count: int
    requested: bool
    first: bool


def holders(document: Document, template_at: str) -> list[GpuContainer]:
    """Return the containers of a pod template that ask for GPUs, init containers among them."""
    return [
        holder
        for section in _OF_CONTAINERS
        for index, entry in enumerate(list_in(value_at(document, template_at), section))
        for holder in _holders(entry, template_at + pointer(section, index), section)
    ]


def _holders(container: object, at: str, section: str) -> Iterator[GpuContainer]:
    runs_on = section == "containers" or text_in(container, "restartPolicy") == "Always"
    limits = part(container, "resources", "limits")
    for resource in limits if isinstance(limits, Mapping) else ():
        if resource in _COUNTED_RESOURCES or resource.startswith(MIG_PREFIX):
            yield GpuContainer(
                at=at,
                name=text_in(container, "name"),
                resource=resource,
                count=count_of(limits[resource]),
                requested=part(container, "resources", "requests", resource) is not None,
                first=not runs_on,
            )


def profile_of(document: Document, roles: list[Role]) -> str | None:
    """Return the MIG profile of all GPUs, '' for whole boards, None when there are several."""
    resources = {
        holder.resource for role in roles for holder in holders(document, role.template_at)
    }
    if len(resources) != 1:
        return None
    (resource,) = resources
    return "" if resource in _COUNTED_RESOURCES else resource.removeprefix(MIG_PREFIX)


def roles_of(kind: str, document: Document) -> list[Role]:
    """Return the kinds of pods of a workload; none for a kind whose templates are not known."""
    reader = _BY_KIND.get(kind)
    return [entry for entry in reader(document) if entry.gpus_each] if reader else []


def roles_by_claims(kind: str, document: Document, gpus: int) -> list[Role]:
    """Return the one kind of pods that hold so many GPUs in all, by a claim of their own each.

    None where pods share a claim: fewer of them free nothing.
    """
    roles = list(_BY_KIND[kind](document)) if kind in _BY_KIND else []
    if len(roles) != 1 or not roles[0].count or gpus % roles[0].count:
        return []
    claims = list_in(value_at(document, roles[0].template_at), "resourceClaims")
    if not claims or not all(text_in(claim, "resourceClaimTemplateName") for claim in claims):
        return []
    return [replace(roles[0], gpus_each=gpus // roles[0].count)]


def pods_of(kind: str, document: Document) -> int:
    """Return the number of pods with GPUs that an object wants."""
    return sum(role.count * role.pods_each for role in roles_of(kind, document))


def _gpus(pod_spec: object) -> int:
    boards = sum(request.count for request in requests_of(pod_spec) if not request.shared)
    shares = (
        part(container, "resources", "limits", SHARED_GPU)
        for container in list_in(pod_spec, "containers")
    )
    return boards or sum(map(count_of, shares))


def _count(document: object, at: str) -> int:
    """Return a number of pods; what is left out is one, as Kubernetes fills it in."""
    value = value_at(document, at)
    return 1 if value is None else count_of(value)


def _role(document: Document, name: str, count_at: str, template_at: str, times: int = 1) -> Role:
    gpus = _gpus(value_at(document, template_at))
    return Role(
        name=name,
        count_at=count_at,
        count=_count(document, count_at),
        gpus_each=gpus * times,
        template_at=template_at,
        pods_each=times,
    )


def _simple(count: str, above: str = "/spec") -> Callable[[Document], Iterator[Role]]:
    def roles(document: Document) -> Iterator[Role]:
        yield _role(document, "pods", f"{above}/{count}", f"{above}/template/spec")

    return roles


def _kubeflow(document: Document) -> Iterator[Role]:
    """Roles such as Master and Worker; only the number of Workers changes."""
    spec = part(document, "spec")
    for field, roles in spec.items() if isinstance(spec, Mapping) else ():
        if str(field).endswith("ReplicaSpecs") and isinstance(roles, Mapping):
            for name in roles:
                at = pointer("spec", field, name)
                role = _role(document, str(name), f"{at}/replicas", f"{at}/template/spec")
                yield role if name == "Worker" else replace(role, count_at="")


def _job_set(document: Document) -> Iterator[Role]:
    for index, entry in enumerate(list_in(document, "spec", "replicatedJobs")):
        at = pointer("spec", "replicatedJobs", index)
        jobs, pods = f"{at}/replicas", f"{at}/template/spec/parallelism"
        # Of jobs with one pod the jobs are counted, of one job its pods.
        several = _count(document, jobs) > 1
        count_at, other = (jobs, pods) if several else (pods, jobs)
        yield _role(
            document,
            text_in(entry, "name"),
            count_at,
            f"{at}/template/spec/template/spec",
            _count(document, other),
        )


def _ray(above: str) -> Callable[[Document], Iterator[Role]]:
    def roles(document: Document) -> Iterator[Role]:
        head_at = f"{above}/headGroupSpec/template/spec"
        head = _gpus(value_at(document, head_at))
        yield Role(name="head", count_at="", count=1, gpus_each=head, template_at=head_at)
        groups = value_at(document, f"{above}/workerGroupSpecs")
        for index, group in enumerate(groups if isinstance(groups, list) else []):
            at = f"{above}/workerGroupSpecs/{index}"
            hosts = _count(document, f"{at}/numOfHosts")
            name = text_in(group, "groupName")
            yield _role(document, name, f"{at}/replicas", f"{at}/template/spec", hosts)

    return roles


def _leader_worker_set(document: Document) -> Iterator[Role]:
    group = part(document, "spec", "leaderWorkerTemplate")
    worker = part(group, "workerTemplate", "spec")
    leader = part(group, "leaderTemplate", "spec") or worker
    workers = max(0, _count(document, "/spec/leaderWorkerTemplate/size") - 1)
    leading, working = _gpus(leader), _gpus(worker)
    yield Role(
        name="groups",
        count_at="/spec/replicas",
        count=_count(document, "/spec/replicas"),
        gpus_each=leading + workers * working,
        template_at="/spec/leaderWorkerTemplate/workerTemplate/spec",
        pods_each=(leading > 0) + workers * (working > 0),
    )


_BY_KIND: Mapping[str, Callable[[Document], Iterator[Role]]] = {
    "Deployment": _simple("replicas"),
    "StatefulSet": _simple("replicas"),
    "Job": _simple("parallelism"),
    "CronJob": _simple("parallelism", "/spec/jobTemplate/spec"),
    "PyTorchJob": _kubeflow,
    "MPIJob": _kubeflow,
    "JobSet": _job_set,
    "RayCluster": _ray("/spec"),
    "RayService": _ray("/spec/rayClusterConfig"),
    "RayJob": _ray("/spec/rayClusterSpec"),
    "LeaderWorkerSet": _leader_worker_set,
}
