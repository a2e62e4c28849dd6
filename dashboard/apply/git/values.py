"""Finds the numbers of a workload where its manifest does not say them.

That is in the values of a Helm release (a file, or inside Flux's HelmRelease or Argo CD's
Application), or in the `replicas` of a kustomization. What a chart does with its values is its own
business; only the names that charts share are known here. A key counts when it is the one of its
kind in the values (or in the part that the settings name) and holds what the cluster has, so that
a wrong guess would have to agree with it. Where several could be meant nothing is guessed.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import yaml

from dashboard.apply.git.manifests import ManifestText, NamedElement, NumberEdit, Parts
from dashboard.apply.kubernetes.state.object_paths import Place
from data.base.errors import ChangeRefusedError
from data.facts.identifiers import canonical_json

RELEASES, APPLICATIONS, KUSTOMIZATIONS = "HelmRelease", "Application", "Kustomization"
_GROUP_OF = {RELEASES: "helm.toolkit.fluxcd.io", APPLICATIONS: "argoproj.io"}
"""Group of the objects that hold values."""
_WILDCARD = "*"
_INSIDE = {
    RELEASES: (("spec", "values"),),
    APPLICATIONS: (
        ("spec", "source", "helm", "valuesObject"),
        ("spec", "sources", _WILDCARD, "helm", "valuesObject"),
    ),
}
"""Paths of their values; _WILDCARD stands for each element of a list."""
_KUSTOMIZE = "kustomize.config.k8s.io"
_PODS: Parts = ("spec", "replicas")
_KUSTOMIZATION_FILES = ("kustomization.yaml", "kustomization.yml")
_REPLICAS = ("replicas", "replicaCount")
_BOUNDS = (("minReplicas", "minReplicaCount"), ("maxReplicas", "maxReplicaCount"))
"""What charts call the bounds of an autoscaler, whichever of HPA and KEDA they make."""
_NO_NAME = "[]"
"""Part of a place in a list whose element has no name: it counts, and is never changed."""
_GPUS_OF_A_POD = "requestGPU"
"""What the charts of vLLM's production stack call the GPUs of a pod, limit and request in one."""
Trail = tuple[yaml.Node, ...]
"""A node, and before it those that it is in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuePlace:
    """Place of the numbers: an object of a kind and name, or, without a kind, a file of values.

    `keys` is the part of the values that the settings name.
    """

    kind: str = ""
    namespace: str = ""
    name: str = ""
    keys: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """It as text, for the facts of a change."""
        return canonical_json(asdict(self))

    @classmethod
    def of(cls, text: str) -> "ValuePlace":
        """Return it from its text."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields | {"keys": tuple(fields["keys"])})


def may_hold(other: ValuePlace, path: str, text: str) -> bool:
    """Return whether a file may be the place, by its name or what it holds."""
    if other.kind == KUSTOMIZATIONS:
        return path.rsplit("/", 1)[-1] in _KUSTOMIZATION_FILES and other.name in text
    return other.name in text and other.kind in text if other.kind else is_of_values(path)


def is_of_values(path: str) -> bool:
    """Return whether a file is called as files of values are."""
    name = path.rsplit("/", 1)[-1]
    return name.startswith("values") and ".schema." not in name


def edited_there(
    text: str, place: Place, edits: Sequence[NumberEdit], other: ValuePlace
) -> str | None:
    """Return the text with the edits made in another place, None where it holds none of them.

    Errors: ChangeRefusedError where it holds them in a way that cannot be changed safely.
    """
    manifest = ManifestText(text)
    matches = []
    for trail in _roots(manifest, other, place):
        root = trail[-1]
        if other.kind == KUSTOMIZATIONS:
            at: Parts = ("replicas", NamedElement(field="name", value=place.name), "count")
            moved = [replace(edit, at=at) for edit in edits if edit.at == _PODS]
            moved = moved if len(moved) == len(edits) else []
        else:
            moved = _translated(manifest, root, edits)
        if moved and (spans := manifest.spans(root, moved, trail[:-1])):
            matches.append(spans)
    if len(matches) > 1:
        raise ChangeRefusedError(
            f"{place.label} may be in {len(matches)} documents of one file",
            "Name another file in apply_git.paths, or change it by hand.",
        )
    return manifest.changed(matches[0]) if matches else None


def _roots(manifest: ManifestText, other: ValuePlace, place: Place) -> Iterator[Trail]:
    """Yield the kustomizations, or the values (or their named part) of each document."""
    for node in manifest.documents():
        kind, group = (manifest.word(node, name) for name in ("kind", "apiVersion"))
        if other.kind == KUSTOMIZATIONS:
            if _layers_on(manifest, node, place):
                yield (node,)
        elif not other.kind:
            if not (kind and group):
                yield from _below(manifest, (node,), other.keys)
        elif _is(manifest, node, other, place):
            for names in _INSIDE[other.kind]:
                yield from _below(manifest, (node,), (*names, *other.keys))


def _layers_on(manifest: ManifestText, node: yaml.Node, place: Place) -> bool:
    """Tell whether a document is a kustomization of objects with the name of the one at a place."""
    kind, group = manifest.word(node, "kind"), manifest.word(node, "apiVersion").partition("/")[0]
    # Both may be left out.
    same_kind = (kind, group) in ((KUSTOMIZATIONS, _KUSTOMIZE), ("", ""))
    renamed = any(manifest.word(node, name) for name in ("namePrefix", "nameSuffix"))
    return same_kind and not renamed and manifest.word(node, "namespace") in ("", place.namespace)


def _is(manifest: ManifestText, node: yaml.Node, other: ValuePlace, place: Place) -> bool:
    """Return whether a document is the object that holds the values."""
    about = manifest.child(node, "metadata")
    namespace = manifest.word(about, "namespace")
    target = manifest.child(manifest.child(node, "spec"), "destination")
    return (
        manifest.word(node, "kind") == other.kind
        and manifest.word(node, "apiVersion").startswith(f"{_GROUP_OF[other.kind]}/")
        and manifest.word(about, "name") == other.name
        and (not other.namespace or namespace in ("", other.namespace))
        # Of an Application alone: where it puts its objects.
        and manifest.word(target, "namespace") in ("", place.namespace)
    )


def _below(manifest: ManifestText, trail: Trail, names: Sequence[str]) -> Iterator[Trail]:
    """Yield the nodes that keys lead to, with those passed: elements of a list go by their name."""
    node = trail[-1]
    if not names:
        yield trail
    elif names[0] == _WILDCARD:
        for element in node.value if isinstance(node, yaml.SequenceNode) else ():
            yield from _below(manifest, (*trail, element), names[1:])
    else:
        part: str | NamedElement = names[0]
        if isinstance(node, yaml.SequenceNode):
            part = NamedElement(field="name", value=names[0])
        below = manifest.below(node, part)
        if below is not None:
            yield from _below(manifest, (*trail, below), names[1:])


def _translated(
    manifest: ManifestText, node: yaml.Node, edits: Sequence[NumberEdit]
) -> list[NumberEdit]:
    """Return the edits as edits of the values, none where one that is required has no key.

    Requests are those beside the limits. Errors: ChangeRefusedError where several keys could be
    meant, and where two edits mean one key.
    """
    keys = [at for at, usable in _keys(manifest, node) if usable]
    by_key: dict[Parts, NumberEdit] = {}
    requests: list[NumberEdit] = []
    for edit in edits:
        if edit.at[-3:-1] == ("resources", "requests"):
            requests.append(edit)
            continue
        at = _key_of(edit, keys)
        if at is None:
            return []
        if at in by_key:
            raise ChangeRefusedError(
                f"{edit.words} and {by_key[at].words} would both be {replace(edit, at=at).words}",
                "Name the part that is meant.",
            )
        by_key[at] = edit
    translated = [replace(edit, at=at) for at, edit in by_key.items()]
    for edit in requests:
        limits = (*edit.at[:-2], "limits", edit.at[-1])
        others = {(*at[:-2], "requests", at[-1]) for at, by in by_key.items() if by.at == limits}
        there = others & set(keys)
        if edit.required and not there:
            return []
        translated += [replace(edit, at=at) for at in there if at[-2:] == edit.at[-2:]]
    return translated


def _key_of(edit: NumberEdit, keys: Sequence[Parts]) -> Parts | None:
    """Return the key of an edit, None without one. Errors: ChangeRefusedError for several."""
    above, last = edit.at[:-1], edit.at[-1]
    bounds = next((names for names in _BOUNDS if above == ("spec",) and last in names), ())
    ends_with = _REPLICAS if edit.at == _PODS else bounds
    if ends_with:
        matches = [at for at in keys if at[-1] in ends_with]
    else:
        ends = ("limits", edit.at[-1])
        matches = [
            at
            for at in keys
            if at[-1] == _GPUS_OF_A_POD
            or (at[-2:] == ends and (len(at) == len(ends) or at[-3] == "resources"))
        ]
    if len(matches) > 1:
        words = ", ".join(replace(edit, at=at).words for at in matches[:5])
        raise ChangeRefusedError(
            f"{edit.words} may be any of {words}", "Name the part that is meant."
        )
    return matches[0] if matches else None


def _keys(manifest: ManifestText, root: yaml.Node) -> Iterator[tuple[Parts, bool]]:
    """Yield the places of all scalars below a node, and whether what is there is in use.

    Not in use is what is switched off, and init containers. What aliases stand for is looked at
    once: it is refused anyway, as it is shared. Without recursion: aliases may go deep.
    """
    visited: set[int] = set()
    ahead: list[tuple[yaml.Node, Parts, bool]] = [(root, (), True)]
    while ahead:
        node, at, usable = ahead.pop()
        if id(node) in visited:
            continue
        visited.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            yield at, usable
        elif isinstance(node, yaml.MappingNode):
            usable = usable and manifest.word(node, "enabled").lower() != "false"
            for key, value in reversed(node.value):
                if isinstance(key, yaml.ScalarNode):
                    name = str(key.value)
                    ahead.append((value, (*at, name), usable and not name.startswith("init")))
        else:
            for element in reversed(node.value):
                name = "" if id(element) in visited else manifest.word(element, "name")
                part = NamedElement(field="name", value=name) if name else _NO_NAME
                ahead.append((element, (*at, part), usable))
