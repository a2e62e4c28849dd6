"""Free quota of Kubernetes by namespace: the cluster refuses pods beyond it."""

import math
from collections import defaultdict
from collections.abc import Sequence

from data.facts.gpu_resources import resource_of
from data.facts.jobs import Job
from data.facts.quotas import Quota, QuotaKind


class QuotaRoom:
    """The resource quotas by source, namespace and resource."""

    def __init__(self, quotas: Sequence[Quota]) -> None:
        self.rows: list[Quota] = []
        self._of: dict[tuple[str, str, str], list[int]] = defaultdict(list)
        for quota in quotas:
            if quota.kind is QuotaKind.RESOURCE_QUOTA:
                source, _kind, namespace = quota.place
                self._of[source, namespace, quota.resource].append(len(self.rows))
                self.rows.append(quota)

    def over(self, job: Job, mig_profile: str) -> Sequence[int]:
        """Return the numbers of the rows that count the devices of a job on such a profile."""
        facts = job.scheduling.extra
        return self._of.get((job.source, job.namespace, resource_of(mig_profile, facts)), ())

    def beside(self, job: Job) -> tuple[float, str]:
        """Return the further devices that a job may have beside all in use, and the binding row.

        Infinite without a quota; of what is not known to be in use nothing is left.
        """
        least, why = math.inf, ""
        for quota in (self.rows[number] for number in self.over(job, job.mig_profile)):
            free = 0.0 if quota.used is None else max(0.0, quota.most - quota.used)
            if free < least:
                least, why = free, allowed_by(quota)
        return least, why


def allowed_by(quota: Quota) -> str:
    """Return the text of a resource quota's limit and use."""
    used = "how many are in use is unknown" if quota.used is None else f"{quota.used:g} are in use"
    return f"the resource quota {quota.queue} allows {quota.nominal:g} {quota.resource}, {used}"
