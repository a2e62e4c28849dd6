"""The parts of a range are its whole: split anywhere, in any zone, fine roll-ups kept or not."""

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from beds.stores import ENGINES
from drawn import examples
from factories import make_collected, make_job, make_samples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dashboard.accounting.energy.periods import Calendar, PeriodLength
from data.settings.all_settings import RetentionSettings
from data.store import Store, open_store
from data.store.facts.energy_parts import EnergyKey, Periods

BOARDS = 2
START = datetime(2018, 10, 31, tzinfo=UTC)
"""Clocks go forward in São Paulo on 4 November 2018 at midnight, back in New York at 2:00."""
DAYS = 7
END = START + timedelta(days=DAYS)
SUMS = ("board_seconds", "joules", "joules_by_slices", "held_seconds", "scored_joules")
ZONES = (
    "UTC",
    "America/Sao_Paulo",
    "America/New_York",
    "America/St_Johns",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
)
ANY_TIME = st.integers(0, DAYS * 86_400).map(lambda second: START + timedelta(seconds=second))


def filled(store: Store, *, forgotten: bool) -> Store:
    """Seven days of two boards whose power is never the same; the first five only by the hour."""
    minutes = DAYS * 24 * 60 // 4 + 1
    times = pd.date_range(START, END, periods=minutes).as_unit("us")
    samples = make_samples(gpus=BOARDS, minutes=minutes, end=END)
    samples["sampled_at"] = np.tile(times, BOARDS)
    samples["power_watts"] = 100 + np.arange(len(samples)) % 617
    store.keep(make_collected(samples, jobs=(make_job(),)))
    if forgotten:
        store.forget(
            RetentionSettings(raw_days=1, five_minute_days=2, hourly_days=30),
            END - timedelta(hours=1),
        )
    return store


@pytest.fixture(scope="module", params=[False, True], ids=["whole", "forgotten"])
def forgotten(request: pytest.FixtureRequest) -> bool:
    """Whether the store lacks its older fine roll-ups."""
    return bool(request.param)


@pytest.fixture(scope="module", params=ENGINES)
def filled_store(
    request: pytest.FixtureRequest, forgotten: bool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    """One for all tests of an engine."""
    if request.param == "duckdb":
        with open_store(f"duckdb:///{tmp_path_factory.mktemp('e')}/t.duckdb") as store:
            yield filled(store, forgotten=forgotten)
    else:
        bed = request.getfixturevalue("postgres")
        with bed.database(template="store_template") as url, open_store(url) as store:
            yield filled(store, forgotten=forgotten)


def parts(store: Store, start: datetime, end: datetime, grid: Periods) -> pd.DataFrame:
    """The sums of each period."""
    found = store.reader.energy_parts(
        start=start, end=end, key=EnergyKey.FLEET, periods=grid, hour_shift=None
    )
    return found.groupby("period")[list(SUMS)].sum()


def whole(store: Store, start: datetime, end: datetime) -> np.ndarray:
    """The sums of a range."""
    return parts(store, start, end, Periods()).sum().to_numpy()


@settings(
    max_examples=examples(12),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(ANY_TIME, min_size=3, max_size=6, unique=True).map(sorted))
def test_the_parts_of_a_range_add_up(filled_store: Store, cuts: list[datetime]) -> None:
    """Split at any second."""
    pieces = [whole(filled_store, entry, two) for entry, two in itertools.pairwise(cuts)]
    total = whole(filled_store, cuts[0], cuts[-1])
    np.testing.assert_allclose(np.sum(pieces, axis=0), total, rtol=1e-9, atol=1e-6)
    if filled_store.reader.counts()["five_minute"] >= BOARDS * DAYS * 288:  # nothing forgotten
        parted = sum(energy(filled_store, entry, two) for entry, two in itertools.pairwise(cuts))
        assert parted == pytest.approx(energy(filled_store, cuts[0], cuts[-1]), rel=1e-9)


def energy(store: Store, start: datetime, end: datetime) -> float:
    """The energy of a range as the jobs page reads it, kWh."""
    return float(store.reader.energy(start=start, end=end, by="fleet")["energy_kwh"].sum())


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ANY_TIME, st.integers(1, 240))
def test_a_range_counts_only_itself(filled_store: Store, start: datetime, minutes: int) -> None:
    """Twenty minutes of one board are 1,200 board-seconds, wherever they lie; to a slot."""
    end = min(start + timedelta(minutes=minutes), END)
    seconds = (end - start).total_seconds()
    counted = whole(filled_store, start, end)[0] / BOARDS
    assert abs(counted - seconds) < 300 + 1e-6
    start = datetime.fromtimestamp(start.timestamp() // 300 * 300, UTC)
    end = min(start + timedelta(minutes=5 * minutes), END)
    counted = whole(filled_store, start, end)[0] / BOARDS
    assert counted == pytest.approx((end - start).total_seconds(), rel=1e-9)


@pytest.mark.parametrize("every", [PeriodLength.DAY, PeriodLength.WEEK])
@pytest.mark.parametrize("zone", ZONES)
def test_days_of_any_zone_are_as_long_as_they_were(
    filled_store: Store, zone: str, every: PeriodLength
) -> None:
    """Board-time of each is its length by the clock; their sum is the whole range."""
    start, end = START + timedelta(hours=5, minutes=25), END - timedelta(minutes=50)
    calendar = Calendar(every=every, zone=zone)
    found: dict[datetime, np.ndarray] = {}
    for piece in calendar.pieces(start, end):
        for number, row in parts(filled_store, piece.start, piece.end, piece.grid).iterrows():
            at = calendar.start_of(int(str(number)), start)
            found[at] = found.get(at, np.zeros(len(SUMS))) + row.to_numpy()
    spans = dict(calendar.spans(start, end))
    assert sorted(found) == sorted(spans)
    for since, until in spans.items():
        assert found[since][0] == pytest.approx(
            BOARDS * (until - since).total_seconds(), rel=1e-9
        ), since.astimezone(ZoneInfo(zone))
    total = whole(filled_store, start, end)
    np.testing.assert_allclose(sum(found.values()), total, rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("shift", [0, 7200, -9000, 20700, 37800])
def test_an_hour_of_day_is_that_of_its_offset(filled_store: Store, shift: int) -> None:
    """As periods of an hour of that offset number them, also where it is no whole hour."""

    def by_hour(grid: Periods, hour_shift: int | None) -> pd.DataFrame:
        found = filled_store.reader.energy_parts(
            start=START, end=END, key=EnergyKey.FLEET, periods=grid, hour_shift=hour_shift
        )
        hour = found["period"] % 24 if hour_shift is None else found["hour_of_day"]
        return found.groupby(hour.rename("hour"))[list(SUMS)].sum()

    numbered = by_hour(Periods(seconds=3600, shift_seconds=shift), None)
    pd.testing.assert_frame_equal(by_hour(Periods(), shift), numbered)
