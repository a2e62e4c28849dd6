"""Reads a change back: whether its values are stored, and how the work takes them."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from collectors.kubernetes.api import ApiAnswer, Document, KubernetesApi
from collectors.kubernetes.pod_templates import rollout_refusal
from dashboard.apply.kubernetes.change import autoscaler_bounds, node_layouts
from dashboard.apply.kubernetes.change.make_steps import field_values
from dashboard.apply.kubernetes.change.observe import ObservedTarget, observation_of, pods_on
from dashboard.apply.kubernetes.state import reading
from dashboard.apply.kubernetes.state.api_errors import meaning_of
from dashboard.apply.kubernetes.state.json_patch import as_text, value_at
from dashboard.apply.kubernetes.state.object_paths import AUTOSCALERS
from dashboard.apply.kubernetes.state.rollout import (
    ends,
    missing_events,
    rewritten,
    trouble,
    waiting_for,
)
from data.base.errors import ApplyError
from data.records.changes import Change, ReadBack
from data.records.changes import VerificationResult as Verdict


def read_back(
    api: KubernetesApi, change: Change, *, done: int, rollout_timeout: timedelta
) -> ReadBack:
    """Look once. Never raises."""
    view = observation_of(change.target)
    try:
        answer = reading.asking(api, view.path)
        if answer.status in (404, 410):
            return ReadBack(seen=Verdict.GONE, detail=f"{change.target.name} is gone")
        if not (answer.ok and reading.is_object(answer.found)):
            return ReadBack(
                seen=Verdict.UNREADABLE, detail=meaning_of(answer, view.path, verb="get")
            )
        return _judged(api, change, view, answer, done, rollout_timeout)
    except ApplyError as error:
        return ReadBack(seen=Verdict.UNREADABLE, detail=str(error))


def _judged(
    api: KubernetesApi,
    change: Change,
    view: ObservedTarget,
    answer: ApiAnswer,
    done: int,
    rollout_timeout: timedelta,
) -> ReadBack:
    document = answer.found
    if value_at(document, "/metadata/uid") != change.target.identity:
        detail = f"{change.target.name} is another object of the same name"
        return ReadBack(seen=Verdict.GONE, detail=detail)
    values = field_values(change)
    observed = tuple((at, as_text(value_at(document, at))) for at in values)
    at_step = _reached(values, observed, len(change.steps), done)
    if at_step is None:
        differs = "; ".join(
            f"{at} is {now}, not {as_text(values[at][done])}"
            for at, now in observed
            if now != as_text(values[at][done])
        )
        return ReadBack(seen=Verdict.DIFFERENT, detail=differs, observed=observed)
    if at_step < done:
        detail = f"it is as after {at_step} of {len(change.steps)} steps"
        # A node that stays cordoned after a cut was taken back is not as it was.
        half = at_step > 0 and node_layouts.CUT_FACT in view.facts
        verdict = Verdict.DIFFERENT if half else Verdict.UNTOUCHED
        return ReadBack(seen=verdict, detail=detail, observed=observed)
    if node_layouts.CUT_FACT in view.facts:
        over = done == len(change.steps)
        verdict, detail = node_layouts.effect(view.facts, document, over=over)
    else:
        anew = any("template/" in at.lower() for at in values)
        verdict, detail = _effect(api, view, document, answer, rollout_timeout, anew=anew)
    return ReadBack(seen=verdict, detail=detail, observed=observed)


def _reached(
    values: Mapping[str, Sequence[Any]],
    observed: Sequence[tuple[str, str]],
    steps: int,
    done: int,
) -> int | None:
    """Return after which step all fields were as they are now: `done` first, then the latest."""
    for step in (done, *range(steps, -1, -1)):
        if all(as_text(values[at][step]) == now for at, now in observed):
            return int(step)
    return None


def _effect(
    api: KubernetesApi,
    view: ObservedTarget,
    document: Document,
    answer: ApiAnswer,
    rollout_timeout: timedelta,
    *,
    anew: bool,
) -> tuple[Verdict, str]:
    """Return what the change did so far; `anew`: it makes pods anew, beyond a change of number."""
    kind = view.place.kind
    if kind == "Node":
        if not value_at(document, "/spec/unschedulable"):
            return Verdict.AS_INTENDED, "it takes pods"
        there = pods_on(api, view.place.name)
        still = f"; power it down once these have left it: {there}" if there else ""
        return Verdict.AS_INTENDED, f"no further pod is put on it{still}"
    if kind in AUTOSCALERS:
        return autoscaler_bounds.effect(
            api, view.place, document, late_before=answer.at and answer.at - rollout_timeout
        )
    if kind == "CronJob":
        return Verdict.AS_INTENDED, "its next run takes it; a run under way keeps what it has"
    work = reading.work_of(api, view.place, document)
    if work is None:
        return Verdict.NOT_YET, "the value is set; its pods cannot be told or may not be listed"
    suffers = trouble(work, now=answer.at, rollout_timeout=rollout_timeout)
    if suffers:
        return Verdict.FAILING, suffers
    to_do = missing_events(kind, document, work.pods)
    if to_do:
        if anew and (stays := rollout_refusal(document)):
            return Verdict.FAILING, f"the value is set, but {to_do}: {stays}"
        waits = waiting_for(work)
        return Verdict.NOT_YET, f"{to_do}; {waits}" if waits else to_do
    changed = rewritten(work) if kind in ("Deployment", "StatefulSet", "Job") else None
    if changed:
        pod, expected, actual = changed
        return Verdict.DIFFERENT, f"pod {pod} asks for {actual}, its template for {expected}"
    leaving = sum(1 for pod in work.pods if ends(pod))
    still = f"; {leaving} pod(s) that end still hold their GPUs" if leaving else ""
    return Verdict.AS_INTENDED, f"the values are set, and every pod is as they say{still}"
