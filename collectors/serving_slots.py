"""What engines served in five minutes, asked of a Prometheus: one row a replica and slot.

The server does the sums: gauges are the mean over the slot (the KV-cache its largest), counters and
the sums and counts of histograms what they grew by, which no restart of an engine makes negative.
Buckets are not asked for: they are most of the series.
"""

import hashlib
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta

import pandas as pd

from collectors.dcgm_readings import Dropped, Series
from collectors.serving_dialects import SERVING_NAMES
from collectors.serving_signals import LatencyHistogram, ServiceSample, service_samples
from data.columns import SERVING, check_frame, empty_frame
from data.units import SLOT_SECONDS

_TIMED = {
    "first_token": "first_token_seconds",
    "queue_wait": "queue_wait_seconds",
    "request": "request_seconds",
}
_KEY_BYTES, _DIGEST = 700, 16
_PLAIN = {
    "running_requests": "running_requests",
    "waiting_requests": "waiting_requests",
    "kv_cache_ratio": "kv_cache_ratio",
    "finished_requests": "finished_requests_total",
    "prompt_tokens": "prompt_tokens_total",
    "generation_tokens": "generation_tokens_total",
    "preemptions": "preemptions_total",
}


def serving_names(held: Collection[str]) -> list[str]:
    """Return which of the metrics that a server holds are asked for; none where no engine is."""
    return sorted(name for name in SERVING_NAMES.intersection(held) if not _is_bucket(name))


def _is_bucket(name: str) -> bool:
    return name.endswith("_bucket")


def slots_of_window(start: datetime, end: datetime) -> tuple[datetime, datetime]:
    """Return the ends of the first and the last slot that lie in a window; none when reversed."""
    step = timedelta(seconds=SLOT_SECONDS)
    whole = [
        datetime.fromtimestamp(at.timestamp() // SLOT_SECONDS * SLOT_SECONDS, UTC)
        for at in (start, end)
    ]
    return whole[0] + step, whole[1]


def serving_slots(series: Collection[Series], dropped: Dropped) -> pd.DataFrame:
    """Return a row (columns SERVING) a replica and slot from series at the ends of slots."""
    by_end: dict[int, list[Series]] = {}
    for entry in series:
        for position, at in enumerate(entry.times):
            one = slice(position, position + 1)
            by_end.setdefault(round(at / SLOT_SECONDS) * SLOT_SECONDS, []).append(
                Series(
                    metric=entry.metric,
                    labels=entry.labels,
                    times=entry.times[one],
                    values=entry.values[one],
                )
            )
    rows = [
        {"slot_start": end - SLOT_SECONDS, **dict(_cells(sample))}
        for end, found in sorted(by_end.items())
        for sample in service_samples(found, dropped)
    ]
    if not rows:
        return empty_frame(SERVING)
    frame = pd.DataFrame(rows)
    starts = pd.to_datetime(frame["slot_start"], unit="s", utc=True)
    return check_frame(frame.assign(slot_start=starts.dt.as_unit("us")), SERVING)


def key_text(text: str) -> str:
    """Return a text that fits into a key: an index of PostgreSQL takes 2,704 bytes in all."""
    whole = text.encode()
    if len(whole) <= _KEY_BYTES:
        return text
    digest = hashlib.sha256(whole).hexdigest()[:_DIGEST]
    return f"{whole[: _KEY_BYTES - _DIGEST].decode(errors='ignore')}{digest}"


def _cells(sample: ServiceSample) -> Iterator[tuple[str, object]]:
    yield from (("label_id", key_text(sample.job_id)), ("engine", sample.engine))
    yield from (("model", key_text(sample.model)), ("address", key_text(sample.address)))
    for name, signal in _PLAIN.items():
        yield name, getattr(sample, signal)
    for name, signal in _TIMED.items():
        durations: LatencyHistogram | None = getattr(sample, signal)
        known = durations is not None and durations.sum_seconds is not None
        if known and durations is not None and durations.count is not None:
            yield f"{name}_seconds", durations.sum_seconds
            yield f"{name}_count", durations.count
