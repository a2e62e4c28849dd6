"""The bounds of an autoscaler: which field holds one, and what stands against moving it.

A HorizontalPodAutoscaler holds its own. Where KEDA makes it of a ScaledObject, that one holds them:
KEDA sets the autoscaler to at least 1 (`minReplicaCount`, 0 unless told) and to at most 100 unless
told (`maxReplicaCount`), as its getHPAMinReplicas and getHPAMaxReplicas do, and takes no
`idleReplicaCount` that is not below the minimum.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from collectors.kubernetes.api import Document, KubernetesApi
from collectors.kubernetes.kinds import GROUPS
from collectors.kubernetes.objects import labels_of
from collectors.kubernetes.workloads import AUTOSCALER, SCALED_OBJECT, holder_of
from collectors.shared.json_parts import list_in, text_in, time_in
from dashboard.apply.kubernetes.state import reading
from dashboard.apply.kubernetes.state.field_owners import owners_of
from dashboard.apply.kubernetes.state.json_patch import Edit, operations_of, patched, value_at
from dashboard.apply.kubernetes.state.object_paths import AUTOSCALERS, Place, place_of
from dashboard.common.kubernetes_writer import FIELD_MANAGER
from data.base.errors import ChangeRefusedError, StalePlanError
from data.records.changes import VerificationResult as Verdict
from data.records.recommendations import Recommendation

SCALES_FACT = "scales"
"""The workload that an autoscaler scales, as a job id."""
_COUNTS = {"minReplicas": "minReplicaCount", "maxReplicas": "maxReplicaCount"}
_UNSET = {"minReplicas": 1, "maxReplicas": 100}
_IDLE = "idleReplicaCount"
_PAUSED = "autoscaling.keda.sh/paused"
_NEW_CYCLE_HINT = "Run a new cycle and approve its recommendation."


def _at(kind: str, bound: str) -> str:
    return f"/spec/{_COUNTS[bound] if kind == SCALED_OBJECT else bound}"


def _bound(kind: str, document: Mapping[str, Any], bound: str) -> int:
    """Return a bound as the autoscaler has it, or is given it by KEDA."""
    value = value_at(document, _at(kind, bound))
    if not isinstance(value, int):
        return _UNSET[bound]
    return max(1, value) if (kind, bound) == (SCALED_OBJECT, "minReplicas") else value


def bounds_as_planned(recommendation: Recommendation, kind: str) -> dict[str, Any]:
    """Return the excerpt of an autoscaler as the plan saw it."""
    now = _numbers(recommendation)[0]
    return {"spec": {_at(kind, recommendation.action.spec.bound).rpartition("/")[2]: now}}


def bound_edit(recommendation: Recommendation, kind: str, document: Mapping[str, Any]) -> Edit:
    """Return the edit of the bound. Errors: StalePlanError where it is not as the plan saw it."""
    bound, (planned, target) = recommendation.action.spec.bound, _numbers(recommendation)
    at, now = _at(kind, bound), _bound(kind, document, bound)
    if now != planned:
        raise StalePlanError(
            f"{bound} of {dict(recommendation.details)['autoscaler']} is {now}, the plan saw "
            f"{planned}",
            _NEW_CYCLE_HINT,
        )
    return Edit(at=at, before=value_at(document, at), after=target, what=at.rpartition("/")[2])


def _numbers(recommendation: Recommendation) -> tuple[int, int]:
    """Return the bound as the plan saw it, and as it is proposed. Errors: ChangeRefusedError."""
    details = dict(recommendation.details)
    numbers = [details.get(name, "") for name in ("bound_now", "bound_proposed")]
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        raise ChangeRefusedError(f"the bounds {numbers} are no whole numbers", _NEW_CYCLE_HINT)
    return int(numbers[0]), int(numbers[1])


def scaled_by(
    api: KubernetesApi,
    recommendation: Recommendation,
    place: Place,
    document: Document,
    edits: Iterable[Edit],
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the fact of what is scaled, and who owns that workload.

    Errors: StalePlanError where the autoscaler scales another one; ChangeRefusedError where it is
    not the only one, is paused, or would get bounds that exclude each other.
    """
    workload = reading.topmost(api, place_of(recommendation.job_id))
    _path, owner = reading.fetch(api, workload)
    reading.require_living(workload, owner)
    scales = f"{workload.namespace}/{workload.word}"
    require_scaling(place, document, scales)
    others = [
        text_in(scaler, "metadata", "name")
        for scaler in reading.autoscalers(api, place.namespace)
        if _is_of(AUTOSCALER, scaler, workload) and holder_of(scaler) != place.word
    ]
    if others:
        raise ChangeRefusedError(
            f"{scales} is scaled by {place.word} and by {', '.join(sorted(others))}: which of them "
            "decides cannot be told",
            "Leave it one autoscaler, and run a new cycle.",
        )
    marks = labels_of(document)
    words = (_PAUSED, f"{_PAUSED}-replicas")
    paused = [word for word in words if marks.get(word, "false") != "false"]
    if place.kind == SCALED_OBJECT and paused:
        raise ChangeRefusedError(
            f"{place.word} is paused ({paused[0]}: {marks[paused[0]]})",
            "Its bounds have no effect while it is; remove the annotation first.",
        )
    _require_order(place, patched(document, operations_of(edits)))
    above = tuple(name for name in owners_of(workload, owner, ()) if name != "Kueue")
    return {SCALES_FACT: scales}, above


def _require_order(place: Place, target: Document) -> None:
    low, high = (_bound(place.kind, target, bound) for bound in _COUNTS)
    low_edge, idle = (value_at(target, f"/spec/{name}") for name in ("minReplicaCount", _IDLE))
    if low > high:
        raise ChangeRefusedError(
            f"{place.word} would get a minimum of {low}, above its maximum of {high}",
            _NEW_CYCLE_HINT,
        )
    if isinstance(idle, int) and idle >= (0 if low_edge is None else low):
        raise ChangeRefusedError(
            f"{place.word} would get a minimum of {low}, not above its {_IDLE} of {idle}",
            f"KEDA refuses that: lower {_IDLE} first.",
        )


def require_scaling(place: Place, document: Document, scales: str) -> None:
    """Refuse (StalePlanError) an autoscaler that scales another workload than it did."""
    if not _is_of(place.kind, document, place_of(scales)):
        target = value_at(document, "/spec/scaleTargetRef")
        kind, name = text_in(target, "kind") or "Deployment", text_in(target, "name")
        group = text_in(target, "apiVersion").rpartition("/")[0] or "its own group"
        raise StalePlanError(
            f"{place.word} in {place.namespace} scales {kind} {name} of {group}, not {scales}",
            _NEW_CYCLE_HINT,
        )


def _is_of(kind: str, document: Document, workload: Place) -> bool:
    """Tell whether an autoscaler scales a workload; a ScaledObject's default is a Deployment."""
    target = value_at(document, "/spec/scaleTargetRef")
    default = "Deployment" if kind == SCALED_OBJECT else ""
    group = text_in(target, "apiVersion").rpartition("/")[0]
    reference = (text_in(target, "kind") or default, text_in(target, "name"))
    return reference == (workload.kind, workload.name) and group in ("", GROUPS[workload.kind])


def effect(
    api: KubernetesApi, place: Place, document: Document, *, late_before: datetime | None
) -> tuple[Verdict, str]:
    """Return whether bounds that are stored hold: of KEDA, whether its autoscaler has them too.

    A bound that was set at `late_before` or earlier is overdue; None: the time is not known.
    """
    if place.kind == AUTOSCALER:
        return Verdict.AS_INTENDED, "the bound is set; within its bounds the autoscaler decides"
    scalers = reading.autoscalers(api, place.namespace)
    matching = [scaler for scaler in scalers if holder_of(scaler) == place.word]
    bounds = {bound: _bound(place.kind, document, bound) for bound in _COUNTS}
    waits = [
        f"{bound} of {text_in(scaler, 'metadata', 'name')} is {now}, not {bounds[bound]}"
        for scaler in matching
        for bound in _COUNTS
        if (now := _bound(AUTOSCALER, scaler, bound)) != bounds[bound]
    ]
    if matching and not waits:
        return Verdict.AS_INTENDED, "the bound is set, and the autoscaler that KEDA makes has it"
    waits += [
        text_in(condition, "message")
        for condition in list_in(document, "status", "conditions")
        if (text_in(condition, "type"), text_in(condition, "status")) == ("Ready", "False")
    ]
    text = "; ".join(waits) or "it has made no autoscaler"
    set_at = [
        time_in(entry, "time")
        for entry in list_in(document, "metadata", "managedFields")
        if text_in(entry, "manager") == FIELD_MANAGER
    ]
    late = late_before and any(at is not None and at <= late_before for at in set_at)
    verdict = Verdict.FAILING if late else Verdict.NOT_YET
    return verdict, f"the bound is set, and waits for KEDA: {text}"


def notes(kind: str, edits: Iterable[Edit]) -> Iterator[str]:
    """Yield the effects of another bound of an autoscaler, and what it leaves to others."""
    for entry in edits if kind in AUTOSCALERS else ():
        bound = next(name for name in _COUNTS if entry.what in (name, _COUNTS[name]))
        before, after = (_UNSET[bound] if value is None else value for value in
                         (entry.before, entry.after))  # fmt: skip
        if (after < before) == (bound == "minReplicas"):
            yield (
                "It sets a bound, and no number of replicas: the autoscaler goes beyond the old "
                "one only when its own metric asks."
            )
        else:
            yield "The autoscaler moves to within its bounds at once, whatever its metric says."
        if kind == SCALED_OBJECT:
            yield "KEDA writes the bound into the autoscaler that it makes: until then it waits."
