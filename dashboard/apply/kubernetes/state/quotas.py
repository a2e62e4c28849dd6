"""Refusals of pods by a ResourceQuota or a LimitRange. Pure.

Counts pods and GPU resources; CPU and memory are not looked at. A refusal is sure. Quotas with
scopes and quantities that are not understood are doubts.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from collectors.shared.json_parts import list_in, part, text_in, whole_number
from dashboard.apply.kubernetes.state.free_capacity import asked_by
from dashboard.apply.kubernetes.state.json_patch import value_at
from dashboard.apply.kubernetes.state.pod_spec import Document, roles_of
from data.base.errors import scrub
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


def quota_use_of_pod(pod_spec: object) -> Counter[str]:
    """Return the use of a quota by one more pod."""
    return Counter({_PODS: 1}) + asked_by(pod_spec)


def refusal(quotas: Iterable[Document], more: Mapping[str, int]) -> str:
    """Return the reason of a quota to refuse so much more than is in use now, '' for none known."""
    return next((text for text, is_sure in _objections(quotas, more) if is_sure), "")


def doubts(quotas: Iterable[Document] | None, more: Mapping[str, int]) -> Iterator[str]:
    """Yield what is not known of quotas that may refuse so much more; None may not be listed."""
    if quotas is None and +Counter(more):
        yield "whether a quota admits more is unknown: quotas may not be listed"
    yield from (text for text, is_sure in _objections(quotas or (), more) if not is_sure)


def _objections(quotas: Iterable[Document], more: Mapping[str, int]) -> Iterator[tuple[str, bool]]:
    """Yield (reason, whether it is sure) of quotas that refuse or may refuse so much more."""
    for quota in quotas:
        title = f"the quota {text_in(quota, 'metadata', 'name')}"
        hard = part(quota, "status", "hard") or part(quota, "spec", "hard") or {}
        scoped = list_in(quota, "spec", "scopes") or part(quota, "spec", "scopeSelector")
        for key, limit in hard.items() if isinstance(hard, Mapping) else ():
            name = str(key).removeprefix("requests.").removeprefix("count/")
            # Of GPUs Kubernetes counts `requests.` alone: a bare name holds nobody back.
            extra = 0 if is_of_vendor(key) else more.get(name, 0)
            used, most = whole_number(part(quota, "status", "used", key)), whole_number(limit)
            beyond = most is None or (used or 0) + extra > most
            if extra <= 0 or not (beyond or used is None):
                continue
            if most is None or not beyond:
                wrong = limit if most is None else part(quota, "status", "used", key)
                why = f"{scrub(str(wrong), limit=40)!r} is not understood"
                yield f"whether {title} admits {extra} more {name} is unknown: {why}", False
            elif scoped:
                yield f"{title} may refuse {extra} more {name}: its scopes are not read", False
            else:
                count = "" if used is None else f", {used} are in use"
                text = f"{title} allows {most} {name}{count}: {extra} more would be refused"
                yield text, True


def limit_refusal(limit_ranges: Iterable[Document], pod_spec: object) -> str:
    """Return the reason of a LimitRange to refuse pods with these GPU limits, '' for none known."""
    return next((text for text, is_sure in _limits(limit_ranges, pod_spec) if is_sure), "")


def limit_doubts(limit_ranges: Iterable[Document] | None, pod_spec: object) -> Iterator[str]:
    """Yield what is not known of limit ranges over these GPU limits; None may not be listed."""
    if limit_ranges is None:
        yield "whether a limit range keeps new pods out is unknown: they may not be listed"
    yield from (text for text, is_sure in _limits(limit_ranges or (), pod_spec) if not is_sure)


def _limits(limit_ranges: Iterable[Document], pod_spec: object) -> Iterator[tuple[str, bool]]:
    """Yield (reason, whether it is sure) of limit ranges that keep or may keep pods out."""
    containers = [
        {name: value for name, value in limits.items() if is_of_vendor(name)}
        for section in ("containers", "initContainers")
        for entry in list_in(pod_spec, section)
        if isinstance(limits := part(entry, "resources", "limits"), Mapping)
    ]
    low, high = (asked_by(pod_spec, unread=unread) for unread in (0, 1))
    of_pod = {name: low[name] if low[name] == high[name] else "a sum" for name in high}
    requests: dict[str, list[Any]] = {
        "Container": containers,
        "Pod": [of_pod],
    }
    for limit_range in limit_ranges:
        title = f"the limit range {text_in(limit_range, 'metadata', 'name')}"
        for rule in list_in(limit_range, "spec", "limits"):
            per = text_in(rule, "type").lower()
            for counts in requests.get(text_in(rule, "type"), []):
                for name, value in counts.items():
                    for end, word, sign in (("min", "at least", 1), ("max", "at most", -1)):
                        written = part(rule, end, name)
                        bound, count = whole_number(written), whole_number(value)
                        if written is None:
                            continue
                        if bound is None or count is None:
                            wrong = scrub(str(written if bound is None else value), limit=40)
                            text = f"whether {title} admits a {per} with {name} is unknown"
                            yield f"{text}: {wrong!r} is not understood", False
                        elif sign * count < sign * bound:
                            text = f"{title} allows {word} {bound} {name} a {per}"
                            yield f"{text}, {count} are asked for: new pods would be refused", True
