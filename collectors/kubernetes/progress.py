"""Fields of Kubernetes objects that report progress, one row per kind and place."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime

import pandas as pd

from collectors.kubernetes.api import Document
from collectors.kubernetes.workloads import Workload
from collectors.readings.reported_progress import IMPLAUSIBLE, share_done
from collectors.shared.collect import MAX_SKEW
from collectors.shared.json_parts import count_of, part, time_in, whole_number
from data.facts.columns import PROGRESS, check_frame, empty_frame

Told = tuple[datetime, float | None]
"""Time of a report, and the share of the work that is done; None where it is not a share."""


def _trainer_status(document: Document, _seen_at: datetime) -> Told | None:
    """Read Kubeflow Trainer's `status.trainerStatus` (KEP 2779), whole per cent."""
    return _percent_or_steps(part(document, "status", "trainerStatus"))


def _open_data_hub(document: Document, _seen_at: datetime) -> Told | None:
    """Read the annotation of Open Data Hub's and OpenShift AI's trainer: a JSON object."""
    notes = part(document, "metadata", "annotations")
    text = part(notes, "trainer.opendatahub.io/trainerStatus")
    try:
        return _percent_or_steps(json.loads(text)) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None


def _percent_or_steps(status: object) -> Told | None:
    told_at = time_in(status, "lastUpdatedTime")
    steps, total = part(status, "currentStep"), part(status, "totalSteps")
    percent = part(status, "progressPercentage")
    if told_at is None or (percent is None and total is None):
        return None
    share = share_done(steps, total)
    return told_at, share_done(percent, 100) if share is None else share


def _completions(document: Document, seen_at: datetime) -> Told | None:
    """Count the completions of a Job that does them one after the other.

    One whose completions all run at once tells nothing before its end, one without completions (a
    work queue) has no total, and a success policy ends it before all are done.
    """
    spec = part(document, "spec")
    total = count_of(part(spec, "completions"))
    at_once = count_of(part(spec, "parallelism") or 1)
    if not at_once < total or part(spec, "successPolicy") is not None:
        return None
    done = whole_number(part(document, "status", "succeeded") or 0)
    return None if done is None else (seen_at, share_done(done, total))


_READERS: dict[str, tuple[Callable[[Document, datetime], Told | None], ...]] = {
    "TrainJob": (_trainer_status, _open_data_hub),
    "Job": (_completions,),
}
"""Of a kind the first reader that finds anything tells."""


def progress_of_workloads(
    workloads: Iterable[Workload], seen_at: datetime, dropped: Counter[str]
) -> pd.DataFrame:
    """Return the reports of workloads (columns PROGRESS); broken ones are dropped and counted."""
    rows = []
    for workload in workloads:
        readers = _READERS.get(workload.kind, ()) if workload.chain and not workload.group else ()
        pair = next(filter(None, (read(workload.chain[0], seen_at) for read in readers)), None)
        if pair is None:
            continue
        if pair[1] is None or pair[0] > seen_at + MAX_SKEW:
            dropped[IMPLAUSIBLE] += 1
            continue
        rows.append({"label_id": workload.job_id, "reported_at": pair[0], "done_ratio": pair[1]})
    if not rows:
        return empty_frame(PROGRESS)
    frame = pd.DataFrame(rows)
    times = pd.to_datetime(frame["reported_at"], utc=True).astype("datetime64[us, UTC]")
    return check_frame(frame.assign(reported_at=times), PROGRESS)
