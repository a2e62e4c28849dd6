"""Edits that a kind of object refuses while it lives, and what its manifest would have to say.

Some fields are immutable, of some a change is ignored, and some would break the work: the answer is
then a difference of the manifest for who owns it.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence

import yaml

from collectors.kubernetes.kinds import excerpt
from collectors.kubernetes.own_work import ELASTIC
from collectors.kubernetes.pod_templates import rollout_refusal
from collectors.kubernetes.workload_state import is_suspended
from collectors.shared.json_parts import count_of, part
from dashboard.apply.kubernetes.state.json_patch import Edit, operations_of, patched, value_at
from dashboard.apply.kubernetes.state.object_paths import Place
from dashboard.apply.kubernetes.state.pod_spec import Document
from data.base.errors import ChangeRefusedError
from data.records.feasible_changes import release_of

SERVER_FACT = "server"
FEWER_FACT, NUMBER_FACT, STOP_FACT = "no fewer pods", "no other number of pods", "not stopped"
SHARES: Mapping[str, str] = {
    ELASTIC: ELASTIC,
    "fixed_work": FEWER_FACT,
    "own_shares": NUMBER_FACT,
    "deleted_when_stopped": STOP_FACT,
}
"""Facts of a target by those of a job: whether the pods of a workload are copies of each other."""

_RESIZES_SUSPENDED_JOBS = (1, 35)
_RESIZES_INDEXED_JOBS = (1, 27)
_ROLLING_KINDS = ("Deployment", "StatefulSet", "Job", "CronJob")


def refuse_with_difference(
    place: Place, document: Document, edits: Iterable[Edit], why: str
) -> ChangeRefusedError:
    """Return the refusal that carries the difference of the manifest."""
    return ChangeRefusedError(
        f"{place.word} in {place.namespace or 'the cluster'}: {why}",
        f"Change where its manifest is kept:\n{difference(place, document, edits)}",
    )


def difference(place: Place, document: Document, edits: Iterable[Edit]) -> str:
    """Return the edits as a difference of the manifest, of the fields that count GPUs alone.

    The rest of a manifest, where passwords may stand, is left out.
    """
    before = excerpt(document)
    after = patched(before, operations_of(edits))
    head = {"kind": place.kind, "metadata": {"name": place.name, "namespace": place.namespace}}
    old, new = (
        yaml.safe_dump(head | entry, sort_keys=False).splitlines(keepends=True)
        for entry in (before, after)
    )
    return "".join(difflib.unified_diff(old, new, f"{place.word} now", f"{place.word} proposed"))


def require_possible(
    place: Place, document: Document, edits: Sequence[Edit], facts: Mapping[str, str]
) -> None:
    """Refuse edits that lose work, or that the object cannot make. Errors: ChangeRefusedError."""
    if why := _loss(edits, facts):
        raise ChangeRefusedError(
            f"{place.word} in {place.namespace}: {why}",
            "Ask its owner: the annotation is theirs to set.",
        )
    if why := obstacle(place.kind, document, edits, facts):
        raise refuse_with_difference(place, document, edits, why)


def _loss(edits: Sequence[Edit], facts: Mapping[str, str]) -> str:
    """Return the work or data that another number of pods loses, '' where nothing says so."""
    if any(in_template(edit) or edit.what == "unschedulable" for edit in edits):
        return ""
    if _only_stops(edits):
        return facts.get(STOP_FACT, "")
    return facts.get(NUMBER_FACT, "") or (
        facts.get(FEWER_FACT, "") if any(map(is_fewer, edits)) else ""
    )


def obstacle(kind: str, document: Document, edits: Sequence[Edit], facts: Mapping[str, str]) -> str:
    """Return the obstacle to the edits while the object lives, '' when none is known."""
    if _only_stops(edits):
        return ""
    of_template = any(in_template(edit) for edit in edits)
    if of_template:
        return _of_template(kind, document, facts)
    if is_suspended(document):
        return ""
    if kind == "PyTorchJob":
        return _of_elastic_policy(document, edits)
    if kind == "MPIJob" and facts.get(ELASTIC) != "yes":
        return (
            "needs recreate: its launcher is started without --host-discovery-script or "
            "--min-np, and plain MPI cannot change its ranks"
        )
    if kind in ("RayJob", "TrainJob"):
        return f"needs recreate: a {kind} takes no other number of workers once it is made"
    indexed = kind == "Job" and any(edit.what == "completions" for edit in edits)
    if indexed and _before(facts, _RESIZES_INDEXED_JOBS):
        server = facts.get(SERVER_FACT) or "of unknown version"
        return (
            f"needs recreate: this server ({server}) changes no completions of an indexed Job "
            "(1.27 does)"
        )
    return ""


def in_template(edit: Edit) -> bool:
    """Return whether an edit is of a pod template, so that pods have to be made anew."""
    return "/containers/" in edit.at or "/initContainers/" in edit.at or "/nodeSelector" in edit.at


def _only_stops(edits: Sequence[Edit]) -> bool:
    return all(edit.what in ("suspend", "unschedulable") or edit.after == 0 for edit in edits)


def is_fewer(edit: Edit) -> bool:
    """Return whether an edit lowers a number of pods or of groups of them."""
    before = 1 if edit.before is None else count_of(edit.before)
    return edit.at.endswith(("/replicas", "/parallelism")) and count_of(edit.after) < before


def _of_template(kind: str, document: Document, facts: Mapping[str, str]) -> str:
    if kind not in _ROLLING_KINDS:
        return f"needs recreate: a {kind} makes no pods anew for another template"
    if kind == "Job" and _before(facts, _RESIZES_SUSPENDED_JOBS):
        return (
            "needs recreate: this server "
            f"({facts.get(SERVER_FACT) or 'of unknown version'}) changes no pod template of a Job, "
            "suspended or not (1.36 does, 1.35 with MutablePodResourcesForSuspendedJobs)"
        )
    return rollout_refusal(document)


def _of_elastic_policy(document: Document, edits: Sequence[Edit]) -> str:
    policy = value_at(document, "/spec/elasticPolicy")
    workers = next(edit.after for edit in edits if edit.at.endswith("/replicas"))
    if policy is None:
        return "needs recreate: without elasticPolicy another number of workers breaks WORLD_SIZE"
    low, high = part(policy, "minReplicas"), part(policy, "maxReplicas")
    if (isinstance(low, int) and workers < low) or (isinstance(high, int) and workers > high):
        return f"its elasticPolicy allows {low} to {high} workers, not {workers}"
    return ""


def _before(facts: Mapping[str, str], version: tuple[int, int]) -> bool:
    """Return whether the server is older than a version, or does not tell its own."""
    return release_of(facts.get(SERVER_FACT, "")) < version


def is_resized_suspended(kind: str, facts: Mapping[str, str]) -> bool:
    """Return whether the server lets the pods of a Job ask for other GPUs while it is suspended."""
    return kind == "Job" and not _before(facts, _RESIZES_SUSPENDED_JOBS)
