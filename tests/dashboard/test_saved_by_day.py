"""Savings to date: every hour from a change until its end counts once, at that hour's price."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawn import examples
from factories import NOW, make_job, make_journal_row, make_range, make_recommendation
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_cases import H100

from dashboard.accounting.savings.daily_savings import (
    DaySaved,
    run_rate,
    saved_by_day,
    standing_times,
    summed,
)
from dashboard.accounting.savings.ledger import sum_of
from dashboard.apply.worker import verification
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.columns import HISTORY, SAMPLES, check_frame, empty_frame
from data.records.actions import Action
from data.records.commands import JournalRow
from data.records.plans import Configuration
from data.records.recommendations import Recommendation, Savings
from data.settings.all_settings import PlanningSettings, Settings
from data.settings.energy import EnergySettings

BOARD = load_gpu_catalogue().get(H100)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
PRICES = tuple(0.1 + 0.02 * hour for hour in range(24))
PUE = 1.5
WORK = 1.0
"""Boards of work, before the change and since."""


class Past:
    """A reader of one job: 4 boards with 400 W for a board of work, then 2 boards with 300 W."""

    def __init__(
        self, changed: datetime, latest: datetime, one: Recommendation, rows: Sequence[JournalRow]
    ) -> None:
        self.changed, self.latest, self.one, self.rows = changed, latest, one, rows
        self.last_seen = latest

    def journal(self, *, events: tuple[str, ...]) -> list[JournalRow]:
        """The rows of these events."""
        return [row for row in self.rows if row.event in events]

    def recommendations_of(self, digests: Iterable[str], *, now: datetime) -> dict[str, Any]:
        """The one there is."""
        return {
            digest: SimpleNamespace(recommendation=self.one, reference="TT-1") for digest in digests
        }

    def latest_sample_at(self) -> datetime:
        """The newest sample."""
        return self.latest

    def job(self, _job_id: str) -> Any:
        """The job as it was seen last."""
        return make_job(last_seen_at=self.last_seen)

    def power_readings(self, **_wanted: Any) -> pd.DataFrame:
        """No reading: what free boards draw is that of the catalogue."""
        return empty_frame(SAMPLES)

    def energy(self, **_wanted: Any) -> pd.DataFrame:
        """Nothing is shared."""
        return pd.DataFrame({"key": []})

    def job_history(
        self, job_id: str, *, start: datetime, end: datetime, slot_seconds: int
    ) -> pd.DataFrame:
        """The slots of a window."""
        step = timedelta(seconds=slot_seconds)
        starts = [start + number * step for number in range((end - start) // step)]
        later = np.array([at >= self.changed for at in starts])
        stopped = not self.one.proposed.gpu_count
        boards = np.where(later, 2.0, 4.0)
        frame = pd.DataFrame(
            {
                "job_id": job_id,
                "slot_start": pd.to_datetime(pd.Series(starts, dtype="datetime64[us, UTC]")),
                "effective_gpus": 0.0 if stopped else WORK,
                "utilization_ratio": 0.0 if stopped else WORK / boards,
                "sample_count": 60,
                "allocated_gpus": boards,
                "memory_used_mib": 1_000.0,
                "power_watts": boards * BOARD.idle_watts
                + (0.0 if stopped else 1.0) * np.where(later, 300.0, 400.0) * WORK,
            }
        )
        return frame[~later] if stopped else frame


@pytest.fixture(autouse=True)
def _sure_overhead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PUE that is known."""
    monkeypatch.setattr(verification, "PUE_UNCERTAINTY", 0.0)


def site(slot_minutes: int = 60) -> Settings:
    """Settings with a price for each hour (UTC) and no doubt about the site."""
    return replace(
        Settings(),
        planning=PlanningSettings(slot_minutes=slot_minutes),
        energy=EnergySettings(
            pue=PUE,
            electricity_price_by_hour=",".join(map(str, PRICES)),
        ),
    )


def advice(**changes: Any) -> Recommendation:
    """Half of a service's four boards."""
    now = Configuration(gpu_model=H100, gpu_count=4)
    values: dict[str, Any] = {
        "now": now,
        "proposed": replace(now, gpu_count=2),
        "delay_hours": None,
        "savings": Savings(
            horizon_hours=24,
            gpu_hours=make_range(48, "GPU-h"),
            energy_kwh=make_range(2.4, "kWh"),
            emissions_kgco2e=None,
            cost=None,
        ),
    }
    return make_recommendation(**(values | changes))


def days_of(past: Past, slot_minutes: int = 60) -> tuple[DaySaved, ...]:
    """What was saved on each day."""
    reader: Any = past
    return saved_by_day(reader, site(slot_minutes), now=past.latest)


@settings(max_examples=examples(25), deadline=None)
@given(
    minute=st.integers(0, 24 * 60),
    lasted=st.integers(1, 100),
    slot_minutes=st.sampled_from([5, 15, 30, 60]),
)
def test_every_hour_counts_once_at_its_price(minute: int, lasted: int, slot_minutes: int) -> None:
    """Against a sum by hand: 2 boards' rent and 100 W a board of work, slot by slot."""
    step = timedelta(minutes=slot_minutes)
    begun = NOW + timedelta(minutes=minute)
    changed = NOW + (begun - NOW) // step * step
    latest = changed + step + lasted * HOUR
    rows = [make_journal_row("sending", begun), make_journal_row("applied", begun)]
    found = days_of(Past(changed, latest, advice(), rows), slot_minutes)
    slots = [changed + step + number * step for number in range(lasted * HOUR // step)]
    hours = slot_minutes / 60
    rent = 2 * BOARD.price_per_hour * hours * len(slots)
    kwh = [0.1 * WORK * PUE * hours for _slot in slots]
    money = rent + sum(value * PRICES[at.hour] for value, at in zip(kwh, slots, strict=True))
    (every,) = summed(found, "all")
    assert every.gpu_hours is not None
    assert every.energy_kwh is not None
    assert every.money is not None
    assert every.gpu_hours.central == pytest.approx(2 * hours * len(slots), rel=1e-9)
    assert every.energy_kwh.central == pytest.approx(sum(kwh), rel=1e-6)
    assert every.money.central == pytest.approx(money, rel=1e-6)
    assert every.money.low <= every.money.central <= every.money.high
    assert every.unknown_days == 0
    assert [day_saved.day for day_saved in found] == sorted({at.date() for at in slots})
    assert sum(day_saved.measurement.hours for day_saved in found) == pytest.approx(
        hours * len(slots)
    )
    for day_saved in found:
        held, without = (
            day_saved.measurement.board_hours_with,
            day_saved.measurement.board_hours_without,
        )
        assert held is not None
        assert without is not None
        saved = day_saved.measurement.realised_gpu_hours
        assert saved is not None
        assert held + saved.central == pytest.approx(without, rel=1e-9)
        assert day_saved.money is not None
        assert day_saved.measurement.realised_energy_kwh is not None
        price = np.mean([PRICES[at.hour] for at in slots if at.date() == day_saved.day])
        energy = day_saved.measurement.realised_energy_kwh
        for side, guessed in (("low", 0.4), ("high", 1.4)):
            unsure = np.hypot(
                BOARD.price_per_hour * (getattr(saved, side) - saved.central),
                price * (getattr(energy, side) - energy.central),
            )
            off = abs(getattr(day_saved.money, side) - day_saved.money.central)
            # Nobody stated a price: it may be 0.6 to 2.4 times what the catalogue has.
            rent = BOARD.price_per_hour * getattr(saved, side)
            assert off == pytest.approx(unsure + guessed * rent, abs=1e-9)


@pytest.mark.parametrize(
    ("events", "stretches"),
    [
        ([], []),
        (["sending"], []),
        (["sending", "applied"], [(0, 1, None)]),
        (["sending", "sending", "applied"], [(0, 2, None)]),
        (["sending", "applied", "sending", "rolled-back"], [(0, 1, 3)]),
        (["sending", "failing", "applied", "undone-outside"], [(0, 1, 3)]),
        (
            ["sending", "applied", "sending", "rolled-back", "sending", "applied"],
            [(0, 1, 3), (4, 5, None)],
        ),
        (["applied", "replaced"], [(0, 0, 1)]),
        (["sending", "rolled-back"], []),
    ],
)
def test_a_change_saves_while_it_stands(
    events: list[str], stretches: list[tuple[int, int, int | None]]
) -> None:
    """From when it was concluded until it was undone, and again when it was made again."""
    rows = [make_journal_row(event, NOW + number * HOUR) for number, event in enumerate(events)]
    found = [(time.begun, time.concluded, time.ended) for time in standing_times(rows)]
    assert found == [
        tuple(None if number is None else NOW + number * HOUR for number in stretch)
        for stretch in stretches
    ]


class IdlePast(Past):
    """Four boards without work: 100 W each by night, 300 W each from noon on, 90 W since."""

    def job_history(self, *one: Any, **named: Any) -> pd.DataFrame:
        """The slots of a window."""
        frame = super().job_history(*one, **named)
        by_day = frame["slot_start"].dt.hour >= 12
        before = np.where(by_day, 300.0, 100.0)
        since = frame["slot_start"] >= self.changed
        return frame.assign(
            effective_gpus=0.0,
            allocated_gpus=4.0,
            power_watts=4 * np.where(since, 90.0, before),
        )


def test_an_idle_job_is_compared_with_the_same_hours() -> None:
    """Every afternoon with the afternoon before the change, in whatever hour that was made."""
    midnight = NOW.replace(hour=0) + DAY
    begun = midnight + 13 * HOUR
    capped = advice(action=Action.POWER_CAP, proposed=Configuration(gpu_model=H100, gpu_count=4))
    rows = [make_journal_row("sending", begun), make_journal_row("applied", begun)]
    past = IdlePast(begun, midnight + 2 * DAY + 12 * HOUR, capped, rows)
    saved = [day_saved.measurement.realised_energy_kwh for day_saved in days_of(past)]
    watts = [(300 - 90) * 10, (100 - 90) * 12 + (300 - 90) * 12, (100 - 90) * 12]
    assert [entry.central for entry in saved if entry is not None] == pytest.approx(
        [4 * watt / 1000 * PUE for watt in watts]
    )


def hours_of(past: Past) -> float:
    """The hours that counted."""
    return sum(saved.measurement.hours for saved in days_of(past))


def test_nothing_is_saved_after_the_end() -> None:
    """Of the change, of the job, of a stopped job's horizon."""
    begun = [make_journal_row("sending", NOW), make_journal_row("applied", NOW)]
    past = Past(NOW, NOW + 10 * DAY, advice(), begun)
    assert hours_of(past) == 239
    past.rows = [*begun, make_journal_row("rolled-back", NOW + 2 * DAY)]
    assert hours_of(past) == 47
    past.rows, past.last_seen = begun, NOW + 3 * DAY
    assert hours_of(past) == 71
    stopped = advice(proposed=Configuration(gpu_model=H100, gpu_count=0))
    assert hours_of(Past(NOW, NOW + 10 * DAY, stopped, begun)) == 24


def test_a_change_of_this_minute_has_saved_nothing_yet() -> None:
    """Nor has a change of the fleet, which has no job to measure by."""
    begun = [make_journal_row("sending", NOW), make_journal_row("applied", NOW)]
    assert days_of(Past(NOW, NOW, advice(), begun)) == ()
    fleet = advice(job_id="", job_name="node-7")
    assert days_of(Past(NOW, NOW + DAY, fleet, begun)) == ()
    assert summed((), "all") == ()


BEGUN = [make_journal_row("sending", NOW), make_journal_row("applied", NOW)]


@pytest.mark.parametrize("hours", [2, 30, 240])
def test_a_run_rate_is_a_day_of_what_is_saved_now(hours: int) -> None:
    """2 boards and 100 W a board of work, however long the change has stood; a year is 365 such."""
    past = Past(NOW, NOW + hours * HOUR, advice(), BEGUN)
    found = days_of(past)
    rate = run_rate(found, past.latest)
    assert (rate.changes, rate.unknown_changes) == (1, 0)
    day, year = rate.per_day, rate.per_year
    assert day.gpu_hours is not None
    assert day.energy_kwh is not None
    assert rate.lasting_changes == (hours >= 24)
    assert (year.money is not None) == (hours >= 24)
    assert ("no year is told" in rate.text) == (hours < 24)
    assert day.gpu_hours.central == pytest.approx(48)
    assert day.energy_kwh.central == pytest.approx(0.1 * WORK * PUE * 24)
    counted = [saved for saved in found if saved.until > past.latest - 2 * DAY]
    money = sum_of([saved.money for saved in counted if saved.money is not None])
    share = 365 * 24 / sum(saved.measurement.hours for saved in counted)
    assert money is not None
    assert (
        year.money is None
        or year.money == money.times(share)
        or year.money.high == pytest.approx(money.high * share)
    )
    (whole,) = summed(found, "all", at=past.latest)
    assert whole.run_rate == rate
    assert {every.run_rate for every in summed(found, "day", at=past.latest)} == {None}


def test_a_job_that_was_ended_saves_in_a_day_and_in_no_year() -> None:
    """Nobody can say that it would have been held for a year; beside it the others are told."""
    ended = advice(action=Action.RECLAIM, proposed=Configuration(gpu_model=H100, gpu_count=0))
    end, later = NOW + 26 * HOUR, NOW + 4 * HOUR
    gone = days_of(
        Past(
            NOW,
            end,
            ended,
            [make_journal_row("sending", later), make_journal_row("applied", later)],
        )
    )
    kept = days_of(Past(NOW, end, advice(job_id="a/b"), BEGUN))
    alone = run_rate(gone, end)
    assert (alone.changes, alone.lasting_changes, alone.per_year.money) == (1, 0, None)
    assert alone.per_day.gpu_hours is not None
    assert "no year is told" in alone.text
    both = run_rate([*gone, *kept], end)
    assert (both.changes, both.lasting_changes) == (2, 1)
    assert both.per_year == run_rate(kept, end).per_year
    assert "a year at that rate, without 1 change that ended a job" in both.text


def test_what_no_longer_stands_saves_nothing_now() -> None:
    """What it saved to date stays; before its end it had a rate."""
    past = Past(
        NOW, NOW + 3 * DAY, advice(), [*BEGUN, make_journal_row("rolled-back", NOW + 2 * DAY)]
    )
    found = days_of(past)
    ended = run_rate(found, past.latest)
    assert (ended.changes, ended.per_day.gpu_hours) == (0, None)
    assert "none stands" in ended.text
    assert run_rate(found, NOW + DAY).per_day.gpu_hours is not None
    (whole,) = summed(found, "all", at=past.latest)
    assert whole.gpu_hours is not None
    past.rows, past.last_seen = BEGUN, NOW + DAY
    assert run_rate(days_of(past), past.latest).changes == 0


def test_an_unknown_part_of_a_rate_is_named() -> None:
    """It is no zero, neither alone nor beside what is known."""
    other = advice(proposed=Configuration(gpu_model="X9000", gpu_count=2))
    unknown, known = (
        days_of(Past(NOW, NOW + DAY, wanted, BEGUN)) for wanted in (other, advice(job_id="a/b"))
    )
    alone = run_rate(unknown, NOW + DAY)
    assert (alone.changes, alone.unknown_changes, alone.per_year.money) == (1, 1, None)
    assert "money unknown a day" in alone.text
    both = run_rate([*unknown, *known], NOW + DAY)
    assert (both.changes, both.unknown_changes) == (2, 1)
    assert both.per_day.money == run_rate(known, NOW + DAY).per_day.money
    assert "of 1 a part is unknown" in both.text


def test_an_unknown_price_is_unknown_money() -> None:
    """Of a model that the catalogue does not know, and of power that was not reported."""
    begun = [make_journal_row("sending", NOW), make_journal_row("applied", NOW)]
    other = advice(proposed=Configuration(gpu_model="X9000", gpu_count=2))
    (one, *_rest) = days_of(Past(NOW, NOW + DAY, other, begun))
    assert one.money is None
    assert one.measurement.reasons


def test_the_columns_of_a_history_are_all_there() -> None:
    """The past of these tests is what a store gives."""
    past = Past(NOW, NOW + DAY, advice(), [])
    frame = past.job_history("a", start=NOW, end=NOW + HOUR, slot_seconds=900)
    assert len(check_frame(frame, HISTORY)) == 4
