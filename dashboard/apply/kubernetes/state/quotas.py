"""Refusals of pods by a ResourceQuota or a LimitRange. Pure.

Counts pods and GPU resources. CPU, memory and quotas with scopes are not looked at: a quota that is
named refuses for sure, another one may.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from collectors.shared.json_parts import count_of, list_in, part, text_in, whole_number
from dashboard.apply.kubernetes.state.free_capacity import asked_by
from dashboard.apply.kubernetes.state.json_patch import value_at
from dashboard.apply.kubernetes.state.pod_spec import Document, roles_of
from data.facts.gpu_resources import is_of_vendor

_PODS = "pods"


def asked_in_all(kind: str, document: Document) -> Counter[str]:
    """Return the pods and GPU resources that the roles of a workload ask for together."""
    total: Counter[str] = Counter()
    for role in roles_of(kind, document):
        pods = role.count * role.pods_each
        total[_PODS] += pods
        for name, count in asked_by(value_at(document, role.template_at)).items():
            total[name] += count * pods
    return total


def one_pod(pod_spec: object) -> Counter[str]:
    """Return the use of a quota by one more pod."""
    return Counter({_PODS: 1}) + asked_by(pod_spec)


def refusal(quotas: Iterable[Document], more: Mapping[str, int]) -> str:
    """Return the reason of a quota to refuse so much more than is in use now, '' for none known."""
    for quota in quotas:
        if list_in(quota, "spec", "scopes") or part(quota, "spec", "scopeSelector"):
            continue
        hard = part(quota, "status", "hard") or part(quota, "spec", "hard") or {}
        for key, limit in hard.items() if isinstance(hard, Mapping) else ():
            name = str(key).removeprefix("requests.").removeprefix("count/")
            # Of GPUs Kubernetes counts `requests.` alone: a bare name holds nobody back.
            extra = 0 if is_of_vendor(key) else more.get(name, 0)
            used = count_of(part(quota, "status", "used", key) or 0)
            most = whole_number(limit)
            if extra > 0 and most is not None and used + extra > most:
                return (
                    f"the quota {text_in(quota, 'metadata', 'name')} allows {most} "
                    f"{name}, {used} are in use: {extra} more would be refused"
                )
    return ""


def limit_refusal(limit_ranges: Iterable[Document], pod_spec: object) -> str:
    """Return the reason of a LimitRange to refuse pods with these GPU limits, '' for none known."""
    containers = [
        Counter({name: count_of(value) for name, value in limits.items() if is_of_vendor(name)})
        for section in ("containers", "initContainers")
        for entry in list_in(pod_spec, section)
        if isinstance(limits := part(entry, "resources", "limits"), Mapping)
    ]
    requests = {"Container": containers, "Pod": [asked_by(pod_spec)]}
    for limit_range in limit_ranges:
        for rule in list_in(limit_range, "spec", "limits"):
            for counts in requests.get(text_in(rule, "type"), []):
                for name, count in counts.items():
                    low, high = (whole_number(part(rule, end, name)) for end in ("min", "max"))
                    if low is not None and count < low:
                        bound = f"at least {low}"
                    elif high is not None and count > high:
                        bound = f"at most {high}"
                    else:
                        continue
                    title = text_in(limit_range, "metadata", "name")
                    per = text_in(rule, "type").lower()
                    return (
                        f"the limit range {title} allows {bound} {name} a {per}, {count} are asked "
                        "for: new pods would be refused"
                    )
    return ""
