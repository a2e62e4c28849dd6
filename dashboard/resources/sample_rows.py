"""Samples behind a figure: the readings of a board, and the slots that they were counted as.

A figure of energy, GPU-hours or idle time is a sum of slots of five minutes, each of one device and
one holder; a slot is made of the readings of its board, the one before it among them.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from data.base.clock import utc_now
from data.base.errors import BadRangeError
from data.store import StoreReader
from data.store.facts.traced_reader import Place, TracedRange

if TYPE_CHECKING:
    import pandas as pd

MAX_RANGE = timedelta(days=31)
_RANGE = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingRow:
    """One reading as collected: ratios 0..1, MiB, W of the whole board, J since driver load."""

    sampled_at: datetime
    gpu_uuid: str
    mig_instance: str
    mig_profile: str
    node: str
    gpu_index: str
    gpu_model: str
    job_id: str
    utilization_ratio: float | None
    utilization_signal: str
    memory_used_mib: float | None
    memory_total_mib: float | None
    power_watts: float | None
    power_limit_watts: float | None
    energy_joules: float | None

    @property
    def place(self) -> Place:
        """Place in the order of readings."""
        return self.sampled_at, self.gpu_uuid, self.mig_instance, self.job_id, ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRow:
    """Five minutes of a device as counted: `board_seconds` held, or free, of the whole board.

    Activity is known of `known_board_seconds` of them, `used_board_seconds` are these times it.
    """

    slot_start: datetime
    gpu_uuid: str
    mig_instance: str
    job_id: str
    holder: str
    node: str
    gpu_model: str
    mig_profile: str
    samples: int
    board_seconds: float
    known_board_seconds: float
    used_board_seconds: float
    joules: float | None
    joules_by_slices: float | None
    joules_by_activity: float | None
    utilization_max: float | None
    memory_max_mib: float | None

    @property
    def place(self) -> Place:
        """Place in the order of slots."""
        return self.slot_start, self.gpu_uuid, self.mig_instance, self.job_id, self.holder


def traced_range(
    reader: StoreReader,
    *,
    start: datetime | None,
    end: datetime | None,
    gpu_uuid: str,
    job_id: str = "",
) -> TracedRange:
    """Return the range that is meant: the day before its end, which is the newest sample.

    Errors: BadRangeError where it names neither board nor job, or is empty or longer than 31 days.
    """
    if not gpu_uuid and not job_id:
        raise BadRangeError("neither a GPU nor a job is named", "Name one: `trimtab gpus`.")
    newest = reader.latest_sample_at() or utc_now()
    end = end or newest + timedelta(microseconds=1)
    start = start or end - _RANGE
    if not start < end <= start + MAX_RANGE:
        raise BadRangeError(
            f"from {start:%Y-%m-%dT%H:%MZ} to {end:%Y-%m-%dT%H:%MZ} is no range of at most "
            f"{MAX_RANGE.days} days",
            "Give `from` before `to`; `to` is the newest sample unless it is given.",
        )
    return TracedRange(start=start, end=end, gpu_uuid=gpu_uuid, job_id=job_id)


def reading_rows(
    reader: StoreReader, span: TracedRange, *, most: int, after: Place | None = None
) -> list[ReadingRow]:
    """Return at most `most` readings, those after a place."""
    return [ReadingRow(**row) for row in _plain(reader.readings(span, most=most, after=after))]


def slot_rows(
    reader: StoreReader, span: TracedRange, *, most: int, after: Place | None = None
) -> list[SlotRow]:
    """Return at most `most` slots, those after a place."""
    return [SlotRow(**row) for row in _plain(reader.slots(span, most=most, after=after))]


def _plain(frame: "pd.DataFrame") -> list[dict[Any, Any]]:
    """Return the rows with times as Python has them, and None where nothing is known."""
    time = frame.columns[0]
    times = frame[time].dt.to_pydatetime()
    rows = frame.drop(columns=[time]).astype(object).where(frame.notna(), None).to_dict("records")
    return [{time: at, **row} for at, row in zip(times, rows, strict=True)]
