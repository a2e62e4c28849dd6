"""Which file of the repository an object comes from."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from collectors.kubernetes.kinds import GROUPS
from collectors.kubernetes.objects import labels_of
from dashboard.apply.git.manifests import NumberEdit, edited
from dashboard.apply.git.repository import GitCopy, GitFile
from dashboard.apply.kubernetes.api import Document
from dashboard.apply.kubernetes.places import Place
from data.apply_settings import GitApplySettings
from data.errors import ChangeRefusedError

_ARGO_ID = "argocd.argoproj.io/tracking-id"
_FLUX = "kustomize.toolkit.fluxcd.io/"
_MAX_READ = 4 * 1024 * 1024
"""Of all files of a folder that name the object: more would keep a page waiting for a minute."""


def names_workload(settings: GitApplySettings, job_id: str) -> bool:
    """Tell whether `apply_git.paths` has an entry of a job's id."""
    return any(fnmatchcase(job_id, workload) for workload, _path in settings.path_of)


def path_for(settings: GitApplySettings, place: Place, document: Document) -> str:
    """Return the file or folder of an object. Errors: ChangeRefusedError when none is known."""
    job_id = f"{place.namespace}/{place.kind.lower()}/{place.name}"
    keys = list(_tracked(place, labels_of(document)))
    for workload, path in settings.path_of:
        if fnmatchcase(job_id, workload) or workload in keys:
            return path
    known = " or ".join([job_id, *keys])
    raise ChangeRefusedError(
        f"no apply_git.paths entry matches {place.label}",
        f"Name its file or folder in apply_git.paths, by {known}.",
    )


def _tracked(place: Place, marks: Mapping[str, str]) -> Iterator[str]:
    """Yield the names under which Argo CD and Flux say that they keep an object.

    A copied annotation names another object: Argo CD itself goes by it only when it names this one.
    """
    application, _, tracked = marks.get(_ARGO_ID, "").partition(":")
    group = GROUPS[place.kind]
    if tracked == f"{group}/{place.kind}:{place.namespace}/{place.name}":
        yield f"argo-cd:{application}"
    name, namespace = marks.get(f"{_FLUX}name"), marks.get(f"{_FLUX}namespace")
    if name and namespace:
        yield f"flux:{namespace}/{name}"


def find_manifest(
    copy: GitCopy, path: str, place: Place, edits: tuple[NumberEdit, ...]
) -> tuple[GitFile, str, str]:
    """Return (file, text, changed text) of the one file that holds the fields of the edits.

    Errors: ApplyError; ChangeRefusedError where no file does, or several do.
    """
    found, refused, read = [], [], 0
    for file in copy.files(path):
        text = copy.text(file)
        if place.name not in text:
            continue
        read += len(text)
        if read > _MAX_READ:
            raise ChangeRefusedError(
                f"{path} names {place.name} in too many files",
                "Name the file itself in apply_git.paths.",
            )
        try:
            changed = edited(text, place, edits)
        except ChangeRefusedError as error:
            refused.append(f"{file.path}: {error.message}")
            continue
        if changed is not None:
            found.append((file, text, changed))
    if len(found) == 1 and not refused:
        return found[0]
    places = [file.path for file, _text, _changed in found] + refused
    raise ChangeRefusedError(
        f"{place.word} is in no file of {path} that can be changed"
        if not places
        else f"the manifest of {place.label} is ambiguous or not editable: {'; '.join(places[:5])}",
        "Name its file in apply_git.paths, or change it by hand.",
    )
