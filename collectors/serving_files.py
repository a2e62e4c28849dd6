"""What an engine said, kept in a file: the text of its /metrics, or an answer of Prometheus."""

from datetime import UTC, datetime
from pathlib import Path

from collectors.dcgm_readings import Dropped
from collectors.exposition_text import answers_in, parse_answer, parse_exposition, recording_text
from collectors.serving_dialects import SERVING_NAMES
from collectors.serving_signals import ServiceSample, service_samples
from data.errors import UnexpectedAnswerError


def read_serving_file(path: Path, dropped: Dropped) -> tuple[ServiceSample, ...]:
    """Return the samples of a file; an exposition text is of the moment the file was written.

    Errors: UnexpectedAnswerError when it cannot be read, or no engine of ours wrote it.
    """
    text = recording_text(path)
    if text.lstrip()[:1] in ("{", "["):
        series = [
            entry
            for answer in answers_in(text, path)
            for entry in parse_answer(answer, dropped, wanted=SERVING_NAMES)
        ]
    else:
        written_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        series = list(parse_exposition(text, written_at, dropped, wanted=SERVING_NAMES))
    samples = service_samples(series, dropped)
    if not samples:
        raise UnexpectedAnswerError(
            f"{path} holds no metric of an inference engine that is known",
            "Give the text of /metrics of vLLM, SGLang, TGI, TensorRT-LLM, Triton, KServe or Ray "
            "Serve, or what Prometheus answered for it.",
        )
    return samples
