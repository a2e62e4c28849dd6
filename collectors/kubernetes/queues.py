"""GPU limits of queues of KAI-scheduler and Volcano, and the queue of a pod.

Both call the kind Queue. KAI's tells a share (`quota`) and a limit of GPUs, -1 for none of either;
Volcano's what it deserves, what nobody else may take of that (`guarantee`), and what it may hold at
most (`capability`). The use stands in the status that their controllers write.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from collectors.kubernetes.api import Document
from collectors.kubernetes.client import Inventory
from collectors.kubernetes.kueue_quotas import is_device, kueue_quotas, quantity_of
from collectors.kubernetes.objects import labels_of
from collectors.shared.json_parts import list_in, part, text_in
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.gpu_resources import WHOLE_GPU
from data.facts.quotas import Quota, QuotaKind

_COUNTED = 1 << 31


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


QUEUE_SCHEDULERS: Mapping[str, tuple[str, QueueScheduler]] = MappingProxyType(
    {
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
)
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

    () where nothing limits them. A limit that is no quantity is left out and counted.
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
    return float(value) if fits and abs(value) < _COUNTED else None  # type: ignore[arg-type]


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < _COUNTED else None


_ENFORCED = "requests."
"""Of GPUs Kubernetes counts this alone: it takes quotas of `limits.` and lets all pods pass."""


def resource_quotas(
    inventory: Inventory, source: str, observed_at: datetime, dropped: Counter[str]
) -> Iterator[Quota]:
    """Yield the limits of ResourceQuotas on GPUs, in devices of each resource.

    Left out and counted in `dropped`: a limit that is no quantity, and one with scopes, which
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
