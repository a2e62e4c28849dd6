"""Requests by metrics of inference engines: series to one `ServiceSample` a replica.

Pure: series in, records out. Readings of a replica are those of one engine, model, pod and scraped
address; of several jobs of Prometheus that scrape it one counts. What an engine does not say is
None; impossible readings are dropped and counted.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from collectors.readings.dcgm_readings import FIRST_SECOND, LAST_SECOND, DroppedReadings, Series
from collectors.readings.device_labels import holder_of, readable_labels
from collectors.readings.serving_metric_names import (
    HISTOGRAMS,
    MODEL_LABELS,
    SCRAPE_LABELS,
    SHARD_LABELS,
    Matched,
    ServingMetric,
    ServingSignal,
    series_names,
    serving_metrics,
)

Place = tuple[str, str, str]
"""Model, job (namespace/pod) and scraped address."""
Labels = Mapping[str, str]
_MAX_READING = 1e18
_MAX_RATIO = 1 + 1e-6
"""Rounding of a full cache; it is read as 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRequests:
    """Durations since the engine started: how many, and their sum."""

    count: float | None
    sum_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSample:
    """The signals of one replica of a service at one moment; None is unknown.

    Totals and durations count from the start of the engine. `job_id` is the pod as GPU samples
    name it, '' where the labels name none.
    """

    engine: str
    model: str
    job_id: str
    address: str
    running_requests: float | None = None
    waiting_requests: float | None = None
    kv_cache_ratio: float | None = None
    prompt_tokens_total: float | None = None
    generation_tokens_total: float | None = None
    preemptions_total: float | None = None
    finished_requests_total: float | None = None
    first_token_seconds: TimedRequests | None = None
    per_token_seconds: TimedRequests | None = None
    queue_wait_seconds: TimedRequests | None = None
    request_seconds: TimedRequests | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """The newest reading of one series."""

    labels: Labels
    value: float

    @property
    def place(self) -> Place:
        model = next((value for name in MODEL_LABELS if (value := self.labels.get(name))), "")
        return model, holder_of(self.labels), self.labels.get("instance", "")


def service_samples(
    series: Iterable[Series], dropped: DroppedReadings
) -> tuple[ServiceSample, ...]:
    """Return a sample per replica that has a reading, by engine and place."""
    points = _newest(series, dropped)
    by_replica: dict[tuple[str, Place], dict[ServingSignal, float | TimedRequests]] = {}
    for metric in serving_metrics():
        for place, groups in _by_place(points, metric).items():
            signals = by_replica.setdefault((metric.engine, place), {})
            before = signals.get(metric.signal)
            if before is not None and not metric.added:
                continue
            reading = _reading(metric, groups, dropped)
            if reading is not None:
                if isinstance(before, float) and isinstance(reading, float):
                    reading += before
                signals[metric.signal] = reading
    return tuple(
        ServiceSample(
            engine=engine,
            model=place[0],
            job_id=place[1],
            address=place[2],
            **{str(signal): reading for signal, reading in signals.items()},  # type: ignore[arg-type]
        )
        for (engine, place), signals in sorted(by_replica.items(), key=lambda entry: entry[0])
        if signals
    )


def _newest(series: Iterable[Series], dropped: DroppedReadings) -> dict[str, list[_Point]]:
    """Return the newest reading of every series by name; what cannot be one is counted."""
    by_name: dict[str, list[_Point]] = {}
    for entry in series:
        readable = readable_labels(entry.labels)
        if readable is None or not len(entry.values):
            dropped.counts["broken-series"] += 1
            continue
        value, at_seconds = float(entry.values[-1]), float(entry.times[-1])
        # NaN as well
        if not (0 <= value <= _MAX_READING and FIRST_SECOND <= at_seconds <= LAST_SECOND):
            dropped.counts["implausible"] += 1
            continue
        point = _Point(labels=readable[0], value=value)
        by_name.setdefault(entry.metric, []).append(point)
    return by_name


def _by_place(
    points: Mapping[str, list[_Point]], metric: ServingMetric
) -> dict[Place, dict[str, list[_Point]]]:
    """Return the readings of a row's series by place and name."""
    by_place: dict[Place, dict[str, list[_Point]]] = {}
    for name in series_names(metric):
        for point in points.get(name, ()):
            by_place.setdefault(point.place, {}).setdefault(name, []).append(point)
    return by_place


def _reading(
    metric: ServingMetric, by_name: Mapping[str, list[_Point]], dropped: DroppedReadings
) -> float | TimedRequests | None:
    if metric.signal in HISTOGRAMS:
        return _durations(metric, by_name)
    # A counter that is there under both names is one counter.
    name = next(name for name in series_names(metric) if name in by_name)
    shares = _once(_with(by_name[name], metric.matched))
    if not shares:
        return None
    if metric.signal is ServingSignal.KV_CACHE:
        ratio = _ratio(shares, _once(_with(by_name[name], metric.divided_by)), metric)
        if ratio is None or ratio > _MAX_RATIO:
            dropped.counts["implausible"] += 1
            return None
        return min(ratio, 1.0)
    return sum(shares) * metric.factor


def _ratio(used: list[float], parts: list[float], metric: ServingMetric) -> float | None:
    if metric.divided_by:
        return sum(used) / sum(parts) if sum(parts) else None
    # Of several engines behind one address the fullest is the one that preempts.
    return max(used) * metric.factor


def _durations(metric: ServingMetric, by_name: Mapping[str, list[_Point]]) -> TimedRequests | None:
    total, count = (
        (metric.name, metric.count_name) if metric.count_name else series_names(metric)[1:]
    )
    if metric.count_name and total not in by_name:
        return None
    sums, counts = _once(by_name.get(total, ())), _once(by_name.get(count, ()))
    return TimedRequests(
        count=sum(counts) if counts else None,
        sum_seconds=sum(sums) * metric.factor if sums else None,
    )


def _with(points: Iterable[_Point], matched: Matched) -> list[_Point]:
    return [
        point for point in points if all(point.labels.get(name) == value for name, value in matched)
    ]


def _once(points: Collection[_Point]) -> list[float]:
    """Return the readings of one place, one for all shards of an engine: the largest.

    Of several scrapes of a pod or address those of one, whose sum is the largest.
    """
    scraped = SCRAPE_LABELS if any(any(point.place[1:]) for point in islice(points, 1)) else ()
    scrapes: dict[tuple[str, ...], dict[frozenset[tuple[str, str]], float]] = {}
    for point in points:
        labels = frozenset(pair for pair in point.labels.items() if pair[0] not in SHARD_LABELS)
        scrape = scrapes.setdefault(tuple(point.labels.get(name, "") for name in scraped), {})
        scrape[labels] = max(point.value, scrape.get(labels, point.value))
    largest = max(scrapes.values(), key=lambda scrape: sum(scrape.values()), default={})
    return list(largest.values())
