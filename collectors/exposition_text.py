"""Recorded telemetry: an exporter's exposition text, and what Prometheus' query API answers."""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from collectors.dcgm_readings import Dropped, Series, jobs_of, samples_of
from collectors.metric_dialects import BY_NAME, INFO
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.collected import Collected
from data.errors import UnexpectedAnswerError, scrub
from data.records.cluster import SourceReport, SourceState
from data.records.identifiers import digest_of

_LINE = re.compile(
    r"(?P<name>[A-Za-z_:][\w:]*)\s*(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+(?P<time>-?\d+))?"
)
# Real exporters put a space after the comma between labels, which strict parsers refuse.
_LABEL = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_WANTED = frozenset(BY_NAME) | {INFO}
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_ESCAPE = re.compile(r'\\[\\"n]')


def parse_labels(text: str) -> dict[str, str] | None:
    """Give the labels of an exposition line, None when the text is none."""
    labels: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _LABEL.match(text, position)
        if match is None:
            return None
        value = _ESCAPE.sub(lambda found: _ESCAPES[found.group(0)], match.group(2))
        labels[match.group(1)] = value
        position = match.end()
    return labels


def parse_exposition(text: str, at: datetime, dropped: Dropped) -> Iterator[Series]:
    """Give the GPU series of an exposition text, all at `at`; what is broken is counted."""
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _LINE.fullmatch(stripped)
        labels = None if match is None else parse_labels(match.group("labels") or "")
        if match is None or labels is None:
            dropped.counts["broken-line"] += 1
            continue
        if match.group("name") not in _WANTED:
            continue
        try:
            value = float(match.group("value"))
        except ValueError:
            # <<<NOT_SUPPORTED>>>, [N/A], ERR!: what DCGM and nvidia-smi write for no reading.
            dropped.counts["no-number"] += 1
            continue
        yield Series(
            metric=match.group("name"),
            labels=labels,
            times=np.array([at.timestamp()]),
            values=np.array([value]),
        )


def parse_answer(document: Any, dropped: Dropped) -> Iterator[Series]:
    """Give the series of one answer of Prometheus' query API (vector or matrix).

    Errors: UnexpectedAnswerError when it is no such answer.
    """
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, dict) or data.get("resultType") not in ("vector", "matrix"):
        raise UnexpectedAnswerError(
            f"no vector or matrix in the answer: {scrub(json.dumps(document))[:120]}",
            "Give the JSON that /api/v1/query or /api/v1/query_range answers.",
        )
    for result in data.get("result") or []:
        labels = result.get("metric") or {}
        points = result.get("values") or [result.get("value")]
        pairs = [_point(point) for point in points]
        known = [pair for pair in pairs if pair is not None]
        dropped.counts["broken-value"] += len(pairs) - len(known)
        if known and labels.get("__name__") in _WANTED:
            array = np.array(known, dtype=float)
            yield Series(
                metric=labels["__name__"], labels=labels, times=array[:, 0], values=array[:, 1]
            )


def _point(point: Any) -> tuple[float, float] | None:
    try:
        return float(point[0]), float(point[1])
    except (TypeError, ValueError, IndexError, KeyError):
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UnexpectedAnswerError(
            f"cannot read {path}: {error.strerror}", "Give the path of a recording."
        ) from error


def _collected(
    path: Path, source: str, series: list[Series], catalogue: GpuCatalogue, dropped: Dropped
) -> Collected:
    samples = samples_of(series, catalogue, dropped)
    if samples.empty:
        raise UnexpectedAnswerError(
            f"{path} holds no GPU reading that could be kept",
            f"Expected metrics such as {next(iter(BY_NAME))} with a UUID label.",
        )
    return Collected(
        batch_id=digest_of(
            [source, path.name, _read(path), samples["sampled_at"].min().isoformat()]
        ),
        samples=samples,
        jobs=jobs_of(samples, source),
        report=SourceReport(
            source=source,
            state=SourceState.RAN,
            reason="",
            samples=len(samples),
            dropped=dropped.as_pairs(),
            completeness_ratio=None,
            warnings=(),
            window_start=samples["sampled_at"].min().to_pydatetime(),
            window_end=samples["sampled_at"].max().to_pydatetime(),
        ),
    )


def read_dcgm_text(path: Path, at: datetime, catalogue: GpuCatalogue) -> Collected:
    """Give the samples of one exposition text, taken at `at` (UTC)."""
    dropped = Dropped()
    series = list(parse_exposition(_read(path), at, dropped))
    return _collected(path, f"dcgm-text {path.name}", series, catalogue, dropped)


def read_prometheus_json(path: Path, catalogue: GpuCatalogue) -> Collected:
    """Give the samples of one answer, or of a list of answers, of Prometheus' query API."""
    try:
        document = json.loads(_read(path))
    except json.JSONDecodeError as error:
        raise UnexpectedAnswerError(
            f"{path} is no JSON: {error.msg} in line {error.lineno}",
            "Give the JSON that Prometheus answered.",
        ) from error
    dropped = Dropped()
    answers = document if isinstance(document, list) else [document]
    series = [one for answer in answers for one in parse_answer(answer, dropped)]
    return _collected(path, f"prometheus-json {path.name}", series, catalogue, dropped)
