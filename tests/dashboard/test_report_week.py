"""The week of a report: 168 hours of the configured zone, whatever the clocks do."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.reports.week import Week, last_whole_week, next_week_end
from data.errors import SettingsError
from data.report_settings import WEEKDAYS, ReportSettings

BERLIN = ReportSettings(timezone="Europe/Berlin")


@pytest.mark.parametrize(
    ("now", "start", "end"),
    [
        ("2026-01-07T09:00", "2025-12-29 00:00 CET", "2026-01-05 00:00 CET"),
        # Clocks went forward on Sunday 29 March: the 168 h begin an hour early on the calendar.
        ("2026-03-31T09:00", "2026-03-22 23:00 CET", "2026-03-30 00:00 CEST"),
        # They went back on Sunday 25 October.
        ("2026-10-27T09:00", "2026-10-19 01:00 CEST", "2026-10-26 00:00 CET"),
    ],
)
def test_a_week_is_168_hours_up_to_a_local_midnight(now: str, start: str, end: str) -> None:
    """Also in the two weeks of the year in which a calendar week is not."""
    week = last_whole_week(datetime.fromisoformat(now).replace(tzinfo=UTC), BERLIN)
    assert (week.text(week.start), week.text(week.end)) == (start, end)
    assert week.end - week.start == timedelta(hours=168)


@given(
    st.integers(1_577_836_800, 2_051_222_400).map(lambda at: datetime.fromtimestamp(at, UTC)),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Pacific/Apia"]),
    st.sampled_from(WEEKDAYS),
)
def test_the_last_week_has_ended_and_the_next_has_not(now: datetime, zone: str, day: str) -> None:
    """End of the last week ≤ now < end of the next; both are midnights of the day named."""
    settings = ReportSettings(timezone=zone, week_ends=day)
    last, coming = last_whole_week(now, settings), next_week_end(now, settings)
    assert last.end <= now < coming
    for end in (last.end, coming):
        local = end.astimezone(ZoneInfo(zone))
        assert (local.hour, local.minute, WEEKDAYS[local.weekday()]) == (0, 0, day)


def test_the_name_is_the_local_date_of_its_end() -> None:
    """Midnight of Berlin is the evening before in UTC."""
    week = Week(end=datetime(2026, 1, 4, 23, tzinfo=UTC), zone="Europe/Berlin")
    assert week.name == "week-to-2026-01-05"


def test_days_begin_at_local_midnight_also_when_clocks_change() -> None:
    """A week to half past eleven has seven midnights inside; Berlin's last one is an hour early."""
    week = Week(end=datetime(2026, 3, 29, 23, 30, tzinfo=UTC), zone="Europe/Berlin")
    assert [f"{week.date_of(at):%m-%d} {at:%H}" for at in week.midnights()] == [
        *(f"03-{day} 23" for day in range(24, 30)),
        "03-30 22",
    ]
    whole = Week(end=datetime(2026, 1, 5, tzinfo=UTC), zone="UTC")
    assert whole.midnights()[0] == whole.start
    assert len(whole.midnights()) == 7


@pytest.mark.parametrize("wrong", [{"timezone": "Mars/Olympus"}, {"timezone": "../etc/passwd"}])
def test_an_unknown_zone_is_refused(wrong: dict[str, str]) -> None:
    """The setting and the value are named."""
    with pytest.raises(SettingsError, match=r"report\.timezone"):
        ReportSettings(**wrong)
    with pytest.raises(SettingsError, match=r"report\.week_ends"):
        ReportSettings(week_ends="caturday")
