"""Time in UTC: the only place that reads the wall clock, and the checks that times carry a zone."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """Give the current time, aware, in UTC."""
    return datetime.now(tz=UTC)


def require_utc(name: str, at: datetime) -> None:
    """Refuse a time without a zone or in another zone than UTC (ValueError)."""
    offset = at.utcoffset()
    if offset is None:
        raise ValueError(f"{name} must be UTC-aware, got a naive time {at.isoformat()}")
    if offset.total_seconds() != 0:
        raise ValueError(f"{name} must be in UTC, got {at.isoformat()}")


def floor_to_slot(at: datetime, slot_seconds: int) -> datetime:
    """Give the start of the slot (counted from the epoch, UTC) that holds `at`."""
    return datetime.fromtimestamp(int(at.timestamp()) // slot_seconds * slot_seconds, tz=UTC)
