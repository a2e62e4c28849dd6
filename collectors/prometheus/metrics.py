"""GPU telemetry from a Prometheus that scrapes dcgm-exporter or another GPU exporter.

Where it scrapes inference engines as well, what they served. That costs a question a metric that is
there, and none where no engine is: the list of metrics is read anyway.
"""

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice

import pandas as pd

from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.findings import prometheus_findings
from collectors.readings.board_activity import activity_of
from collectors.readings.board_xids import xids_of
from collectors.readings.contradictions import without_counters
from collectors.readings.dcgm_readings import DroppedReadings, Series, jobs_of, samples_of
from collectors.readings.exposition_text import parse_answer
from collectors.readings.metric_names import (
    ACTIVITY,
    HEALTH,
    INFOS,
    NEEDED,
    XIDS,
    readable_names,
    unread_metrics,
)
from collectors.readings.missing_labels import missing_label_warnings
from collectors.readings.reported_progress import progress_of
from collectors.readings.serving_metric_names import slot_functions
from collectors.readings.serving_signals import ServiceSample, TimedRequests, service_samples
from collectors.shared.collector import Finding, Source, Window
from data.base.clock import floor_to_slot
from data.base.errors import UnexpectedAnswerError
from data.base.units import SLOT_SECONDS
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts import columns
from data.facts.cluster_names import named_in
from data.facts.collected import Collected
from data.facts.columns import PROGRESS, SAMPLES, SERVING, TEXT, check_frame, empty_frame
from data.facts.fleet import SourceReport, SourceState
from data.facts.identifiers import digest_of
from data.settings.all_settings import Settings
from data.settings.sources import PrometheusSettings

MAX_SERIES = 100_000
"""Series read of one metric and day: labels that multiply without end stop here."""
TOO_MANY = "too-many-series"
"""The reason of readings beyond `MAX_SERIES`: labels multiply without end."""
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


@dataclass(frozen=True, slots=True)
class PrometheusDcgmCollector:
    """GPU metrics of one Prometheus, under every name that it holds.

    `by_slot`: a reading at the end of a slot stands for that slot, and is dated a second before.
    """

    client: PrometheusClient
    settings: PrometheusSettings
    catalogue: GpuCatalogue
    by_slot: bool = False

    @property
    def name(self) -> str:
        """The source's name in reports: its address without credentials."""
        scheme, _, rest = self.settings.url.partition("://")
        return f"prometheus {scheme}://{rest.rpartition('@')[2]}"

    def reaches_back(self, window: Window) -> datetime | None:
        """Return the time in the window since when it has readings. Errors: CollectorError."""
        self.client.begin()
        readable = readable_names(self.client.metric_names())
        metric = next((name for name in NEEDED if name in readable), None)
        if metric is None:
            return None
        return self.client.first_reading_at(metric, window.start, window.end)

    def collect_past(self, window: Window) -> Collected:
        """Return the facts of the window, rolled up by the server to a reading a slot.

        Errors: CollectorError.
        """
        step = max(SLOT_SECONDS, self.settings.step_seconds)
        by_slot = replace(self, by_slot=True, settings=replace(self.settings, step_seconds=step))
        return by_slot.collect(window)

    def collect(self, window: Window) -> Collected:
        """Return the samples on the step grid in (start, end]. Errors: CollectorError."""
        self.client.begin()
        names = self.client.metric_names()
        readable = readable_names(names)
        present = [name for name in (*NEEDED, *sorted(INFOS)) if name in readable]
        if not present:
            others = "".join(f"; {text}" for text in unread_metrics(names))
            raise UnexpectedAnswerError(
                f"{self.name} holds no GPU metric{others}",
                f"Does it scrape dcgm-exporter? Expected names such as {NEEDED[0]}.",
            )
        metrics = [*present, *(name for name in (*XIDS, *ACTIVITY, *HEALTH) if name in readable)]
        step = self.settings.step_seconds
        start = floor_to_slot(window.start, step) + timedelta(seconds=step)
        end = floor_to_slot(window.end, step)
        dropped = DroppedReadings()
        scrape = self.client.scrape_seconds(present[0], end)
        read = [
            (
                samples_of(day, self.catalogue, dropped),
                xids_of(day, self.catalogue, dropped),
                activity_of(day, self.catalogue, window, dropped),
            )
            for day in self._days(metrics, start, end, scrape, dropped)
        ]
        samples, xids, activity = (
            pd.concat([frames[part] for frames in read] or [empty_frame(kind)], ignore_index=True)
            for part, kind in enumerate((SAMPLES, columns.XIDS, columns.ACTIVITY))
        )
        contradictions = pd.concat(
            [empty_frame(columns.CONTRADICTIONS), *dropped.contradictions], ignore_index=True
        )
        activity = without_counters(activity, contradictions)
        serving = self._serving(serving_names(names), window, dropped)
        progress = self._progress(names, window, dropped)
        warnings = self.client.take_warnings()
        answered, gap_start = self.client.answered()
        readings = samples[["gpu_uuid", "mig_instance", "sampled_at"]].drop_duplicates()
        devices = len(readings[["gpu_uuid", "mig_instance"]].drop_duplicates())
        content = sum(
            int(pd.util.hash_pandas_object(entry, index=False).sum())
            for entry in (samples, xids, serving, activity, progress, contradictions)
        )
        steps = (end - start) // timedelta(seconds=step) + 1
        expected = max(0, steps) * devices
        return Collected(
            batch_id=digest_of([self.name, window.start, window.end, content]),
            samples=samples,
            jobs=jobs_of(samples, self.name),
            xids=xids,
            serving=serving,
            activity=activity,
            contradictions=contradictions,
            progress=progress,
            report=SourceReport(
                source=self.name,
                state=SourceState.RAN,
                reason="" if len(samples) else "no sample in the window",
                samples=len(samples),
                dropped=dropped.as_pairs(),
                completeness_ratio=answered * min(1.0, len(readings) / expected)
                if expected
                else None,
                warnings=(
                    *warnings,
                    *dropped.warnings(),
                    *missing_label_warnings(samples),
                    *unread_metrics(names),
                ),
                window_start=window.start,
                window_end=window.end,
                complete_until=None if gap_start is None else max(window.start, gap_start),
            ),
        )

    def _serving(self, names: list[str], window: Window, dropped: DroppedReadings) -> pd.DataFrame:
        """Return the traffic of engines in the complete slots of a window (columns SERVING)."""
        start, end = slots_of_window(window.start, window.end)
        frames = [empty_frame(SERVING)]
        for first, last in _days(start, end, SLOT_SECONDS) if names else ():
            series = [
                entry
                for name in names
                for entry in self._series(name, first, last, 0.0, dropped, step=SLOT_SECONDS)
            ]
            frames.append(serving_slots(series, dropped))
        return pd.concat(frames, ignore_index=True)

    def _progress(
        self, names: Collection[str], window: Window, dropped: DroppedReadings
    ) -> pd.DataFrame:
        """Return the reports of jobs at the ends of slots (columns PROGRESS)."""
        settings = self.settings
        done, total, written = (
            settings.progress_metric,
            settings.progress_total_metric if settings.progress_metric in names else "",
            settings.checkpoint_metric,
        )
        if not {done, written}.intersection(names):
            return empty_frame(PROGRESS)
        start, end = slots_of_window(window.start, window.end)
        frames = [empty_frame(PROGRESS)]
        for first, last in _days(start, end, SLOT_SECONDS):
            series = [
                self._series(name, first, last, None, dropped, step=SLOT_SECONDS)
                if name in names
                else []
                for name in (done, total, written)
            ]
            frames.append(progress_of(series[0], series[1] if total else None, dropped, series[2]))
        frame = pd.concat(frames, ignore_index=True)
        return frame.assign(label_id=frame["label_id"].map(key_text)).astype({"label_id": TEXT})

    def _days(
        self,
        names: list[str],
        start: datetime,
        end: datetime,
        scrape_seconds: float | None,
        dropped: DroppedReadings,
    ) -> Iterator[list[Series]]:
        """Yield the series of these metrics day by day, so that memory stays bounded."""
        for first, last in _days(start, end, self.settings.step_seconds):
            slots = floor_to_slot(first + timedelta(seconds=SLOT_SECONDS - 1), SLOT_SECONDS)
            yield [
                entry
                for name in names
                for entry in (
                    self._series(name, first, last, scrape_seconds, dropped)
                    if name not in HEALTH and not self.by_slot
                    else self._by_slot(name, slots, last, scrape_seconds, dropped)
                )
            ]

    def _by_slot(
        self,
        name: str,
        start: datetime,
        end: datetime,
        scrape_seconds: float | None,
        dropped: DroppedReadings,
    ) -> list[Series]:
        """Return the series of the past, and of what changes slowly: a reading a slot is enough.

        A reading at the end of a slot stands for that slot, and is dated a second before its end.
        """
        step = max(SLOT_SECONDS, self.settings.step_seconds)
        if start > end:
            return []
        rows = self._series(name, start, end, scrape_seconds, dropped, step=step)
        return [replace(series, times=series.times - 1) for series in rows]

    def _series(
        self,
        metric: str,
        start: datetime,
        end: datetime,
        scrape_seconds: float | None,
        dropped: DroppedReadings,
        *,
        step: int = 0,
    ) -> list[Series]:
        entries = self.client.series(
            metric,
            start=start,
            end=end,
            step_seconds=step or self.settings.step_seconds,
            scrape_seconds=scrape_seconds,
        )
        results = list(islice(entries, MAX_SERIES))
        for entry in entries:
            dropped.counts[TOO_MANY] += len(entry["values"])
        answer = {"data": {"resultType": "matrix", "result": results}}
        return list(parse_answer(answer, dropped, metrics=(metric,)))


def _days(start: datetime, end: datetime, step_seconds: int) -> Iterator[tuple[datetime, datetime]]:
    """Yield (first, last) step of every piece of at most a day, so that memory stays bounded."""
    step = timedelta(seconds=step_seconds)
    while start <= end:
        last = min(end, start + max(step, timedelta(days=1)) - step)
        yield start, last
        start = last + step


def _build(settings: Settings, catalogue: GpuCatalogue) -> PrometheusDcgmCollector:
    prometheus = settings.prometheus
    return PrometheusDcgmCollector(PrometheusClient(prometheus), prometheus, catalogue)


def _findings(settings: Settings, now: datetime) -> tuple[Finding, ...]:
    prometheus = settings.prometheus
    schedulers = {"slurm", "kubernetes"}.intersection(settings.sources_in_use())
    return prometheus_findings(
        PrometheusClient(prometheus),
        prometheus,
        now,
        schedulers=schedulers,
        past=timedelta(days=settings.retention.raw_days),
    )


SOURCE = Source(build=_build, findings=_findings)


def serving_names(names: Collection[str]) -> list[str]:
    """Return the serving metrics of a server to ask for; none where no engine is."""
    return sorted(name for name in slot_functions().keys() & set(names) if not _is_bucket(name))


def _is_bucket(name: str) -> bool:
    return name.endswith("_bucket")


def slots_of_window(start: datetime, end: datetime) -> tuple[datetime, datetime]:
    """Return the ends of the first and the last slot that lie in a window; none when reversed."""
    step = timedelta(seconds=SLOT_SECONDS)
    bounds = [
        datetime.fromtimestamp(at.timestamp() // SLOT_SECONDS * SLOT_SECONDS, UTC)
        for at in (start, end)
    ]
    return bounds[0] + step, bounds[1]


def serving_slots(series: Collection[Series], dropped: DroppedReadings) -> pd.DataFrame:
    """Return a row (columns SERVING) a replica and slot from series at the ends of slots.

    The server does the sums: gauges are the mean over the slot (the KV-cache its largest), counters
    and the sums and counts of histograms what they grew by, which no restart of an engine makes
    negative. Buckets are not asked for: they are most of the series.
    """
    by_end: dict[int, list[Series]] = {}
    for entry in series:
        for position, at in enumerate(entry.times):
            here = slice(position, position + 1)
            by_end.setdefault(round(at / SLOT_SECONDS) * SLOT_SECONDS, []).append(
                Series(
                    metric=entry.metric,
                    labels=entry.labels,
                    times=entry.times[here],
                    values=entry.values[here],
                )
            )
    rows = [
        {"slot_start": end - SLOT_SECONDS, **dict(_cells(sample))}
        for end, group in sorted(by_end.items())
        for sample in service_samples(group, dropped)
    ]
    if not rows:
        return empty_frame(SERVING)
    frame = pd.DataFrame(rows)
    starts = pd.to_datetime(frame["slot_start"], unit="s", utc=True)
    return check_frame(frame.assign(slot_start=starts.dt.as_unit("us")), SERVING)


def key_text(text: str) -> str:
    """Return a text that fits into a key: an index of PostgreSQL takes 2,704 bytes in all."""
    encoded = text.encode()
    if len(encoded) <= _KEY_BYTES:
        return text
    digest = hashlib.sha256(encoded).hexdigest()[:_DIGEST]
    return f"{encoded[: _KEY_BYTES - _DIGEST].decode(errors='ignore')}{digest}"


def _cells(sample: ServiceSample) -> Iterator[tuple[str, object]]:
    yield from (("label_id", key_text(sample.job_id)), ("engine", sample.engine))
    yield from (
        ("model", key_text(sample.model)),
        ("address", key_text(named_in(sample.address, ""))),
    )
    for name, signal in _PLAIN.items():
        yield name, getattr(sample, signal)
    for name, signal in _TIMED.items():
        durations: TimedRequests | None = getattr(sample, signal)
        has_sum = durations is not None and durations.sum_seconds is not None
        if has_sum and durations is not None and durations.count is not None:
            yield f"{name}_seconds", durations.sum_seconds
            yield f"{name}_count", durations.count
