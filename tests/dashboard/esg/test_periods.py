"""Hours, days and weeks of a zone: each moment once, also where the clocks change."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.accounting.energy.periods import Calendar, PeriodLength

MONDAY = datetime(2026, 3, 22, 23, tzinfo=UTC)  # midnight in Berlin, the last week of winter time
AUTUMN = datetime(2025, 9, 1, tzinfo=UTC)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")


def test_the_day_on_which_clocks_go_forward_has_23_hours() -> None:
    """Seven days of a week of 167 hours, each from midnight to midnight in Berlin."""
    spans = Calendar(every=PeriodLength.DAY, zone="Europe/Berlin").spans(
        MONDAY, MONDAY + timedelta(hours=167)
    )
    hours = [(end - start) / timedelta(hours=1) for start, end in spans]
    assert hours == [24, 24, 24, 24, 24, 24, 23]


def test_a_day_of_two_offsets_is_read_in_two_pieces() -> None:
    """Both pieces number it alike, so that its rows meet again."""
    calendar = Calendar(every=PeriodLength.DAY, zone="Europe/Berlin")
    sunday, end = MONDAY + timedelta(days=6), MONDAY + timedelta(days=6, hours=23)
    winter, summer = calendar.pieces(sunday, end)
    assert summer.start - winter.start == timedelta(hours=2)
    assert (winter.grid.shift_seconds, summer.grid.shift_seconds) == (3600, 7200)
    numbers = {
        (at.timestamp() + piece.grid.shift_seconds) // piece.grid.seconds
        for piece in (winter, summer)
        for at in (piece.start, piece.end - timedelta(minutes=5))
    }
    (number,) = numbers
    assert calendar.start_of(int(number), MONDAY) == sunday


@pytest.mark.parametrize("begins", range(7))
def test_weeks_begin_on_their_weekday(begins: int) -> None:
    """The first and the last are cut to the range."""
    calendar = Calendar(every=PeriodLength.WEEK, zone="Europe/Berlin", week_begins=begins)
    start = MONDAY + timedelta(days=1)
    spans = calendar.spans(start, start + timedelta(days=20))
    assert spans[0][0] == start
    local = [entry.astimezone(ZoneInfo("Europe/Berlin")) for entry, _end in spans[1:]]
    assert {(entry.weekday(), entry.hour) for entry in local} == {(begins, 0)}


@settings(deadline=None)
@given(
    start=st.integers(0, 450 * 24 * 12).map(lambda slot: AUTUMN + timedelta(minutes=5 * slot)),
    hours=st.floats(0.1, 24 * 40),
    zone=st.sampled_from(ZONES),
    every=st.sampled_from(list(PeriodLength)),
    begins=st.integers(0, 6),
)
def test_periods_and_pieces_are_the_range(
    start: datetime, hours: float, zone: str, every: PeriodLength, begins: int
) -> None:
    """No gap, no overlap; every quarter of an hour is numbered into the period that holds it."""
    end = start + timedelta(hours=hours)
    calendar = Calendar(every=every, zone=zone, week_begins=begins)
    spans = calendar.spans(start, end)
    assert (spans[0][0], spans[-1][1]) == (start, end)
    assert all(entry[1] == two[0] for entry, two in pairwise(spans))
    pieces = calendar.pieces(start, end)
    assert (pieces[0].start, pieces[-1].end) == (start, end)
    assert all(entry.end == two.start for entry, two in pairwise(pieces))
    for piece in pieces:
        at = piece.start
        while at < piece.end:
            seconds = piece.grid.seconds
            number = int((at.timestamp() + piece.grid.shift_seconds) // seconds) if seconds else 0
            (holding,) = [span for span in spans if span[0] <= at < span[1]]
            assert calendar.start_of(number, start) == holding[0]
            at += timedelta(hours=7, minutes=15)


def test_an_hour_is_named_with_its_zone() -> None:
    """The hour that comes twice in autumn can be told apart."""
    calendar = Calendar(every=PeriodLength.HOUR, zone="Europe/Berlin")
    first = datetime(2026, 10, 25, 0, tzinfo=UTC)
    names = [calendar.name_of(first + timedelta(hours=hour)) for hour in (0, 1)]
    assert names == ["2026-10-25 02:00 CEST", "2026-10-25 02:00 CET"]
