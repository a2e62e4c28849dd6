"""GPU quotas of Kueue's queues: ClusterQueue, LocalQueue, Cohort and ResourceFlavor.

The limits stand in specs that a person wrote, use and workloads in the statuses that Kueue's
controller writes: without it they are unknown. v1beta1 calls a cohort `cohort` and one above it
`parent`, v1beta2 `cohortName` and `parentName`. A cohort without an object has no quota of its own.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from collectors.kubernetes.api import Document
from collectors.kubernetes.client import Inventory
from collectors.kubernetes.objects import model_of
from collectors.shared.json_parts import list_in, part, text_in
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.gpu_resources import BOARDS, MIG_PREFIX, SHARED_GPU
from data.facts.quotas import Quota, QuotaKind

_QUANTITY = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)(m|k|M|)", re.ASCII)
_SCALES = {"m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6}
_USED, _RESERVED = "flavorsUsage", "flavorsReservation"


def kueue_quotas(
    inventory: Inventory,
    catalogue: GpuCatalogue,
    source: str,
    observed_at: datetime,
    dropped: Counter[str],
) -> tuple[Quota, ...] | None:
    """Return the limits of all queues on GPUs; none without Kueue, None where it is not told.

    A limit that is no quantity is left out and counted in `dropped`.
    """
    if "ClusterQueue" not in inventory.objects:
        return None if {"ClusterQueue", "Workload"} & inventory.missing.keys() else ()
    models = {
        text_in(flavor, "metadata", "name"): model_of(
            {"metadata": {"labels": part(flavor, "spec", "nodeLabels")}}, catalogue
        )
        for flavor in inventory.of("ResourceFlavor")
    }
    reader = _Reader(source=source, observed_at=observed_at, models=models, dropped=dropped)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
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
                admitted=_workloads(status, "admittedWorkloads"),
                pending=_workloads(status, "pendingWorkloads"),
                weight=quantity_of(part(spec, "fairSharing", "weight")),
                preempts=_preempts(spec),
                parent=above,
                observed_at=self.observed_at,
            )


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
        admitted=_workloads(status, "admittedWorkloads"),
        pending=_workloads(status, "pendingWorkloads"),
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


def _workloads(status: object, name: str) -> int | None:
    count = part(status, name)
    return count if type(count) is int and 0 <= count < 1 << 31 else None


def _preempts(spec: object) -> str:
    pairs = (
        (name, text_in(spec, "preemption", name))
        for name in ("reclaimWithinCohort", "withinClusterQueue")
    )
    return ", ".join(f"{name}: {policy}" for name, policy in pairs if policy not in ("", "Never"))


def _limit(entry: object, name: str, *, absent: float | None) -> float | None:
    """Return a limit, `absent` where none is set. Errors: ValueError for what is no quantity."""
    value = part(entry, name)
    limit = quantity_of(value)
    if value is not None and limit is None:
        raise ValueError(name)
    return absent if value is None else limit


def quantity_of(value: object) -> float | None:
    """Return a Kubernetes quantity such as 8, "8" or "500m", None for anything else."""
    if isinstance(value, bool):
        return None
    match = _QUANTITY.fullmatch(str(value))
    return float(match[1]) * _SCALES[match[2]] if match else None
