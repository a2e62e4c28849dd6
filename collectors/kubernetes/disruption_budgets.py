"""PodDisruptionBudgets: those that allow no pod to be disrupted now, and the floors they set."""

from collections.abc import Iterable, Iterator, Mapping

from collectors.kubernetes.api import Document
from collectors.kubernetes.objects import labels_of
from collectors.kubernetes.placement_rules import matches
from collectors.shared.json_parts import list_in, part, text_in


def floors_of(
    documents: Iterable[Document], workload: Document, pods: int
) -> Iterator[tuple[int, str]]:
    """Yield the least number of a workload's pods by each budget, with the name of the budget.

    Only a `minAvailable` that is a number is a floor: a share and `maxUnavailable` follow the
    number of pods. Pods of others under the same budget count, as far as its status tells.
    """
    namespace = text_in(workload, "metadata", "namespace")
    labels = labels_of(part(workload, "spec", "template") or {})
    for document in documents:
        least = part(document, "spec", "minAvailable")
        if type(least) is not int or text_in(document, "metadata", "namespace") != namespace:
            continue
        if _selects(part(document, "spec", "selector"), labels):
            expected = part(document, "status", "expectedPods")
            others = max(0, expected - pods) if type(expected) is int else 0
            if least > others:
                yield least - others, text_in(document, "metadata", "name")


class FullBudgets:
    """The budgets of which a controller says that they allow 0 disruptions."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self._by_namespace: dict[str, list[Document]] = {}
        self._documents = tuple(documents)
        for document in self._documents:
            allowed = part(document, "status", "disruptionsAllowed")
            if type(allowed) is int and allowed == 0:
                namespace = text_in(document, "metadata", "namespace")
                self._by_namespace.setdefault(namespace, []).append(document)

    def floor_facts(self, workload: Document, pods: int) -> Iterator[tuple[str, str]]:
        """Yield the highest floor of a workload's pods as facts of its job."""
        floors = sorted(floors_of(self._documents, workload, pods))
        for least, name in floors[-1:]:
            yield from (("pods_floor", str(least)), ("pods_floor_by", name))

    def over(self, pod: Document) -> str:
        """Return the name of a budget that a pod is under, '' where there is none."""
        labels = labels_of(pod)
        budgets = self._by_namespace.get(text_in(pod, "metadata", "namespace"), ())
        under = (entry for entry in budgets if _selects(part(entry, "spec", "selector"), labels))
        return next((text_in(entry, "metadata", "name") for entry in under), "")


def _selects(selector: object, labels: Mapping[str, str]) -> bool:
    """Return whether a selector selects labels: none at all no pod, an empty one all.

    So it is in policy/v1; before Kubernetes 1.21 an empty one selected none.
    """
    if not isinstance(selector, Mapping):
        return False
    match_labels = selector.get("matchLabels")
    pairs = match_labels.items() if isinstance(match_labels, Mapping) else ()
    same = all(labels.get(str(key)) == value for key, value in pairs)
    return same and all(matches(entry, labels) for entry in list_in(selector, "matchExpressions"))
