"""Savings of applied changes so far: a row for each change and day (UTC), until each ends.

Every day is measured as the first hours after a change are
(`dashboard/apply/worker/verification.py`): against what the job would have held and drawn without
it. A change saves from the slot after it was applied until it is undone, replaced or its job is
over. A job that was stopped saves for the horizon of what was promised: nobody can say that it
would have been held for longer.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

import numpy as np
import pandas as pd

from dashboard.accounting.cost.prices import as_paid, price_list
from dashboard.accounting.savings.ledger import ENDED_OUTCOMES, STANDING_OUTCOMES, sum_of
from dashboard.accounting.savings.shown_money import in_price_range
from dashboard.apply.worker.verification import BASELINE_WINDOW, MAX_READINGS, compare, split_energy
from dashboard.common.figures import range_text
from data.base.clock import floor_to_slot
from data.base.counts import count_text
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.commands import JournalRow, Measurement, Work
from data.records.lifecycle import LifecycleEvent
from data.records.recommendations import Range, Recommendation
from data.settings.all_settings import Settings
from data.store import StoreReader
from forecasting.power.free_boards import with_measured_idle
from planner.costs.tariffs import tariff_of

_DAY, _YEAR_DAYS = timedelta(days=1), 365
_RATE_OVER = timedelta(days=2)
"""A night and a weekday's work count in a rate, whatever the hour."""
_ENDED_AFTER = timedelta(hours=1)
"""A job that telemetry has not named for so long, up to the newest sample, is over."""
TOO_SHORT = "ended a job or was measured for less than a day"
NO_YEAR = f"no year is told, as each {TOO_SHORT}"
_UNDO_EVENTS = (str(LifecycleEvent.ROLLED_BACK), *ENDED_OUTCOMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingTime:
    """A time for which a change stood: begun, concluded and ended (None: it stands)."""

    begun: datetime
    concluded: datetime
    ended: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySaved:
    """Savings of a change on one day. `money` is rent and electricity, None where unknown.

    Measured are the slots of the day from `start` to `until`.
    """

    reference: str
    recommendation: Recommendation
    start: datetime
    until: datetime
    measurement: Measurement
    money: Range | None

    @property
    def day(self) -> date:
        """The day (UTC)."""
        return self.start.date()


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedAmounts:
    """Savings in a time; None where unknown."""

    gpu_hours: Range | None
    energy_kwh: Range | None
    emissions_kgco2e: Range | None
    money: Range | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRate:
    """Savings of the changes that stand in a day, as on their newest days, and in a year like it.

    A sum is of its known parts, None without any. `unknown_changes` of the `changes` have a part
    that is unknown. The year is of `lasting_changes`: measured for a day, and no end of a job.
    """

    changes: int
    unknown_changes: int
    per_day: SavedAmounts
    lasting_changes: int
    per_year: SavedAmounts

    @property
    def text(self) -> str:
        """The rate in one sentence."""
        if not self.changes:
            return "No change saves anything now: none stands."
        year = NO_YEAR
        if self.lasting_changes:
            rest = self.changes - self.lasting_changes
            year = f"{_amounts_text(self.per_year)} a year at that rate"
            year += f", without {count_text(rest, 'change', 'changes')} that {TOO_SHORT}" * (
                rest > 0
            )
        return f"Run rate: {_amounts_text(self.per_day)} a day; {year}. {self.standing}"

    @property
    def standing(self) -> str:
        """Number of its changes, in words."""
        note = f"; of {self.unknown_changes} a part is unknown" * bool(self.unknown_changes)
        return f"{count_text(self.changes, 'change stands', 'changes stand')} now{note}."


AMOUNTS = {
    "gpu_hours": "GPU-hours",
    "energy_kwh": "energy",
    "emissions_kgco2e": "emissions",
    "money": "money",
}
"""Of `SavedAmounts`, as people call them."""


def _amounts_text(amounts: SavedAmounts) -> str:
    return ", ".join(
        range_text(getattr(amounts, part), unknown=f"{name} unknown")
        for part, name in AMOUNTS.items()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSum:
    """Savings of the changes of one group in all; a sum is of its known parts, None without any.

    `unknown_days` are the days of a change of which a part is unknown. `run_rate` is None where the
    group is a day, and where none was asked for.
    """

    name: str
    days: int
    unknown_days: int
    gpu_hours: Range | None
    promised_gpu_hours: Range | None
    energy_kwh: Range | None
    promised_energy_kwh: Range | None
    emissions_kgco2e: Range | None
    money: Range | None
    run_rate: RunRate | None


GROUPS: dict[str, Callable[[DaySaved], str]] = {
    "finding": lambda entry: entry.reference,
    "day": lambda entry: f"{entry.day:%Y-%m-%d}",
    "namespace": lambda entry: entry.recommendation.namespace,
    "all": lambda _one: "all",
}
"""By what the days of changes are added up."""


def summed(
    rows: Sequence[DaySaved], by: str, *, at: datetime | None = None
) -> tuple[SavedSum, ...]:
    """Return the sums of rows by a name of `GROUPS`, in the order in which the groups come up.

    `at` is when the run rate is of: None for no rate.
    """
    groups: dict[str, list[DaySaved]] = defaultdict(list)
    for row in rows:
        groups[GROUPS[by](row)].append(row)
    when = None if by == "day" else at
    return tuple(_sum(name, group, when) for name, group in groups.items())


def measured_until(reader: StoreReader, settings: Settings) -> datetime | None:
    """Return the end of the last whole slot that samples have come for, None without any."""
    latest = reader.latest_sample_at()
    return None if latest is None else floor_to_slot(latest, settings.planning.slot_minutes * 60)


def run_rate(rows: Iterable[DaySaved], at: datetime) -> RunRate:
    """Return the savings of the changes that stand at `at`, from that day and the one before."""
    changes: dict[str, list[DaySaved]] = defaultdict(list)
    for row in rows:
        if row.until > at - _RATE_OVER and row.start < at and row.measurement.hours:
            changes[row.recommendation.digest].append(row)
    standing = [group for group in changes.values() if group[-1].until >= at]
    rates = [_rate(group) for group in standing]
    lasting = [rate for rate, group in zip(rates, standing, strict=True) if _lasts(group)]
    return RunRate(
        changes=len(rates),
        unknown_changes=sum(None in [getattr(rate, part) for part in AMOUNTS] for rate in rates),
        per_day=_added(rates, days=1),
        lasting_changes=len(lasting),
        per_year=_added(lasting, days=_YEAR_DAYS),
    )


def _lasts(group: Sequence[DaySaved]) -> bool:
    """Return whether a year can be told of a change: measured for a day, and its job goes on."""
    hours = sum(row.measurement.hours for row in group)
    return hours >= _DAY / timedelta(hours=1) and bool(group[-1].recommendation.proposed.gpu_count)


def _added(rates: Sequence[SavedAmounts], *, days: int) -> SavedAmounts:
    """Return the sum of rates over so many days, of their known parts."""
    sums = {
        part: sum_of([amount for rate in rates if (amount := getattr(rate, part)) is not None])
        for part in AMOUNTS
    }
    return SavedAmounts(**{part: amount and amount.times(days) for part, amount in sums.items()})


def _rate(group: Sequence[DaySaved]) -> SavedAmounts:
    """Return the savings of one change in a day, by the hours that were measured."""
    share = _DAY / timedelta(hours=sum(row.measurement.hours for row in group))

    def of(parts: Sequence[Range | None]) -> Range | None:
        amounts = [part for part in parts if part is not None]
        total = sum_of(amounts) if len(amounts) == len(parts) else None
        return total and total.times(share)

    return SavedAmounts(
        gpu_hours=of([row.measurement.realised_gpu_hours for row in group]),
        energy_kwh=of([row.measurement.realised_energy_kwh for row in group]),
        emissions_kgco2e=of([row.measurement.realised_emissions_kgco2e for row in group]),
        money=of([row.money for row in group]),
    )


def _sum(name: str, group: Sequence[DaySaved], at: datetime | None) -> SavedSum:
    def of(part: Callable[[Measurement], Range | None]) -> Range | None:
        return sum_of([each for saved in group if (each := part(saved.measurement)) is not None])

    return SavedSum(
        name=name,
        days=len(group),
        unknown_days=sum(saved.money is None for saved in group),
        gpu_hours=of(lambda entry: entry.realised_gpu_hours),
        promised_gpu_hours=of(lambda entry: entry.predicted_gpu_hours),
        energy_kwh=of(lambda entry: entry.realised_energy_kwh),
        promised_energy_kwh=of(lambda entry: entry.predicted_energy_kwh),
        emissions_kgco2e=of(lambda entry: entry.realised_emissions_kgco2e),
        money=sum_of([saved.money for saved in group if saved.money is not None]),
        run_rate=None if at is None else run_rate(group, at),
    )


def standing_times(rows: Iterable[JournalRow]) -> Iterator[StandingTime]:
    """Yield the times for which a change stood, from its rows of the journal, oldest first."""
    begun: datetime | None = None
    concluded: datetime | None = None
    for row in rows:
        if row.event == Work.SENDING and concluded is None:
            begun = begun or row.at
        elif row.event in STANDING_OUTCOMES and concluded is None:
            concluded = row.at
        elif row.event in _UNDO_EVENTS and concluded is not None:
            yield StandingTime(begun=begun or concluded, concluded=concluded, ended=row.at)
            begun = concluded = None
    if concluded is not None:
        yield StandingTime(begun=begun or concluded, concluded=concluded, ended=None)


def saved_by_day(reader: StoreReader, settings: Settings, *, now: datetime) -> tuple[DaySaved, ...]:
    """Return a row for each change of a job and day on which it stood, the oldest first."""
    rows: dict[str, list[JournalRow]] = defaultdict(list)
    for row in reader.journal(events=(str(Work.SENDING), *STANDING_OUTCOMES, *_UNDO_EVENTS)):
        rows[row.digest].append(row)
    day_rows: list[DaySaved] = []
    stood = {digest: times for digest in rows if (times := list(standing_times(rows[digest])))}
    stored_by_digest = reader.recommendations_of(stood, now=now)
    for digest, times in stood.items():
        stored = stored_by_digest[digest]
        if not stored.recommendation.job_id:
            continue
        measured = _MeasuredDays(reader, stored.reference, stored.recommendation, settings)
        for standing in times:
            day_rows += measured.days(standing)
    return tuple(sorted(day_rows, key=lambda row: (row.day, row.reference)))


@dataclass(frozen=True, slots=True)
class _MeasuredDays:
    """Measurement of the days of one change."""

    reader: StoreReader
    reference: str
    recommendation: Recommendation
    settings: Settings

    @property
    def _slot(self) -> timedelta:
        return timedelta(minutes=self.settings.planning.slot_minutes)

    def _floor(self, at: datetime) -> datetime:
        return floor_to_slot(at, int(self._slot.total_seconds()))

    def _history(self, start: datetime, end: datetime) -> pd.DataFrame:
        return self.reader.job_history(
            self.recommendation.job_id,
            start=start,
            end=end,
            slot_seconds=int(self._slot.total_seconds()),
        )

    def _window(self, standing: StandingTime) -> tuple[datetime, datetime]:
        """Return the whole slots of that time for which samples have come and which count."""
        recommendation, latest = self.recommendation, self.reader.latest_sample_at()
        start = self._floor(standing.concluded) + self._slot
        ends = [at for at in (standing.ended, latest) if at is not None]
        job = self.reader.job(recommendation.job_id)
        if not recommendation.proposed.gpu_count:
            ends.append(start + timedelta(hours=recommendation.savings.horizon_hours))
        elif job is not None and latest is not None and latest - job.last_seen_at > _ENDED_AFTER:
            ends.append(job.last_seen_at)
        return start, self._floor(min(ends, default=start))

    def days(self, standing: StandingTime) -> Iterator[DaySaved]:
        """Yield each day, with what was measured and the money saved."""
        start, end = self._window(standing)
        if end <= start:
            return
        begun = self._floor(standing.begun)
        readings = self.reader.power_readings(
            start=begun - BASELINE_WINDOW, end=begun, most=MAX_READINGS
        )
        catalogue = with_measured_idle(load_gpu_catalogue(), readings)
        before, after = self._history(begun - BASELINE_WINDOW, begun), self._history(start, end)
        # What is like the same hours of the day before the change is found by the hour.
        later = (after["slot_start"] - begun) // _DAY
        alike = after.assign(slot_start=after["slot_start"] - later * _DAY)
        while start < end:
            midnight = floor_to_slot(start, int(_DAY.total_seconds())) + _DAY
            until = min(end, max(start + self._slot, self._floor(midnight)))
            there = (after["slot_start"] >= start) & (after["slot_start"] < until)
            measurement = compare(
                before,
                alike[there],
                recommendation=self.recommendation,
                slots=round((until - start) / self._slot),
                is_over=True,
                split_kwh=split_energy(self.reader, self.recommendation, start, until),
                catalogue=catalogue,
                settings=self.settings,
            )
            yield DaySaved(
                reference=self.reference,
                recommendation=self.recommendation,
                start=start,
                until=until,
                measurement=measurement,
                money=self._money(measurement, (start, until)),
            )
            start = until

    def _money(self, measurement: Measurement, window: tuple[datetime, datetime]) -> Range | None:
        """Return rent and electricity saved; None where a part is unknown."""
        hours, energy = measurement.realised_gpu_hours, measurement.realised_energy_kwh
        now, proposed = self.recommendation.now, self.recommendation.proposed
        prices = price_list(self.settings, load_gpu_catalogue())
        rate, other = (
            prices.mean_charge(side.gpu_model, *window)
            for side in (now, proposed if proposed.gpu_count else now)
        )
        if hours is None or energy is None or rate is None or other is None:
            return None
        if measurement.board_hours_without is None or measurement.board_hours_with is None:
            return None
        rent = measurement.board_hours_without * rate
        rent -= measurement.board_hours_with * other
        price = self._price(window)
        parts = ((hours, rate), (energy, price))
        below = float(np.hypot.reduce([each * (part.central - part.low) for part, each in parts]))
        above = float(np.hypot.reduce([each * (part.high - part.central) for part, each in parts]))
        central = rent + energy.central * price
        unit = self.settings.energy.currency
        money = Range(low=central - below, central=central, high=central + above, unit=unit)
        rents = [rent + rate * (end - hours.central) for end in (hours.low, hours.high)]
        return in_price_range(money, (rents[0], rents[1]), self.settings)

    def _price(self, window: tuple[datetime, datetime]) -> float:
        """Return the mean price of a kWh with that of its carbon in a window."""
        start, until = window
        slots = [start + number * self._slot for number in range((until - start) // self._slot)]
        energy = as_paid(self.settings).energy
        carbon = load_carbon_table().get(energy.region)
        return float(tariff_of(slots, self._slot, energy=energy, carbon=carbon).per_kwh.mean())
