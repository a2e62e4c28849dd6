"""Exact unit conversions and the unit names that Trimtab prints.

Every quantity carries its unit in its name; conversion happens here and only here.
"""

from typing import Any

MIB_PER_GIB = 1024
BYTES_PER_MIB = 1_048_576
JOULES_PER_KWH = 3_600_000
SECONDS_PER_HOUR = 3600
SECONDS_PER_DAY = 86_400
HOURS_PER_YEAR = 8760
GRAMS_PER_KILOGRAM = 1000
SLOT_SECONDS = 300
"""Of the slots that readings are counted in; a plan has slots of its own."""
MIN_COVERAGE_RATIO = 0.5
"""Known share of a history below which it says too little to change or to measure a job by."""
IDLE_RATIO = 0.01
"""Utilization up to which a board counts as idle: counters round, and probes touch boards."""
SAME_BOARDS = 0.05
"""A slot's mean number of boards that is off by less is of that number."""


def bytes_to_mib(size_bytes: float) -> float:
    """Return the size in MiB (2**20 B) for a size in bytes."""
    return size_bytes / BYTES_PER_MIB


def known(value: Any) -> float | None:
    """Return a sum of a table as a number, None when no part of it is known: None or NaN."""
    return None if value is None or value != value else float(value)


def gib(mib: float) -> str:
    """Return MiB as text in GiB, without the unit."""
    return f"{mib / MIB_PER_GIB:.1f}"
