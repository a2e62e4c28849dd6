"""Metrics of an engine in a file: the text of its /metrics, or an answer of Prometheus."""

from datetime import UTC, datetime
from pathlib import Path

from collectors.readings.dcgm_readings import FIRST_SECOND, LAST_SECOND, Dropped
from collectors.readings.exposition_text import (
    answers_in,
    parse_answer,
    parse_exposition,
    recording_text,
)
from collectors.readings.serving_metric_names import slot_functions
from collectors.readings.serving_signals import ServiceSample, service_samples
from data.base.clock import utc_now
from data.base.errors import UnexpectedAnswerError


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
