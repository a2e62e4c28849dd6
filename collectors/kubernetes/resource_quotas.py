"""GPU limits of namespaces by their ResourceQuotas."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime

from collectors.kubernetes.client import Inventory
from collectors.kubernetes.kueue_quotas import is_device, quantity_of
from collectors.shared.json_parts import list_in, part, text_in
from data.facts.quotas import Quota, QuotaKind

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
