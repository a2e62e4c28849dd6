"""Reads hostile cases as the sources do and says what came of each: accepted, refused or a crash.

Cases are parsed one by one; what was parsed becomes samples, jobs and Arrow in batches, because a
frame costs milliseconds. A batch that crashes is read again case by case, so that none hides.
"""

import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pyarrow as pa

from collectors.readings.dcgm_readings import DroppedReadings, Series, jobs_of, samples_of
from collectors.readings.exposition_text import answers_in, parse_answer, parse_exposition
from data.base.errors import CollectorError
from data.catalogue.gpu_catalogue import load_gpu_catalogue

AT = datetime(2026, 1, 5, 12, tzinfo=UTC)
KEY = ["sampled_at", "gpu_uuid", "mig_instance", "job_id"]
_LARGEST = {"utilization_ratio": 1.0, "power_watts": 1e4, "power_limit_watts": 1e4}
_BATCH = 40
_MAX_MESSAGE = 700
_FIRST, _LAST = pd.Timestamp(2001, 9, 9, tz="UTC"), pd.Timestamp(2096, 10, 3, tz="UTC")

Case = tuple[str, bytes]
Read = Callable[[bytes, DroppedReadings], list[Series]]


@dataclass(slots=True)
class Outcome:
    """What came of the cases of one family."""

    cases: int = 0
    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    uncaught: list[str] = field(default_factory=list)
    seconds: float = 0.0


def read_body(body: bytes, dropped: DroppedReadings) -> list[Series]:
    """Return the series of a recorded answer. Errors: CollectorError."""
    answers = answers_in(body.decode("utf-8", "replace"), "the body")
    return [column for answer in answers for column in parse_answer(answer, dropped)]


def read_text(text: bytes, dropped: DroppedReadings) -> list[Series]:
    """Return the series of an exposition text."""
    return list(parse_exposition(text.decode("utf-8", "replace"), AT, dropped))


def faults_of(samples: pd.DataFrame) -> list[str]:
    """Return what no sample may have: infinite, negative or impossible readings, wrong times."""
    found = []
    numbers = samples.select_dtypes("float64")
    if not (numbers.isna() | numbers.ge(0)).all(axis=None) or numbers.isin([float("inf")]).any(
        axis=None
    ):
        found.append("a reading that is negative or infinite")
    found += [
        f"{name} too large" for name, most in _LARGEST.items() if samples[name].gt(most).any()
    ]
    if not samples["sampled_at"].between(_FIRST, _LAST).all():
        found.append("a time far from now")
    if samples.duplicated(KEY).any():
        found.append("a sample twice")
    if samples["gpu_uuid"].eq("").any() or samples["gpu_uuid"].str.contains("\0").any():
        found.append("a board without a name")
    return found


def frame_of(series: list[Series], dropped: DroppedReadings) -> pd.DataFrame:
    """Return the samples as they go to the store. Errors: AssertionError when one is impossible."""
    samples = samples_of(series, load_gpu_catalogue(), dropped)
    faults = faults_of(samples)
    if faults:
        raise AssertionError(", ".join(faults))
    jobs_of(samples, "fuzz")
    pa.Table.from_pandas(samples, preserve_index=False)
    return samples


def read_cases(
    cases: Iterable[Case], read: Read, keep: Callable[[pd.DataFrame], None] = lambda _frame: None
) -> dict[str, Outcome]:
    """Return the outcome by family; `keep` gets the samples of every batch."""
    outcomes: dict[str, Outcome] = defaultdict(Outcome)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for family, batch in _batches(cases):
            outcome = outcomes[family]
            began = time.perf_counter()
            parsed = [(body, _parse(body, read, outcome)) for body in batch]
            dropped = DroppedReadings()
            try:
                frame = frame_of([entry for _body, series in parsed for entry in series], dropped)
            except Exception:  # noqa: BLE001 - what is looked for is what nobody thought of
                outcome.uncaught += _alone(parsed)
            else:
                keep(frame)
            outcome.dropped.update(dropped.counts)
            outcome.seconds += time.perf_counter() - began
    return dict(outcomes)


def _batches(cases: Iterable[Case]) -> Iterator[tuple[str, list[bytes]]]:
    """Yield batches of a family each."""
    waiting: dict[str, list[bytes]] = defaultdict(list)
    for family, body in cases:
        waiting[family].append(body)
        if len(waiting[family]) == _BATCH:
            yield family, waiting.pop(family)
    yield from waiting.items()


def _parse(body: bytes, read: Read, outcome: Outcome) -> list[Series]:
    outcome.cases += 1
    dropped = DroppedReadings()
    try:
        series = read(body, dropped)
    except CollectorError as error:
        outcome.refused[type(error).__name__] += 1
        # Every refusal says what was tried and what to do, in a line.
        if not error.hint or len(str(error)) > _MAX_MESSAGE or not str(error).isprintable():
            outcome.uncaught.append(f"message {ascii(str(error))[:200]}")
        return []
    except Exception as error:  # noqa: BLE001 - what is looked for is what nobody thought of
        outcome.uncaught.append(f"{error!r} on {body[:120]!r}")
        return []
    outcome.accepted += 1
    outcome.dropped.update(dropped.counts)
    return series


def _alone(parsed: list[tuple[bytes, list[Series]]]) -> list[str]:
    """Return the faults of the cases of a batch that crashed, each read alone."""
    faults = []
    for body, series in parsed:
        try:
            frame_of(series, DroppedReadings())
        except Exception as error:  # noqa: BLE001 - what is looked for is what nobody thought of
            faults.append(f"{error!r} on {body[:120]!r}")
    return faults or ["a batch that crashes only together"]


def read_file(path: Path, body: bytes, read: Callable[[Path], object]) -> str:
    """Return '' when reading the file succeeds, else the name of the refusal."""
    path.write_bytes(body)
    try:
        read(path)
    except CollectorError as error:
        return type(error).__name__
    return ""
