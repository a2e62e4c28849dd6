"""The week of a report: from local midnight to local midnight, whatever the clocks do."""

import itertools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.accounting.energy.periods import Calendar, PeriodLength
from dashboard.reports.week.week import last_whole_week, week_filed, week_to
from data.base.errors import SettingsError
from data.settings.reports import WEEKDAYS, ReportSettings

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/Sao_Paulo",
    "America/Havana",
    "America/St_Johns",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Australia/Adelaide",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Africa/Casablanca",
)
BERLIN = ReportSettings(timezone="Europe/Berlin")


@pytest.mark.parametrize(
    ("now", "start", "end", "length"),
    [
        ("2026-01-07T09:00", "2025-12-29 00:00 CET", "2026-01-05 00:00 CET", "168 h"),
        (
            "2026-03-31T09:00",
            "2026-03-23 00:00 CET",
            "2026-03-30 00:00 CEST",
            "167 h, since the clocks changed",
        ),
        (
            "2026-10-27T09:00",
            "2026-10-19 00:00 CEST",
            "2026-10-26 00:00 CET",
            "169 h, since the clocks changed",
        ),
    ],
)
def test_a_week_runs_from_local_midnight_to_local_midnight(
    now: str, start: str, end: str, length: str
) -> None:
    """The two weeks of the year that are not 168 h long say so."""
    week = last_whole_week(datetime.fromisoformat(now).replace(tzinfo=UTC), BERLIN)
    assert (week.text(week.start), week.text(week.end)) == (start, end)
    assert week.length == length


@pytest.mark.parametrize("year", [1987, 2011, 2018, 2026])
@pytest.mark.parametrize("zone", ZONES)
def test_the_weeks_of_a_year_tile_time(zone: str, year: int) -> None:
    """Each begins where the one before ends; so do the mailed ones, and each has its own name."""
    for day in WEEKDAYS[:: 3 if zone != "Europe/Berlin" else 1]:
        settings = ReportSettings(timezone=zone, week_ends=day)
        week = last_whole_week(datetime(year + 1, 1, 10, 12, tzinfo=UTC), settings)
        names = {week.name}
        while week.end.year >= year:
            before = last_whole_week(week.end - timedelta(hours=1), settings)
            assert before.end == week.start
            assert week_filed(week.end, zone) == week
            assert before.name not in names
            names.add(before.name)
            week = before
        assert 52 <= len(names) <= 56


@pytest.mark.parametrize("every", [PeriodLength.DAY, PeriodLength.WEEK])
@pytest.mark.parametrize("zone", ZONES)
def test_days_and_weeks_of_a_statement_tile_time(zone: str, every: PeriodLength) -> None:
    """Every moment lies in one period; it is the one that the pieces number it into."""
    for year in (1987, 2011, 2018, 2026):
        start, end = datetime(year, 1, 1, 7, 5, tzinfo=UTC), datetime(year + 1, 1, 3, tzinfo=UTC)
        calendar = Calendar(every=every, zone=zone, week_begins=2)
        spans = calendar.spans(start, end)
        assert (spans[0][0], spans[-1][1]) == (start, end)
        assert all(since < until for since, until in spans)
        assert all(entry[1] == two[0] for entry, two in itertools.pairwise(spans))
        pieces = calendar.pieces(start, end)
        assert (pieces[0].start, pieces[-1].end) == (start, end)
        assert all(entry.end == two.start for entry, two in itertools.pairwise(pieces))
        for since, until in spans:
            for at in (since, since + (until - since) / 2, until - timedelta(seconds=1)):
                (piece,) = (entry for entry in pieces if entry.start <= at < entry.end)
                number = (at.timestamp() + piece.grid.shift_seconds) // piece.grid.seconds
                assert calendar.start_of(int(number), start) == since


@given(
    st.integers(1_577_836_800, 2_051_222_400).map(lambda at: datetime.fromtimestamp(at, UTC)),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Pacific/Apia"]),
    st.sampled_from(WEEKDAYS),
)
def test_the_last_week_has_ended_and_the_next_has_not(now: datetime, zone: str, day: str) -> None:
    """End of the last week ≤ now < end of the next; both are midnights of the day named."""
    settings = ReportSettings(timezone=zone, week_ends=day)
    last = last_whole_week(now, settings)
    coming = last_whole_week(last.end + timedelta(days=8), settings)
    assert last.end <= now < coming.end
    for end in (last.end, coming.end):
        local = end.astimezone(ZoneInfo(zone))
        assert (local.hour, local.minute, WEEKDAYS[local.weekday()]) == (0, 0, day)


def test_the_name_is_the_local_date_of_its_end() -> None:
    """Midnight of Berlin is the evening before in UTC."""
    week = week_to(datetime(2026, 1, 4, 23, tzinfo=UTC), "Europe/Berlin")
    assert week.name == "week-to-2026-01-05"


def test_days_begin_at_local_midnight_also_when_clocks_change() -> None:
    """A week to half past eleven has seven midnights inside; Berlin's last one is an hour early."""
    week = week_to(datetime(2026, 3, 29, 23, 30, tzinfo=UTC), "Europe/Berlin")
    assert [f"{week.date_of(at):%m-%d} {at:%H}" for at in week.midnights()] == [
        *(f"03-{day} 23" for day in range(24, 30)),
        "03-30 22",
    ]
    whole = week_to(datetime(2026, 1, 5, tzinfo=UTC), "UTC")
    assert whole.midnights()[0] == whole.start
    assert len(whole.midnights()) == 7


@pytest.mark.parametrize("wrong", [{"timezone": "Mars/Olympus"}, {"timezone": "../etc/passwd"}])
def test_an_unknown_zone_is_refused(wrong: dict[str, str]) -> None:
    """The setting and the value are named."""
    with pytest.raises(SettingsError, match=r"report\.timezone"):
        ReportSettings(**wrong)
