"""PodDisruptionBudgets that allow no pod of theirs to be disrupted now."""

from collections.abc import Iterable, Mapping

from collectors.kubernetes.api import Document
from collectors.kubernetes.objects import labels_of, list_in, part, text_in
from collectors.kubernetes.placement_rules import matches


class FullBudgets:
    """The budgets of which a controller says that they allow 0 disruptions."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self._by_namespace: dict[str, list[Document]] = {}
        for document in documents:
            allowed = part(document, "status", "disruptionsAllowed")
            if type(allowed) is int and allowed == 0:
                namespace = text_in(document, "metadata", "namespace")
                self._by_namespace.setdefault(namespace, []).append(document)

    def over(self, pod: Document) -> str:
        """Return the name of a budget that a pod is under, '' where there is none."""
        labels = labels_of(pod)
        known = self._by_namespace.get(text_in(pod, "metadata", "namespace"), ())
        under = (entry for entry in known if _selects(part(entry, "spec", "selector"), labels))
        return next((text_in(entry, "metadata", "name") for entry in under), "")


def _selects(selector: object, labels: Mapping[str, str]) -> bool:
    """Return whether a selector selects labels: none at all no pod, an empty one all.

    So it is in policy/v1; before Kubernetes 1.21 an empty one selected none.
    """
    if not isinstance(selector, Mapping):
        return False
    named = selector.get("matchLabels")
    asked = named.items() if isinstance(named, Mapping) else ()
    same = all(labels.get(str(key)) == value for key, value in asked)
    return same and all(matches(entry, labels) for entry in list_in(selector, "matchExpressions"))
