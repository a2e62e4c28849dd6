"""Readings as collected, and what each five minutes of a device were counted as.

Every figure of a statement is a sum of these slots, and a slot is made of the readings of its board
(`rollup_sql` says how). Both are read in pages: each begins after the last row of the one before.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from data.facts.columns import SAMPLES, check_frame
from data.store.facts.fact_reader import FactReader

if TYPE_CHECKING:
    import pandas as pd

SLOT_COLUMNS = (
    "slot_start", "gpu_uuid", "mig_instance", "job_id", "holder", "node", "gpu_model",
    "mig_profile", "samples", "board_seconds", "known_board_seconds", "used_board_seconds",
    "joules", "joules_by_slices", "joules_by_activity", "utilization_max", "memory_max_mib",
)  # fmt: skip
Place = tuple[datetime, str, str, str, str]
"""Place of a row in the order: its time, board, MIG instance, job and (of slots) holder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRange:
    """The rows of [start, end) to read; '' names no board, no job in particular."""

    start: datetime
    end: datetime
    gpu_uuid: str = ""
    job_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _TracedRows:
    """A table, what ends the order of its rows, and which of them belong to a range."""

    columns: tuple[str, ...]
    table: str
    time: str
    holder: str
    of_a_job: str

    def query(self, columns: str, *, after: bool) -> str:
        later = ""
        if after:
            later = (
                f"AND ({self.time}, gpu_uuid, mig_instance, job_id, {self.holder})"
                " > (:at, :board, :instance, :job, :holder)"
            )
        return f"""
            SELECT {columns} FROM {self.table}
            WHERE {self.time} >= :start AND {self.time} < :end
                AND (:gpu_uuid = '' OR gpu_uuid = :gpu_uuid) AND {self.of_a_job} {later}
        """  # noqa: S608 - only constants of this module are put together


_READINGS = _TracedRows(
    columns=SAMPLES.names,
    table="samples",
    time="sampled_at",
    holder="CAST('' AS VARCHAR)",
    of_a_job=":job_id = ''",
)
_SLOTS = _TracedRows(
    columns=SLOT_COLUMNS,
    table="five_minute",
    time="slot_start",
    holder="holder",
    of_a_job="(:job_id = '' OR job_id = :job_id)",
)


class TracedReader(FactReader):
    """Samples and slots behind figures; nothing here writes."""

    def readings(self, span: TracedRange, *, most: int, after: Place | None = None) -> pd.DataFrame:
        """Return at most `most` readings of a board (columns SAMPLES), those after a place.

        They name the holder that their source named: `slots` tells whose they were counted as.
        """
        return check_frame(self._traced(_READINGS, span, most, after), SAMPLES)

    def slots(self, span: TracedRange, *, most: int, after: Place | None = None) -> pd.DataFrame:
        """Return at most `most` slots of five minutes (SLOT_COLUMNS), those after a place.

        `holder` is job, free or unattributed; a device's time in s of its board, its energy in J
        by the rule for boards cut by MIG and the two that bound it.
        """
        return self._traced(_SLOTS, span, most, after)

    def count_readings(self, span: TracedRange) -> int:
        """Return the number of readings in the range."""
        return self._count(_READINGS, span)

    def count_slots(self, span: TracedRange) -> int:
        """Return the number of slots in the range."""
        return self._count(_SLOTS, span)

    def _traced(
        self, rows: _TracedRows, span: TracedRange, most: int, after: Place | None
    ) -> pd.DataFrame:
        names = ("at", "board", "instance", "job", "holder")
        place = {} if after is None else dict(zip(names, after, strict=True))
        query = rows.query(", ".join(rows.columns), after=after is not None)
        order = f"{rows.time}, gpu_uuid, mig_instance, job_id, {rows.holder}"
        page = f"{query} ORDER BY {order} LIMIT :most"
        return self._frame(page, **_parameters(span), **place, most=most)

    def _count(self, rows: _TracedRows, span: TracedRange) -> int:
        frame = self._frame(rows.query("count(*) AS rows", after=False), **_parameters(span))
        return int(frame["rows"].iloc[0])


def _parameters(span: TracedRange) -> dict[str, Any]:
    return {
        "start": span.start,
        "end": span.end,
        "gpu_uuid": span.gpu_uuid,
        "job_id": span.job_id,
    }
