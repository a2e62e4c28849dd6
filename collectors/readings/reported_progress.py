"""Progress that jobs report, valid shares, and their checkpoints, by metrics.

No exporter of training frameworks that is widely used publishes steps and their total, or when it
saved them, so the names of the metrics stand in the settings (`prometheus.progress_metric`,
`prometheus.checkpoint_metric`).
"""

import math
from collections.abc import Iterable, Iterator, Mapping

import pandas as pd

from collectors.readings.dcgm_readings import FIRST_SECOND, LAST_SECOND, DroppedReadings, Series
from collectors.readings.device_labels import holder_of, readable_labels
from data.facts.columns import PROGRESS, check_frame, empty_frame

IMPLAUSIBLE = "implausible-progress"
"""The reason of what cannot be a share of work: NaN, below 0, above its total, or of none; and of
what cannot be the time of a checkpoint: later than its report, or no time."""


def share_done(done: object, total: object = 1) -> float | None:
    """Return done/total as a share of work, None where that is none: also of a total of 0."""
    numbers = [
        float(value)
        for value in (done, total)
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < 1e18
        and math.isfinite(value)
    ]
    if len(numbers) < 2 or numbers[1] <= 0 or not 0 <= numbers[0] <= numbers[1]:
        return None
    return numbers[0] / numbers[1]


def progress_of(
    done: Iterable[Series],
    totals: Iterable[Series] | None,
    dropped: DroppedReadings,
    written: Iterable[Series] = (),
) -> pd.DataFrame:
    """Return the reports of jobs (columns PROGRESS) by two metrics of equal labels and times.

    Without `totals` the metric itself is the share; `written` tells the times of checkpoints. A
    series whose labels name no holder is dropped and counted, as is what cannot be a share or time.
    """
    of_all = None if totals is None else {_key(entry.labels): _by_time(entry) for entry in totals}
    nan = float("nan")
    rows = []
    for entry, holder in _held(done, dropped):
        total = {} if of_all is None else of_all.get(_key(entry.labels), {})
        for at, value in _by_time(entry).items():
            share = share_done(value, 1 if of_all is None else total.get(at))
            if share is None or not FIRST_SECOND <= at <= LAST_SECOND:
                dropped.counts[IMPLAUSIBLE] += 1
            else:
                rows.append((holder, at, share, nan))
    for entry, holder in _held(written, dropped):
        for at, value in _by_time(entry).items():
            if value == 0:
                continue  # none yet
            if not FIRST_SECOND <= value <= at <= LAST_SECOND:
                dropped.counts[IMPLAUSIBLE] += 1
            else:
                rows.append((holder, at, nan, value))
    if not rows:
        return empty_frame(PROGRESS)
    # Of several series of one holder (ranks, epochs beside steps) the furthest tells.
    frame = pd.DataFrame(rows, columns=["label_id", "reported_at", "done_ratio", "checkpoint_at"])
    frame = frame.groupby(["label_id", "reported_at"], as_index=False).max()
    for name in ("reported_at", "checkpoint_at"):
        frame[name] = pd.to_datetime(frame[name], unit="s", utc=True).dt.as_unit("us")
    return check_frame(frame, PROGRESS)


def _held(entries: Iterable[Series], dropped: DroppedReadings) -> Iterator[tuple[Series, str]]:
    for entry in entries:
        readable = readable_labels(entry.labels)
        if holder := "" if readable is None else holder_of(readable[0]):
            yield entry, holder
        else:
            dropped.counts["progress-of-nobody"] += 1


def _key(labels: Mapping[str, object]) -> frozenset[tuple[str, str]]:
    return frozenset((name, str(value)) for name, value in labels.items() if name != "__name__")


def _by_time(series: Series) -> dict[float, float]:
    return dict(zip(series.times.tolist(), series.values.tolist(), strict=True))
