"""Paths of objects: from a job's id to the API path, and their name for people."""

import re
from dataclasses import dataclass

from collectors.kubernetes.kinds import GROUPS, KINDS
from collectors.kubernetes.workloads import AUTOSCALER, KEDA_GROUP, SCALED_OBJECT
from data.base.errors import ChangeRefusedError

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_BY_WORD = {kind.lower(): kind for kind in KINDS}
_CORE_GROUPS = ("", "apps", "batch")
GROUP_OF = GROUPS | {SCALED_OBJECT: KEDA_GROUP}
"""The API group of each kind that may be a target."""
_PATHS = KINDS | {SCALED_OBJECT: (f"apis/{KEDA_GROUP}/v1alpha1/scaledobjects",)}
AUTOSCALERS = (AUTOSCALER, SCALED_OBJECT)
"""Kinds that hold the bounds between which a workload is scaled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A namespaced object, or a node (`namespace` '')."""

    kind: str
    namespace: str
    name: str

    @property
    def label(self) -> str:
        """The object with its namespace, as targets are called."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def word(self) -> str:
        """The object as kubectl takes it, such as deployment/serve."""
        group = GROUP_OF[self.kind]
        suffix = "" if group in _CORE_GROUPS else f".{group}"
        return f"{self.kind.lower()}{suffix}/{self.name}"

    @property
    def job_id(self) -> str:
        """The object as jobs are called, namespace/kind/name."""
        return f"{self.namespace}/{self.kind.lower()}/{self.name}"

    def paths(self) -> tuple[str, ...]:
        """Return the API paths under which servers of different age have it, the newest first."""
        paths = []
        for listed in _PATHS[self.kind]:
            above, _, plural = listed.rpartition("/")
            inside = f"/namespaces/{self.namespace}" if self.namespace else ""
            paths.append(f"{above}{inside}/{plural}/{self.name}")
        return tuple(paths)


def place_of(job_id: str) -> Place:
    """Return the place of `namespace/kind/name` or `namespace/pod`.

    Errors: ChangeRefusedError for names that Kubernetes does not allow, and kinds not known here.
    """
    names = job_id.split("/")
    if len(names) not in (2, 3) or not all(_NAME.fullmatch(name) for name in names):
        raise ChangeRefusedError(
            f"{job_id!r} is no namespace/kind/name and no namespace/pod",
            "Kubernetes names hold a-z, 0-9, '-' and '.'; change this job by hand.",
        )
    if len(names) == 2:
        return Place(kind="Pod", namespace=names[0], name=names[1])
    word, _, group = names[1].partition(".")
    kind = _BY_WORD.get(word)
    if kind is None or (group and group != GROUPS[kind]):
        raise ChangeRefusedError(
            f"{job_id!r} is a {names[1]}, a kind that no change is known for",
            "Change its manifest by hand.",
        )
    return Place(kind=kind, namespace=names[0], name=names[2])


def node_place(name: str) -> Place:
    """Return place of a node. Errors: ChangeRefusedError for a name Kubernetes does not allow."""
    if not _NAME.fullmatch(name):
        raise ChangeRefusedError(
            f"{name!r} is no name of a node", "Name the node in the recommendation's details."
        )
    return Place(kind="Node", namespace="", name=name)


def autoscaler_place(label: str, job_id: str) -> Place:
    """Return the place of the autoscaler of a job, as details name it. Errors: as `place_of`."""
    name, namespace = label.partition("/")[2], place_of(job_id).namespace
    places = [Place(kind=kind, namespace=namespace, name=name) for kind in AUTOSCALERS]
    matches = [place for place in places if place.word == label and _NAME.fullmatch(name)]
    if not matches:
        raise ChangeRefusedError(
            f"{label!r} is not an autoscaler whose bounds can be changed",
            f"It is a {' or a '.join(AUTOSCALERS)} with a name that Kubernetes allows.",
        )
    return matches[0]
