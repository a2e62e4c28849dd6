"""Recorded telemetry: an exporter's exposition text, and what Prometheus' query API answers."""

import json
import re
from collections.abc import Container, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from collectors.readings.board_xids import xids_of
from collectors.readings.dcgm_readings import DroppedReadings, Series, jobs_of, samples_of
from collectors.readings.metric_names import BY_NAME, INFOS, readable_names, unread_metrics
from collectors.readings.missing_labels import missing_label_warnings
from data.base.errors import UnexpectedAnswerError, scrub
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.collected import Collected
from data.facts.columns import CONTRADICTIONS, empty_frame
from data.facts.fleet import SourceReport, SourceState
from data.facts.identifiers import digest_of

# Possessive, or a line of a megabyte of spaces would be tried in every split of them.
_LINE = re.compile(
    r"(?P<name>[A-Za-z_:][\w:]*+)(?:\s*+\{(?P<labels>.*)\})?\s++(?P<value>\S++)(?:\s++-?\d++)?"
)
# Real exporters put a space after the comma between labels, which strict parsers refuse.
_LABEL = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_METRIC_NAMES = frozenset(BY_NAME) | INFOS
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_ESCAPE = re.compile(r'\\[\\"n]')
_MAX_SHOWN = 120
_MAX_WHOLE = 10**300
"""Below it a whole number has a place among floats."""

_NAMES = re.compile(r'^([A-Za-z_:][\w:]*)[{ ]|"__name__"\s*:\s*"([\w:]+)"', re.MULTILINE)
"""Names of metrics in a text of either kind of recording."""


def parse_labels(text: str) -> dict[str, str] | None:
    """Return the labels of an exposition line, None when the text is none."""
    labels: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _LABEL.match(text, position)
        if match is None:
            return None
        value = _ESCAPE.sub(lambda escape: _ESCAPES[escape.group(0)], match.group(2))
        labels[match.group(1)] = value
        position = match.end()
    return labels


def parse_exposition(
    text: str, at: datetime, dropped: DroppedReadings, *, metrics: Container[str] = _METRIC_NAMES
) -> Iterator[Series]:
    """Yield the series of `metrics` in an exposition text at `at`; broken lines are counted."""
    # Not splitlines: that would cut inside labels, at every line separator of Unicode.
    for line in text.split("\n"):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _LINE.fullmatch(stripped)
        labels = None if match is None else parse_labels(match.group("labels") or "")
        if match is None or labels is None:
            dropped.counts["broken-line"] += 1
            continue
        if match.group("name") not in metrics:
            continue
        try:
            value = number_of(match.group("value"))
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


def parse_answer(
    document: Any, dropped: DroppedReadings, *, metrics: Container[str] = _METRIC_NAMES
) -> Iterator[Series]:
    """Yield the series of `metrics` of one answer of Prometheus' query API (vector or matrix).

    What has not the form of a series or of a reading is counted in `dropped`. Errors:
    UnexpectedAnswerError when it is no such answer.
    """
    data = document.get("data") if isinstance(document, dict) else None
    kind = data.get("resultType") if isinstance(data, dict) else None
    results = data.get("result") if isinstance(data, dict) else None
    if kind not in ("vector", "matrix") or not isinstance(results, list | None):
        raise UnexpectedAnswerError(
            f"no vector or matrix in the answer but {_content(document)}",
            "Give the JSON that /api/v1/query or /api/v1/query_range answers.",
        )
    for result in results or ():
        labels = (result.get("metric") or {}) if isinstance(result, dict) else None
        if not isinstance(labels, dict) or not isinstance(labels.get("__name__", ""), str):
            dropped.counts["broken-series"] += 1
            continue
        points = result.get("values") or [result.get("value")]
        pairs = [_point(point) for point in points] if isinstance(points, list) else [None]
        readings = [pair for pair in pairs if pair is not None]
        dropped.counts["broken-value"] += len(pairs) - len(readings)
        if readings and labels.get("__name__") in metrics:
            array = np.array(readings, dtype=float)
            yield Series(
                metric=labels["__name__"], labels=labels, times=array[:, 0], values=array[:, 1]
            )


def number_of(written: object) -> float:
    """Return the number that a server wrote as text or number. Errors: ValueError when it is none.

    Python would take `1_000`, digits of every script and True for numbers as well.
    """
    if isinstance(written, str):
        if "_" in written or not written.isascii():
            raise ValueError("no number of Prometheus")
        return float(written)
    if isinstance(written, float):
        return written
    if isinstance(written, int) and not isinstance(written, bool) and abs(written) < _MAX_WHOLE:
        return float(written)
    raise ValueError("no number")


def _point(point: object) -> tuple[float, float] | None:
    if not isinstance(point, list) or len(point) != 2:
        return None
    try:
        return number_of(point[0]), number_of(point[1])
    except ValueError:
        return None


def _content(document: object) -> str:
    """Return a short excerpt of a document that is not an answer, of any size or depth."""
    if not isinstance(document, dict):
        return f"a {type(document).__name__}"
    error = document.get("error")
    if isinstance(error, str):
        return f"the error {scrub(error[:_MAX_SHOWN], limit=_MAX_SHOWN)}"
    names = ", ".join(str(name)[:_MAX_SHOWN] for name in list(document)[:5])
    return f"an object of {scrub(names, limit=_MAX_SHOWN)}" if names else "an empty object"


def recording_text(path: Path) -> str:
    """Return the text of a file. Errors: UnexpectedAnswerError when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UnexpectedAnswerError(
            f"cannot read {path}: {error.strerror}", "Give the path of a recording."
        ) from error


def _collected(
    path: Path, source: str, series: list[Series], catalogue: GpuCatalogue, dropped: DroppedReadings
) -> Collected:
    names = [match[1] or match[2] for match in _NAMES.finditer(recording_text(path))]
    readable = readable_names(names)
    series = [entry for entry in series if entry.metric in readable]
    samples = samples_of(series, catalogue, dropped)
    if samples.empty:
        raise UnexpectedAnswerError(
            "; ".join((f"{path} holds no GPU reading that could be kept", *unread_metrics(names))),
            f"Expected metrics such as {next(iter(BY_NAME))} with a UUID label.",
        )
    return Collected(
        batch_id=digest_of(
            [source, path.name, recording_text(path), samples["sampled_at"].min().isoformat()]
        ),
        samples=samples,
        jobs=jobs_of(samples, source),
        xids=xids_of(series, catalogue, dropped),
        contradictions=pd.concat([empty_frame(CONTRADICTIONS), *dropped.contradictions]),
        report=SourceReport(
            source=source,
            state=SourceState.RAN,
            samples=len(samples),
            dropped=dropped.as_pairs(),
            warnings=(
                *dropped.warnings(),
                *missing_label_warnings(samples),
                *unread_metrics(names),
            ),
            window_start=samples["sampled_at"].min().to_pydatetime(),
            window_end=samples["sampled_at"].max().to_pydatetime(),
            recorded=True,
        ),
    )


def read_dcgm_text(path: Path, at: datetime, catalogue: GpuCatalogue) -> Collected:
    """Return the samples of one exposition text, taken at `at` (UTC)."""
    dropped = DroppedReadings()
    series = list(parse_exposition(recording_text(path), at, dropped))
    return _collected(path, f"dcgm-text {path.name}", series, catalogue, dropped)


def answers_in(text: str, where: object) -> list[Any]:
    """Return the answers, not yet looked at, of a JSON text that holds one or a list of them.

    Errors: UnexpectedAnswerError, naming `where` the text is from.
    """
    hint = "Give the JSON that Prometheus answered."
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise UnexpectedAnswerError(
            f"{where} is no JSON: {error.msg} in line {error.lineno}", hint
        ) from error
    except RecursionError as error:
        raise UnexpectedAnswerError(f"{where} is nested too deeply", hint) from error
    except ValueError as error:
        # Python reads no whole number of more than 4,300 digits.
        raise UnexpectedAnswerError(f"{where} holds a number that is too long", hint) from error
    return document if isinstance(document, list) else [document]


def read_prometheus_json(path: Path, catalogue: GpuCatalogue) -> Collected:
    """Return the samples of one answer, or of a list of answers, of Prometheus' query API."""
    dropped = DroppedReadings()
    answers = answers_in(recording_text(path), path)
    series = [column for answer in answers for column in parse_answer(answer, dropped)]
    return _collected(path, f"prometheus-json {path.name}", series, catalogue, dropped)
