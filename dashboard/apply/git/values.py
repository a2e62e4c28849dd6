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
from dashboard.apply.kubernetes.places import Place
from data.errors import ChangeRefusedError
from data.records.identifiers import canonical_json

RELEASES, APPLICATIONS, KUSTOMIZATIONS = "HelmRelease", "Application", "Kustomization"
_GROUP_OF = {RELEASES: "helm.toolkit.fluxcd.io", APPLICATIONS: "argoproj.io"}
"""Group of the objects that hold values."""
_INSIDE = {
    RELEASES: (("spec", "values"),),
    APPLICATIONS: (
        ("spec", "source", "helm", "valuesObject"),
        ("spec", "sources", "helm", "valuesObject"),
    ),
}
"""Where they hold them; a list stands for each of its elements."""
_KUSTOMIZE = "kustomize.config.k8s.io"
_PODS: Parts = ("spec", "replicas")
_REPLICAS = ("replicas", "replicaCount")
_GPUS_OF_A_POD = "requestGPU"
"""What the charts of vLLM's production stack call the GPUs of a pod, limit and request in one."""
Trail = tuple[yaml.Node, ...]
"""A node, and before it those that it is in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherPlace:
    """Where the numbers are: in an object of a kind and name, or, without a kind, a file of values.

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
    def of(cls, text: str) -> "OtherPlace":
        """Return it from its text."""
        found: dict[str, Any] = json.loads(text)
        return cls(**found | {"keys": tuple(found["keys"])})


def may_hold(other: OtherPlace, path: str, text: str, *, named: bool) -> bool:
    """Tell whether a file may be the place; `named` when the settings name this very file."""
    if other.kind:
        return other.name in text and (other.kind in text or other.kind == KUSTOMIZATIONS)
    return named or path.rsplit("/", 1)[-1].startswith("values")


def edited_there(
    text: str, place: Place, edits: Sequence[NumberEdit], other: OtherPlace
) -> str | None:
    """Return the text with the edits made in another place, None where it holds none of them.

    Errors: ChangeRefusedError where it holds them in a way that cannot be changed safely.
    """
    manifest = ManifestText(text)
    found = []
    for trail in _roots(manifest, other):
        root = trail[-1]
        if other.kind == KUSTOMIZATIONS:
            at: Parts = ("replicas", NamedElement(field="name", value=place.name), "count")
            meant = [replace(edit, at=at) for edit in edits if edit.at == _PODS]
            meant = meant if len(meant) == len(edits) else []
        else:
            meant = _translated(manifest, root, edits)
        if meant and (spans := manifest.spans(root, meant, trail[:-1])):
            found.append(spans)
    if len(found) > 1:
        raise ChangeRefusedError(
            f"{place.label} may be in {len(found)} documents of one file",
            "Name another file in apply_git.paths, or change it by hand.",
        )
    return manifest.changed(found[0]) if found else None


def _roots(manifest: ManifestText, other: OtherPlace) -> Iterator[Trail]:
    """Yield what is a kustomization, or the values (or the named part of them) of each document."""
    for node in manifest.documents():
        kind, group = (manifest.word(node, name) for name in ("kind", "apiVersion"))
        if other.kind == KUSTOMIZATIONS:
            # Both may be left out.
            if (kind, group.partition("/")[0]) in ((KUSTOMIZATIONS, _KUSTOMIZE), ("", "")):
                yield (node,)
        elif not other.kind:
            if not (kind and group):
                yield from _below(manifest, (node,), other.keys)
        elif _is(manifest, node, other):
            for names in _INSIDE[other.kind]:
                yield from _below(manifest, (node,), (*names, *other.keys))


def _is(manifest: ManifestText, node: yaml.Node, other: OtherPlace) -> bool:
    """Whether a document is the object that holds the values."""
    about = manifest.child(node, "metadata")
    namespace = manifest.word(about, "namespace")
    return (
        manifest.word(node, "kind") == other.kind
        and manifest.word(node, "apiVersion").startswith(f"{_GROUP_OF[other.kind]}/")
        and manifest.word(about, "name") == other.name
        and (not other.namespace or namespace in ("", other.namespace))
    )


def _below(manifest: ManifestText, trail: Trail, names: Sequence[str]) -> Iterator[Trail]:
    """Yield what keys lead to, with the nodes passed: the elements of a list go by their name.

    A list whose elements have no name of their own (the sources of an Application) is passed
    through.
    """
    node = trail[-1]
    if not names:
        yield trail
    elif not isinstance(node, yaml.SequenceNode):
        below = manifest.below(node, names[0])
        if below is not None:
            yield from _below(manifest, (*trail, below), names[1:])
    else:
        for element in node.value:
            if manifest.word(element, "name") == names[0]:
                yield from _below(manifest, (*trail, element), names[1:])
            elif not manifest.word(element, "name"):
                yield from _below(manifest, (*trail, element), names)


def _translated(
    manifest: ManifestText, node: yaml.Node, edits: Sequence[NumberEdit]
) -> list[NumberEdit]:
    """Return the edits as edits of the values, none where one that is required has no key.

    Errors: ChangeRefusedError where several keys could be meant.
    """
    known = list(_keys(manifest, node, set()))
    found = []
    for edit in edits:
        ends = _ends(edit)
        meant = [at for at in known if any(at[-len(end) :] == end for end in ends)]
        if len(meant) > 1:
            words = ", ".join(replace(edit, at=at).words for at in meant[:5])
            raise ChangeRefusedError(
                f"{edit.words} may be any of {words}",
                "Name the part that is meant.",
            )
        if meant:
            found.append(replace(edit, at=meant[0]))
        elif edit.required:
            return []
    return found


def _ends(edit: NumberEdit) -> tuple[Parts, ...]:
    """Return what the key of an edit ends in, by the names that charts share."""
    if edit.at == _PODS:
        return tuple((name,) for name in _REPLICAS)
    above, below = edit.at[-3:-1], edit.at[-1]
    if above == ("resources", "limits"):
        return (("limits", below), (_GPUS_OF_A_POD,))
    return (("requests", below),) if above == ("resources", "requests") else ()


def _keys(
    manifest: ManifestText, node: yaml.Node, seen: set[int], above: Parts = ()
) -> Iterator[Parts]:
    """Yield the places of all scalars below a node; what has no name is passed over.

    What aliases stand for is looked at once: it is refused anyway, as it is shared.
    """
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        yield above
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield from _keys(manifest, value, seen, (*above, str(key.value)))
    else:
        for element in node.value:
            if name := manifest.word(element, "name"):
                part = NamedElement(field="name", value=name)
                yield from _keys(manifest, element, seen, (*above, part))
