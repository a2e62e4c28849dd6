"""Requests by metrics of inference engines: series to one `ServiceSample` a replica.

Pure but for `read_serving_file`: series in (of an exposition text or of Prometheus' query API),
records out. Readings of a replica are those of one engine, model, pod and scraped address; of
several jobs of Prometheus that scrape it one counts. What an engine does not say is None; what is
no possible reading is dropped and counted.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from collectors.readings.dcgm_readings import FIRST_SECOND, LAST_SECOND, Dropped, Series
from collectors.readings.device_labels import holder_of, readable_labels
from collectors.readings.exposition_text import (
    answers_in,
    parse_answer,
    parse_exposition,
    recording_text,
)
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
    slot_functions,
)
from data.base.clock import utc_now
from data.base.errors import UnexpectedAnswerError

Place = tuple[str, str, str]
"""Model, job (namespace/pod) and scraped address."""
Labels = Mapping[str, str]
_MAX_READING = 1e18
_MAX_RATIO = 1 + 1e-6
"""Rounding of a full cache; it is read as 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyHistogram:
    """Durations since the engine started: how many, their sum, and how many up to each bound.

    `buckets` are (upper bound in s, cumulative count), ascending; without the one of +Inf.
    """

    count: float | None
    sum_seconds: float | None
    buckets: tuple[tuple[float, float], ...]

    @property
    def mean_seconds(self) -> float | None:
        """The mean duration, None when nothing was timed or a part is unknown."""
        return (
            self.sum_seconds / self.count if self.count and self.sum_seconds is not None else None
        )

    def quantile_seconds(self, share: float) -> float | None:
        """Return the duration that `share` stays within, None where no bucket reaches so far.

        Linear within a bucket, as PromQL's histogram_quantile; beyond the last bound nothing is
        known, and the bound is not taken for the answer.
        """
        if not self.count:
            return None
        rank, low, below = share * self.count, 0.0, 0.0
        for bound, cumulative in self.buckets:
            if cumulative >= rank:
                within = cumulative - below
                return low + (bound - low) * ((rank - below) / within if within else 1.0)
            low, below = bound, cumulative
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSample:
    """The signals of one replica of a service at one moment; None is unknown.

    Totals and histograms count from the start of the engine. `job_id` is the pod as GPU samples
    name it, '' where the labels name none.
    """

    engine: str
    model: str
    job_id: str
    address: str
    sampled_at: datetime
    running_requests: float | None = None
    waiting_requests: float | None = None
    kv_cache_ratio: float | None = None
    prompt_tokens_total: float | None = None
    generation_tokens_total: float | None = None
    preemptions_total: float | None = None
    finished_requests_total: float | None = None
    first_token_seconds: LatencyHistogram | None = None
    per_token_seconds: LatencyHistogram | None = None
    queue_wait_seconds: LatencyHistogram | None = None
    request_seconds: LatencyHistogram | None = None

    def signals(self) -> tuple[str, ...]:
        """Return the names of the signals with a reading."""
        return tuple(
            str(signal) for signal in ServingSignal if getattr(self, str(signal)) is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """The newest reading of one series."""

    labels: Labels
    at_seconds: float
    value: float

    @property
    def place(self) -> Place:
        model = next((value for name in MODEL_LABELS if (value := self.labels.get(name))), "")
        return model, holder_of(self.labels), self.labels.get("instance", "")


def service_samples(series: Iterable[Series], dropped: Dropped) -> tuple[ServiceSample, ...]:
    """Return a sample per replica that has a reading, by engine and place."""
    points = _newest(series, dropped)
    by_replica: dict[tuple[str, Place], dict[ServingSignal, float | LatencyHistogram]] = {}
    times: dict[tuple[str, Place], float] = {}
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
                newest = max(point.at_seconds for group in groups.values() for point in group)
                times[metric.engine, place] = max(newest, times.get((metric.engine, place), newest))
    return tuple(
        ServiceSample(
            engine=engine,
            model=place[0],
            job_id=place[1],
            address=place[2],
            sampled_at=datetime.fromtimestamp(times[engine, place], UTC),
            **{str(signal): reading for signal, reading in signals.items()},  # type: ignore[arg-type]
        )
        for (engine, place), signals in sorted(by_replica.items(), key=lambda entry: entry[0])
        if signals
    )


def _newest(series: Iterable[Series], dropped: Dropped) -> dict[str, list[_Point]]:
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
        point = _Point(labels=readable[0], at_seconds=at_seconds, value=value)
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
    metric: ServingMetric, by_name: Mapping[str, list[_Point]], dropped: Dropped
) -> float | LatencyHistogram | None:
    if metric.signal in HISTOGRAMS:
        return _histogram(metric, by_name, dropped)
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


def _histogram(
    metric: ServingMetric, by_name: Mapping[str, list[_Point]], dropped: Dropped
) -> LatencyHistogram | None:
    bucket, total, count = (
        ("", metric.name, metric.count_name) if metric.count_name else series_names(metric)
    )
    if metric.count_name and total not in by_name:
        return None
    sums, counts = _once(by_name.get(total, ())), _once(by_name.get(count, ()))
    bounds: dict[float, list[_Point]] = {}
    for point in by_name.get(bucket, ()):
        bound = _bound(point.labels.get("le", ""))
        if bound is None:
            dropped.counts["implausible"] += 1
        else:
            bounds.setdefault(bound, []).append(point)
    cumulative = sorted((bound, sum(_once(points))) for bound, points in bounds.items())
    infinite = [value for bound, value in cumulative if math.isinf(bound)]
    return LatencyHistogram(
        count=sum(counts) if counts else (infinite[0] if infinite else None),
        sum_seconds=sum(sums) * metric.factor if sums else None,
        buckets=tuple(
            (bound * metric.factor, value) for bound, value in cumulative if math.isfinite(bound)
        ),
    )


def _bound(text: str) -> float | None:
    try:
        bound = float(text)
    except ValueError:
        return None
    return bound if bound >= 0 else None  # NaN is none either


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


def read_serving_file(path: Path, dropped: Dropped) -> tuple[ServiceSample, ...]:
    """Return the samples of a file; an exposition text is of the moment the file was written.

    A file whose time is none (archives write 0) is of now. Errors: UnexpectedAnswerError when it
    cannot be read, no engine of ours wrote it, or nothing in it is a reading.
    """
    text = recording_text(path)
    before = dropped.counts.copy()
    if text.lstrip()[:1] in ("{", "["):
        series = [
            entry
            for answer in answers_in(text, path)
            for entry in parse_answer(answer, dropped, metrics=slot_functions())
        ]
    else:
        written = path.stat().st_mtime
        possible = FIRST_SECOND <= written <= LAST_SECOND
        written_at = datetime.fromtimestamp(written, UTC) if possible else utc_now()
        series = list(parse_exposition(text, written_at, dropped, metrics=slot_functions()))
    samples = service_samples(series, dropped)
    lost = sorted((dropped.counts - before).items())
    if not samples and lost:
        counts = ", ".join(f"{count} {reason}" for reason, count in lost)
        raise UnexpectedAnswerError(
            f"{path} holds no usable reading of an inference engine; dropped: {counts}",
            "Numbers below 0, NaN and broken lines are dropped. Save the engine's /metrics again.",
        )
    if not samples:
        raise UnexpectedAnswerError(
            f"{path} holds no metric of an inference engine that is known",
            "Give the text of /metrics of vLLM, SGLang, TGI, TensorRT-LLM, Triton, KServe or Ray "
            "Serve, or what Prometheus answered for it.",
        )
    return samples
