"""GPU limits of queues and namespaces, and the queue of a pod.

Kueue: limits stand in specs that a person wrote, use and workloads in the statuses that its
controller writes: without it they are unknown. v1beta1 calls a cohort `cohort` and one above it
`parent`, v1beta2 `cohortName` and `parentName`. A cohort without an object has no quota of its own.

KAI-scheduler and Volcano both call the kind Queue. KAI's tells a share (`quota`) and a limit of
GPUs, -1 for none of either; Volcano's what it deserves, what nobody else may take of that
(`guarantee`), and what it may hold at most (`capability`). The use stands in their statuses.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from collectors.kubernetes.api import Document
from collectors.kubernetes.client import Inventory
from collectors.kubernetes.objects import labels_of, model_of
from collectors.shared.json_parts import list_in, part, quantity, text_in
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.gpu_resources import BOARDS, MIG_PREFIX, SHARED_GPU, WHOLE_GPU
from data.facts.quotas import Quota, QuotaKind

_MAX_COUNT = 1 << 31
_USED, _RESERVED = "flavorsUsage", "flavorsReservation"


@dataclass(frozen=True, slots=True, kw_only=True)
class _KueueReader:
    """One reading of a cluster's queues; `models` are those of flavors."""

    source: str
    observed_at: datetime
    models: dict[str, str]
    dropped: Counter[str]

    def of_cluster_queue(self, document: Document) -> Iterator[Quota]:
        """Yield the limits of a queue, one for each flavor of a GPU resource."""
        spec = part(document, "spec")
        cohort = text_in(spec, "cohortName") or text_in(spec, "cohort")
        yield from self._limits(document, QuotaKind.CLUSTER_QUEUE, cohort)

    def of_cohort(self, document: Document, quotas: Iterable[Quota]) -> Iterator[Quota]:
        """Yield the quotas that a cohort adds to those of its queues, with borrowing and lending.

        Of the flavors of these quotas that it does not name it passes on what others lend.
        """
        spec = part(document, "spec")
        above = text_in(spec, "parentName") or text_in(spec, "parent")
        limits = list(self._limits(document, QuotaKind.COHORT, above))
        yield from limits
        pairs = {(quota.resource, quota.flavor) for quota in limits}
        for quota in quotas if above else ():
            if (quota.resource, quota.flavor) not in pairs:
                yield Quota(
                    source=self.source,
                    kind=QuotaKind.COHORT,
                    queue=text_in(document, "metadata", "name"),
                    resource=quota.resource,
                    flavor=quota.flavor,
                    gpu_model=quota.gpu_model,
                    nominal=0.0,
                    borrowing_limit=None,
                    lending_limit=None,
                    parent=above,
                    observed_at=self.observed_at,
                )

    def _limits(self, document: Document, kind: QuotaKind, above: str) -> Iterator[Quota]:
        spec, status = part(document, "spec"), part(document, "status")
        for flavor, entry in _entries(spec):
            resource, name = text_in(entry, "name"), text_in(flavor, "name")
            # Without a cohort nobody lends to a queue or borrows from it.
            absent = None if above else 0.0
            try:
                nominal = _limit(entry, "nominalQuota", absent=None)
                borrowing = _limit(entry, "borrowingLimit", absent=absent)
                lending = _limit(entry, "lendingLimit", absent=absent)
            except ValueError:
                self.dropped["unreadable-quota"] += 1
                continue
            yield Quota(
                source=self.source,
                kind=kind,
                queue=text_in(document, "metadata", "name"),
                resource=resource,
                flavor=name,
                gpu_model=self.models.get(name, ""),
                nominal=nominal,
                borrowing_limit=borrowing,
                lending_limit=lending,
                used=_total(status, _USED, name, resource),
                reserved=_total(status, _RESERVED, name, resource),
                admitted=_count(part(status, "admittedWorkloads")),
                pending=_count(part(status, "pendingWorkloads")),
                weight=quantity_of(part(spec, "fairSharing", "weight")),
                preempts=_preempts(spec),
                parent=above,
                observed_at=self.observed_at,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueScheduler:
    """A scheduler with queues: the mark of its pods' queue, that of a pod without, its limits."""

    marks: tuple[str, ...]
    usual: str
    limits: Callable[[Document], Iterator[dict[str, Any]]]


def _kai(document: Document) -> Iterator[dict[str, Any]]:
    """Yield the limit of a queue of KAI, in boards: pods may ask for parts of one."""
    spec, gpu = part(document, "spec"), part(document, "spec", "resources", "gpu")
    quota, limit = (_number(part(gpu, name)) for name in ("quota", "limit"))
    nominal = None if quota is None or quota < 0 else quota
    yield {
        "resource": WHOLE_GPU,
        "nominal": nominal,
        "borrowing_limit": None if limit is None or limit < 0 else max(0.0, limit - (nominal or 0)),
        "lending_limit": None,
        "used": quantity_of(part(document, "status", "allocated", WHOLE_GPU)),
        "reserved": quantity_of(part(document, "status", "requested", WHOLE_GPU)),
        "weight": _number(part(gpu, "overQuotaWeight")),
        "priority": _count(part(spec, "priority")),
        "parent": text_in(spec, "parentQueue"),
    }


def _volcano(document: Document) -> Iterator[dict[str, Any]]:
    """Yield the limit of a queue of Volcano on each GPU resource that it names."""
    spec, status = part(document, "spec"), part(document, "status")
    sections = {
        "deserved": part(spec, "deserved"),
        "capability": part(spec, "capability"),
        "guarantee": part(spec, "guarantee", "resource"),
        "allocated": part(status, "allocated"),
    }
    lists = {name: amounts for name, amounts in sections.items() if isinstance(amounts, Mapping)}
    waiting = [_count(part(status, name)) for name in ("pending", "inqueue")]
    for resource in sorted({str(name) for amounts in lists.values() for name in amounts}):
        if not is_device(resource):
            continue
        deserved, most, guarantee, used = (
            quantity_of(lists.get(name, {}).get(resource)) for name in sections
        )
        nominal = most if deserved is None else deserved
        yield {
            "resource": resource,
            "nominal": nominal,
            "borrowing_limit": None if most is None else max(0.0, most - (nominal or 0.0)),
            "lending_limit": 0.0
            if part(spec, "reclaimable") is False
            else None
            if guarantee is None or nominal is None
            else max(0.0, nominal - guarantee),
            "used": used,
            "admitted": _count(part(status, "running")),
            "pending": None if None in waiting else sum(filter(None, waiting)),
            "weight": _number(part(spec, "weight")),
            "parent": text_in(spec, "parent"),
        }


QUEUE_SCHEDULERS: Mapping[str, tuple[str, QueueScheduler]] = {
    "kai-scheduler": (
        "KaiQueue",
        QueueScheduler(marks=("kai.scheduler/queue", "runai/queue"), usual="", limits=_kai),
    ),
    "volcano": (
        "VolcanoQueue",
        QueueScheduler(
            marks=("scheduling.volcano.sh/queue-name", "volcano.sh/queue-name"),
            usual="default",
            limits=_volcano,
        ),
    ),
}
"""The name of a scheduler in the specs of pods to the kind of its queues, and how it is read."""


def queue_of_pod(pod: Document) -> str:
    """Return the queue of its scheduler that a pod is in, '' where it has none or none is told."""
    scheduler = QUEUE_SCHEDULERS.get(text_in(pod, "spec", "schedulerName"))
    if scheduler is None:
        return ""
    marks = labels_of(pod)
    return next((marks[mark] for mark in scheduler[1].marks if marks.get(mark)), scheduler[1].usual)


def quotas_of(
    inventory: Inventory,
    catalogue: GpuCatalogue,
    source: str,
    observed_at: datetime,
    dropped: Counter[str],
) -> tuple[Quota, ...] | None:
    """Return the limits of all queues and namespaces on GPUs; None where some are not told.

    () where nothing limits them. A limit that is not a quantity is left out and counted.
    """
    kueue = kueue_quotas(inventory, catalogue, source, observed_at, dropped)
    kinds = dict(QUEUE_SCHEDULERS.values())
    quotas = [*resource_quotas(inventory, source, observed_at, dropped)]
    quotas += [
        Quota(
            source=source,
            kind=QuotaKind.QUEUE,
            queue=text_in(document, "metadata", "name"),
            observed_at=observed_at,
            **limits,
        )
        for kind, scheduler in kinds.items()
        for document in inventory.of(kind)
        for limits in scheduler.limits(document)
    ]
    may_hide = kinds.keys() | {"ResourceQuota"}
    if not quotas and (kueue is None or may_hide & inventory.missing.keys()):
        return kueue or None
    unique = {quota.key: quota for quota in (*(kueue or ()), *quotas)}
    return tuple(unique[key] for key in sorted(unique))


def _number(value: object) -> float | None:
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if fits and abs(value) < _MAX_COUNT else None  # type: ignore[arg-type]


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < _MAX_COUNT else None


_ENFORCED = "requests."
"""Of GPUs Kubernetes counts this alone: it takes quotas of `limits.` and lets all pods pass."""


def resource_quotas(
    inventory: Inventory, source: str, observed_at: datetime, dropped: Counter[str]
) -> Iterator[Quota]:
    """Yield the limits of ResourceQuotas on GPUs, in devices of each resource.

    Left out and counted in `dropped`: a limit that is not a quantity, and one with scopes, which
    holds for some pods of its namespace.
    """
    for document in inventory.of("ResourceQuota"):
        hard = part(document, "status", "hard") or part(document, "spec", "hard")
        about = part(document, "metadata")
        scoped = list_in(document, "spec", "scopes") or part(document, "spec", "scopeSelector")
        for key, limit in hard.items() if isinstance(hard, Mapping) else ():
            resource = str(key).removeprefix(_ENFORCED)
            if resource == key or not is_device(resource):
                continue
            nominal = quantity_of(limit)
            if scoped or nominal is None:
                dropped["scoped-quota" if scoped else "unreadable-quota"] += 1
                continue
            yield Quota(
                source=source,
                kind=QuotaKind.RESOURCE_QUOTA,
                queue=f"{text_in(about, 'namespace')}/{text_in(about, 'name')}",
                resource=resource,
                nominal=nominal,
                borrowing_limit=0.0,
                lending_limit=0.0,
                used=quantity_of(part(document, "status", "used", key)),
                observed_at=observed_at,
            )


def kueue_quotas(
    inventory: Inventory,
    catalogue: GpuCatalogue,
    source: str,
    observed_at: datetime,
    dropped: Counter[str],
) -> tuple[Quota, ...] | None:
    """Return the limits of all queues on GPUs; none without Kueue, None where it is not told.

    A limit that is not a quantity is left out and counted in `dropped`.
    """
    if "ClusterQueue" not in inventory.objects:
        return None if {"ClusterQueue", "Workload"} & inventory.missing.keys() else ()
    models = {
        text_in(flavor, "metadata", "name"): model_of(
            {"metadata": {"labels": part(flavor, "spec", "nodeLabels")}}, catalogue
        )
        for flavor in inventory.of("ResourceFlavor")
    }
    reader = _KueueReader(source=source, observed_at=observed_at, models=models, dropped=dropped)
    quotas_by_queue: dict[str, list[Quota]] = {}
    for document in inventory.of("ClusterQueue"):
        rows = quotas_by_queue.setdefault(text_in(document, "metadata", "name"), [])
        rows += reader.of_cluster_queue(document)
    quotas = [quota for rows in quotas_by_queue.values() for quota in rows]
    lent = {(quota.resource, quota.flavor): quota for quota in quotas}
    for document in inventory.of("Cohort"):
        quotas += reader.of_cohort(document, lent.values())
    for document in inventory.of("LocalQueue"):
        above = quotas_by_queue.get(text_in(document, "spec", "clusterQueue"), [])
        quotas += (_of_local_queue(document, quota) for quota in above)
    unique = {quota.key: quota for quota in quotas}
    dropped.update({"repeated-queue": len(quotas) - len(unique)})
    return tuple(unique[key] for key in sorted(unique))


def _of_local_queue(document: Document, above: Quota) -> Quota:
    """Return the part of a local queue in a limit of the cluster queue above it."""
    status, namespace = part(document, "status"), text_in(document, "metadata", "namespace")
    return replace(
        above,
        kind=QuotaKind.LOCAL_QUEUE,
        queue=f"{namespace}/{text_in(document, 'metadata', 'name')}",
        nominal=None,
        borrowing_limit=None,
        lending_limit=None,
        used=_total(status, _USED, above.flavor, above.resource),
        reserved=_total(status, _RESERVED, above.flavor, above.resource),
        admitted=_count(part(status, "admittedWorkloads")),
        pending=_count(part(status, "pendingWorkloads")),
        weight=quantity_of(part(document, "spec", "fairSharing", "weight")),
        preempts="",
        parent=above.queue,
    )


def _entries(spec: object) -> Iterator[tuple[object, object]]:
    """Yield (flavor, its quota) of each GPU resource of the spec of a ClusterQueue or Cohort."""
    for group in list_in(spec, "resourceGroups"):
        for flavor in list_in(group, "flavors"):
            for entry in list_in(flavor, "resources"):
                if is_device(text_in(entry, "name")):
                    yield flavor, entry


def is_device(resource: str) -> bool:
    """Return whether a resource counts GPUs or parts of them."""
    return resource in (*BOARDS, SHARED_GPU) or resource.startswith(MIG_PREFIX)


def _total(status: object, where: str, flavor: str, resource: str) -> float | None:
    """Return the amount of a flavor's resource in a status, None where it is missing."""
    for entry in list_in(status, where):
        for usage in list_in(entry, "resources"):
            if (text_in(entry, "name"), text_in(usage, "name")) == (flavor, resource):
                return quantity_of(part(usage, "total"))
    return None


def _preempts(spec: object) -> str:
    pairs = (
        (name, text_in(spec, "preemption", name))
        for name in ("reclaimWithinCohort", "withinClusterQueue")
    )
    return ", ".join(f"{name}: {policy}" for name, policy in pairs if policy not in ("", "Never"))


def _limit(entry: object, name: str, *, absent: float | None) -> float | None:
    """Return a limit, `absent` where none is set. Errors: ValueError unless it is a quantity."""
    value = part(entry, name)
    limit = quantity_of(value)
    if value is not None and limit is None:
        raise ValueError(name)
    return absent if value is None else limit


def quantity_of(value: object) -> float | None:
    """Return a Kubernetes quantity such as 8, "8" or "500m", None for anything else."""
    amount = None if isinstance(value, bool) else quantity(value)
    return None if amount is None else float(amount)
