"""Types and words of options; nothing heavy is imported."""

import argparse
from datetime import UTC, datetime

_FIRST_YEAR, _LAST_YEAR = 1970, 2200
_DAY_SECONDS = 86_400.0
JOB_FIELDS = ("namespace", "application", "owner", "user", "state", "kind", "cluster")
JOB_ORDERS = {
    "name": "name",
    "waste": "waste",
    "gpu-hours": "GPU-hours",
    "energy": "energy",
    "last-seen": "last seen",
}
"""Words of the option, and what `data.store.facts.job_sql` calls them."""


def utc_time(text: str) -> datetime:
    """Read an ISO 8601 time with its zone, such as 2026-01-02T00:00:00Z, into UTC."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no ISO 8601 time such as 2026-01-02T00:00:00Z"
        ) from None
    if at.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} lacks its zone; add Z for UTC")
    try:
        at = at.astimezone(UTC)
    except OverflowError:
        at = datetime.max.replace(tzinfo=UTC)
    # Further away, counting days from it leaves the calendar.
    if not _FIRST_YEAR <= at.year <= _LAST_YEAR:
        raise argparse.ArgumentTypeError(f"{text!r} lies outside {_FIRST_YEAR} to {_LAST_YEAR}")
    return at


def watch_seconds(text: str) -> float:
    """Read after how many seconds something is shown again: 1 to a day."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= _DAY_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 1 to 86400")
    return seconds


def row_count(text: str) -> int:
    """Read how many rows are shown at most: 1 or more."""
    if not (text.isascii() and text.isdigit() and int(text[:9]) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows above 0")
    return int(text[:9])
