"""What of a range answer can be read: series of readings within the time that was asked for.

Servers are not trusted: whatever does not have the form of an answer is left out and counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from data.storable_text import storable


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAnswer:
    """The series that could be read, and how many series and readings could not."""

    series: list[dict[str, Any]]
    broken_series: int
    broken_readings: int


def read_answer(found: Sequence[Any], start: datetime, end: datetime) -> ReadAnswer:
    """Return the series (`metric`, `values`) of the `result` of a matrix, within [start, end].

    A value is left as the server wrote it; that it is no number is for the reader of values.
    """
    series, broken, readings = [], 0, 0
    # Prometheus rounds times to ms, and the library the question to s.
    first, last = start.timestamp() - 1, end.timestamp() + 1
    for entry in found:
        labels = entry.get("metric") if isinstance(entry, dict) else None
        values = entry.get("values") if isinstance(entry, dict) else None
        if not _are_labels(labels) or not isinstance(values, list):
            broken += 1
            continue
        kept = [point for point in values if _is_reading(point, first, last)]
        readings += len(values) - len(kept)
        if kept:
            metric = {storable(name): storable(value) for name, value in (labels or {}).items()}
            series.append({"metric": metric, "values": kept})
    return ReadAnswer(series=series, broken_series=broken, broken_readings=readings)


def _are_labels(found: object) -> bool:
    return isinstance(found, dict) and all(isinstance(entry, str) for entry in found.values())


def _is_reading(point: object, first: float, last: float) -> bool:
    return (
        isinstance(point, list)
        and len(point) == 2
        and isinstance(point[0], int | float)
        and first <= point[0] <= last
        # A whole number here is none that a server writes, and may be too large for a float.
        and not isinstance(point[1], int)
    )
