"""Search for the file of the repository that an object comes from."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from collectors.kubernetes.api import Document
from collectors.kubernetes.objects import labels_of
from dashboard.apply.git.manifests import NumberEdit, edited
from dashboard.apply.git.repository import GitCopy, GitFile
from dashboard.apply.git.values import (
    APPLICATIONS,
    KUSTOMIZATIONS,
    RELEASES,
    ValuePlace,
    edited_there,
    is_of_values,
    may_hold,
)
from dashboard.apply.kubernetes.state.object_paths import GROUP_OF, Place
from data.base.errors import ChangeRefusedError
from data.settings.apply import GitApplySettings

_ARGO_ID = "argocd.argoproj.io/tracking-id"
_FLUX = "kustomize.toolkit.fluxcd.io/"
_FLUX_RELEASE = "helm.toolkit.fluxcd.io/"
_HELM = "meta.helm.sh/release-"
_BY_HELM = ("helm.sh/chart", f"{_HELM}name", f"{_FLUX_RELEASE}name")
"""Labels and annotations of what comes from a chart, whoever rendered it."""
_SCALED = frozenset({"Deployment", "StatefulSet", "ReplicaSet"})
"""Kinds whose number a kustomization sets by its `replicas`."""
_MAX_READ = 4 * 1024 * 1024
"""Of all files of a folder that name the object: more would keep a page waiting for a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitSource:
    """Origin of an object: a file or folder, and the other places that may hold its numbers.

    With `keys` it is a part of values, and no manifest. `by_flux`: a file of values counts only
    where the path names it, as Flux takes none out of a folder by itself.
    """

    path: str
    keys: tuple[str, ...]
    others: tuple[ValuePlace, ...]
    by_flux: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestSource:
    """The file that says the numbers, its text before and after; `other`: not in a manifest."""

    file: GitFile
    text: str
    changed: str
    other: ValuePlace | None


def names_workload(settings: GitApplySettings, job_id: str) -> bool:
    """Return whether `apply_git.paths` has an entry of a job's id."""
    return any(fnmatchcase(job_id, entry.workload) for entry in settings.entries)


def source_of(settings: GitApplySettings, place: Place, document: Document) -> GitSource:
    """Return the origin of an object. Errors: ChangeRefusedError when no entry tells."""
    marks = labels_of(document)
    tracked = _tracked(place, marks)
    for entry in settings.entries:
        if fnmatchcase(place.job_id, entry.workload) or entry.workload in tracked:
            # A pattern may name a folder with the values of many releases.
            alone = not set("*?[") & set(entry.workload)
            others = tuple(_others(place, marks, tracked, entry.keys, alone=alone))
            by_flux = any(name.startswith("flux-helm:") for name in tracked)
            return GitSource(path=entry.path, keys=entry.keys, others=others, by_flux=by_flux)
    names = " or ".join([place.job_id, *tracked])
    raise ChangeRefusedError(
        f"no apply_git.paths entry matches {place.label}",
        f"Name its file or folder in apply_git.paths, by {names}.",
    )


def _tracked(place: Place, marks: Mapping[str, str]) -> list[str]:
    """Return the names under which Argo CD, Flux and Helm say that they keep an object.

    A copied annotation names another object: Argo CD itself goes by it only when it names this one.
    """
    names = []
    application, _, tracked = marks.get(_ARGO_ID, "").partition(":")
    if tracked == f"{GROUP_OF[place.kind]}/{place.kind}:{place.namespace}/{place.name}":
        names.append(f"argo-cd:{application}")
    for keeper, label, space in (
        ("flux", f"{_FLUX}name", f"{_FLUX}namespace"),
        ("flux-helm", f"{_FLUX_RELEASE}name", f"{_FLUX_RELEASE}namespace"),
        ("helm", f"{_HELM}name", f"{_HELM}namespace"),
    ):
        if marks.get(label) and marks.get(space):
            names.append(f"{keeper}:{marks[space]}/{marks[label]}")
    return names


def _others(
    place: Place,
    marks: Mapping[str, str],
    tracked: list[str],
    keys: tuple[str, ...],
    *,
    alone: bool,
) -> Iterator[ValuePlace]:
    """Yield the other places of an object's numbers, by its keeper and the settings."""
    by_helm = bool(keys) or marks.get("app.kubernetes.io/managed-by") == "Helm"
    by_helm = by_helm or any(name in marks for name in _BY_HELM)
    if place.kind in _SCALED and not keys:
        yield ValuePlace(kind=KUSTOMIZATIONS, name=place.name)
    for mark in tracked:
        keeper, _, name = mark.partition(":")
        if keeper == "flux-helm":
            namespace, _, name = name.partition("/")
            yield ValuePlace(kind=RELEASES, namespace=namespace, name=name, keys=keys)
        elif keeper == "argo-cd" and by_helm:
            yield ValuePlace(kind=APPLICATIONS, name=name, keys=keys)
    if by_helm and (alone or keys):
        yield ValuePlace(keys=keys)


def find_source(
    copy: GitCopy, source: GitSource, place: Place, edits: tuple[NumberEdit, ...]
) -> ManifestSource:
    """Return the one file that holds the fields of the edits.

    Errors: ApplyError; ChangeRefusedError where no file does, or several do.
    """
    path, matches, refused, read = source.path, [], [], 0
    files = copy.files(path)
    of_values = [file.path for file in files if is_of_values(file.path)]
    for file in files:
        text = copy.text(file)
        places = list(_places(source, place, file.path, text))
        if len(of_values) > 1 and file.path != path and ValuePlace(keys=source.keys) in places:
            # Of several files of values one overrules another, or belongs to another release.
            refused.append(f"{file.path}: one of {len(of_values)} files of values")
            places.remove(ValuePlace(keys=source.keys))
        if not places:
            continue
        read += len(text)
        if read > _MAX_READ:
            raise ChangeRefusedError(
                f"{path} names {place.name} in too many files",
                "Name the file itself in apply_git.paths.",
            )
        for other in places:
            try:
                changed = edited_at(text, place, edits, other)
            except ChangeRefusedError as error:
                refused.append(f"{file.path}: {error.message}")
                continue
            if changed is not None:
                matches.append(ManifestSource(file=file, text=text, changed=changed, other=other))
    if len(matches) == 1 and not refused:
        return matches[0]
    tried = [there.file.path for there in matches] + refused
    raise ChangeRefusedError(
        f"{place.word} is in no file of {path} that can be changed"
        if not tried
        else f"the manifest of {place.label} is ambiguous or not editable: {'; '.join(tried[:5])}",
        "Name its file (or PATH#KEY.KEY, a part of its Helm values) in apply_git.paths, or change "
        "it by hand.",
    )


def _places(source: GitSource, place: Place, path: str, text: str) -> Iterator[ValuePlace | None]:
    """Yield the places that a file may be: a manifest (None) or one of the others."""
    if place.name in text and not source.keys:
        yield None
    for other in source.others:
        is_path = not other.kind and path == source.path
        if is_path or (may_hold(other, path, text) and (other.kind or not source.by_flux)):
            yield other


def edited_at(
    text: str, place: Place, edits: Sequence[NumberEdit], other: ValuePlace | None
) -> str | None:
    """Return a text with the edits made in a manifest or in another place.

    None where it holds none of them. Errors: ChangeRefusedError.
    """
    if other is None:
        return edited(text, place, edits)
    return edited_there(text, place, edits, other)
