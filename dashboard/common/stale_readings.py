"""Check that the newest readings of a live source are fresh enough to propose from them."""

from datetime import datetime, timedelta

from data.store import StoreReader

_MAX_AGE = timedelta(hours=1)
"""Four cycles: a source that was missed for longer is down, and what it said may be over."""
REMEDY = "Run `trimtab doctor`, mend the source, then run a cycle."


def stale_reason(reader: StoreReader, *, as_of: datetime | None, now: datetime) -> str:
    """Return the reason to propose nothing at `now` from readings up to `as_of`; '' for none.

    A recording has no age: its newest reading is its present.
    """
    if as_of is None or now - as_of <= _MAX_AGE or reader.recording() is not None:
        return ""
    age = (now - as_of) / timedelta(hours=1)
    text = f"{age / 24:.1f} d" if age >= 48 else f"{age:.1f} h"
    return (
        f"the newest reading is of {as_of:%Y-%m-%d %H:%M} UTC, {text} old: nothing is proposed "
        f"from readings older than {_MAX_AGE / timedelta(minutes=1):g} min"
    )
