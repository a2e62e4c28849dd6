"""Windows of changes: days, hours, nights, and days on which clocks change."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.base.errors import SettingsError
from data.settings.apply import ApplySettings, change_windows, next_opening

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
ZONES = ("UTC", "Asia/Kolkata", "Europe/Berlin", "America/New_York")
MONDAY = datetime(2026, 1, 5, 12, tzinfo=UTC)


def opening(text: str, now: datetime = MONDAY, zone: str = "UTC") -> datetime | None:
    """When the windows of a text open next."""
    return next_opening(change_windows(text), now, ZoneInfo(zone))


@pytest.mark.parametrize(
    ("text", "opens_at"),
    [
        ("", None),
        ("12:00-12:01", None),
        ("11:00-12:00", "2026-01-06T11:00"),
        ("Mon-Fri 22:00-06:00", "2026-01-05T22:00"),
        ("sat, sun", "2026-01-10T00:00"),
        ("Sun 22:00-13:00", None),
        ("Sun 22:00-12:00", "2026-01-11T22:00"),
        ("Fri-Mon", None),
        ("Fri-Sun 10:00-11:00,Tue 00:00-01:00", "2026-01-06T00:00"),
        ("Mon 11:00-12:00", "2026-01-12T11:00"),
    ],
)
def test_the_next_opening_is_told(text: str, opens_at: str | None) -> None:
    """None while one is open; a night belongs to the day on which it begins."""
    found = opening(text)
    assert (None if found is None else f"{found:%Y-%m-%dT%H:%M}") == opens_at


@pytest.mark.parametrize(
    "text",
    ["nights", "Mon-", "25:00-26:00", "22:00-22:00", "Mon 22:00", "Mon22:00-23:00",
     "Mo 22:00-23:00", "22-06", "Mon,x", "Mon Tue"],
)  # fmt: skip
def test_what_is_no_window_is_refused(text: str) -> None:
    """With the setting, the value and what is expected."""
    with pytest.raises(SettingsError, match=r"apply\.window.*Mon-Fri 22:00-06:00"):
        ApplySettings(window=text)


@given(
    days=st.sets(st.sampled_from(DAYS), min_size=1),
    begin=st.integers(0, 95),
    length=st.integers(1, 95),
    start=st.integers(0, 365 * 96),
    zone=st.sampled_from(ZONES),
)
def test_it_opens_when_a_walk_through_time_says(
    days: set[str], begin: int, length: int, start: int, zone: str
) -> None:
    """A quarter of an hour at a time, whatever the zone, through both changes of its clocks."""
    first, last = (f"{at % 96 // 4:02}:{at % 4 * 15:02}" for at in (begin, begin + length))
    windows = change_windows(",".join(f"{day} {first}-{last}" for day in sorted(days)))
    now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=15 * start)
    found = next_opening(windows, now, ZoneInfo(zone))
    walk = (now + timedelta(minutes=15 * step) for step in range(8 * 96 + 8))
    local = ((at, at.astimezone(ZoneInfo(zone))) for at in walk)
    opens = next(at for at, there in local if any(window.holds(there) for window in windows))
    assert (found or now) == opens
