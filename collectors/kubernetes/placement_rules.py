"""Nodes that a pod allows itself, and pods that a disruption budget lets nobody end.

The nodes are those of its nodeSelector and required node affinity, as the scheduler reads them
(kubernetes.io/docs/concepts/scheduling-eviction). Taints are not read here.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from collectors.kubernetes.api import Document
from collectors.kubernetes.objects import gpu_resources, labels_of
from collectors.shared.json_parts import list_in, part, text_in
from data.facts.gpu_resources import PRODUCT_LABEL
from data.facts.identifiers import canonical_json
from data.records.feasible_changes import NO_NODE

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_MAX_NAMES = 200
"""Nodes that are named in the record of each job; a name takes some 40 characters."""
_Values = tuple[str, ...]


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


def rules_of(pod_spec: object) -> str:
    """Return the rules that bind a pod to some nodes as one JSON text, '' without any."""
    selector = part(pod_spec, "nodeSelector")
    terms = list_in(pod_spec, "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms")
    if not selector and not terms:
        return ""
    return canonical_json({"nodeSelector": selector or {}, "terms": terms})


def admits(rules: str, node: object) -> bool:
    """Return whether a pod of these rules may be on a node; an unknown operator matches none."""
    document = _read(rules)
    labels = part(node, "metadata", "labels")
    labels = labels if isinstance(labels, Mapping) else {}
    selector, terms = document.get("nodeSelector"), document.get("terms")
    if isinstance(selector, Mapping) and any(
        labels.get(name) != value for name, value in selector.items()
    ):
        return False
    fields = {"metadata.name": text_in(node, "metadata", "name")}
    return not terms or any(_holds(term, labels, fields) for term in terms)


class OpenNodes:
    """The nodes of a cluster by GPU model, and which of them rules of pods admit.

    Rules are judged once: there are few, and many pods and nodes.
    """

    def __init__(self, nodes: Mapping[str, Sequence[dict[str, Any]]]) -> None:
        self._by_model = nodes
        self._to_all: dict[tuple[str, str], bool] = {}
        self._closed: dict[str, tuple[str, ...]] = {}
        self._names: dict[str, tuple[str, ...] | None] = {}
        self._allowed: dict[str, frozenset[str]] = {}

    def to_all(self, rules: str, model: str) -> bool:
        """Return whether pods of these rules may be put on all nodes of a model."""
        if (rules, model) not in self._to_all:
            nodes = self._by_model.get(model, []) if rules else []
            self._to_all[rules, model] = all(admits(rules, node) for node in nodes)
        return self._to_all[rules, model]

    def fact(self, rules: Iterable[str]) -> tuple[str, str]:
        """Return the fact of the nodes on which alone pods of these rules may be put.

        '' where they may on all with GPUs; of more nodes than are named that there are such.
        """
        admitted = [self._nodes(entry) for entry in rules]
        nodes = set[str]().union(*(names for names in admitted if names is not None))
        if None in admitted or not admitted:
            return "required_nodes", ""
        if len(nodes) > _MAX_NAMES:
            return "bound_to", f"{len(nodes)} nodes"
        return "required_nodes", ",".join(sorted(nodes)) or NO_NODE

    def _nodes(self, rules: str) -> tuple[str, ...] | None:
        """Return the names of the nodes with GPUs that rules admit, None where they admit all."""
        if rules not in self._names:
            entries_of_all = (node for entries in self._by_model.values() for node in entries)
            nodes = [node for node in entries_of_all if gpu_resources(node)]
            admitted = [node for node in nodes if admits(rules, node)]
            names = tuple(text_in(node, "metadata", "name") for node in admitted)
            self._names[rules] = names if len(admitted) < len(nodes) else None
        return self._names[rules]

    def closed_models(self, rules: str) -> tuple[str, ...]:
        """Return the GPU models whose nodes are all closed to a pod, even if it asked for them.

        Asking for a model is its product label in the pod's nodeSelector; the other rules stay as
        they are.
        """
        if rules not in self._closed:
            document = _read(rules)
            self._closed[rules] = tuple(
                sorted(
                    model
                    for model, entries in self._by_model.items()
                    if rules
                    and model
                    and not any(admits(_asking_for(document, node), node) for node in entries)
                )
            )
        return self._closed[rules]

    def only_model(self, rules: Iterable[str]) -> str:
        """Return the one model that pods of these rules may be put on, '' where there are more.

        A pod without rules may be put on any. A node with GPUs of an unknown model may be of
        another.
        """
        models = set[str]().union(*map(self._models, rules))
        return models.pop() if len(models) == 1 else ""

    def _models(self, rules: str) -> frozenset[str]:
        if rules not in self._allowed:
            self._allowed[rules] = frozenset(
                model
                for model, entries in self._by_model.items()
                if any(admits(rules, node) for node in entries if model or gpu_resources(node))
            )
        return self._allowed[rules]


def _asking_for(document: Mapping[str, Any], node: object) -> str:
    """Return the rules of a pod that asks for the model of a node."""
    selector = dict(document.get("nodeSelector") or {})
    label = text_in(node, "metadata", "labels", PRODUCT_LABEL)
    return canonical_json({**document, "nodeSelector": {**selector, PRODUCT_LABEL: label}})


@lru_cache(maxsize=1024)
def _read(rules: str) -> dict[str, Any]:
    return dict(json.loads(rules)) if rules else {}


def _holds(term: object, labels: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    """Return whether all of a term holds; one that says nothing matches no node."""
    expressions = [
        *((entry, labels) for entry in list_in(term, "matchExpressions")),
        *((entry, fields) for entry in list_in(term, "matchFields")),
    ]
    return bool(expressions) and all(matches(entry, values) for entry, values in expressions)


def matches(entry: object, values: Mapping[str, Any]) -> bool:
    """Return whether values, such as labels, are what an expression of a selector asks for."""
    value = values.get(text_in(entry, "key"))
    test = _OPERATORS.get(text_in(entry, "operator"))
    return test is not None and test(value, tuple(map(str, list_in(entry, "values"))))


def _number(text: object) -> int | None:
    try:
        return int(str(text))
    except ValueError:
        return None


def _beyond(value: object, values: _Values, sign: int) -> bool:
    number, limit = _number(value), _number(values[0]) if values else None
    return number is not None and limit is not None and sign * number > sign * limit


_OPERATORS: Mapping[str, Callable[[Any, _Values], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _values: value is not None,
    "DoesNotExist": lambda value, _values: value is None,
    "Gt": lambda value, values: _beyond(value, values, 1),
    "Lt": lambda value, values: _beyond(value, values, -1),
}


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
