"""The facts of one week, read once from the store; rendering is `render_report`'s work."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial

import pandas as pd

from dashboard.accounting.cost.prices import Rent, exclusion_words, price_list, price_note
from dashboard.accounting.savings.daily_savings import measured_until, saved_by_day
from dashboard.accounting.savings.ledger import ledger
from dashboard.accounting.savings.shown_money import as_shown
from dashboard.common.figures import figure_text
from dashboard.reports.week.editions import WHOLE, Edition, EditionKind
from dashboard.reports.week.savings import WeeklySaved, saved_in
from dashboard.reports.week.waste import WasteRow, waste_rows
from dashboard.reports.week.week import Week, last_whole_week, week_to
from dashboard.reports.week.weekly_energy import WeeklyEnergy, weekly_energy
from data.base.clock import utc_now
from data.base.counts import count_text
from data.base.units import known
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.energy_integration import MAX_GAP_SECONDS
from data.records.commands import AuditEntry
from data.records.forecasts import GroupForecast, GroupKind, QuantilePath, Quantity
from data.records.plans import Plan
from data.records.recommendations import Range
from data.settings.all_settings import Settings
from data.store import StoredRecommendation, StoreReader
from data.store.facts.page_reader import holders_of

_TOO_FAR_APART = (
    "What was allocated but idle is not known: readings of a GPU lie more than "
    f"{MAX_GAP_SECONDS / 60:.0f} minutes apart."
)
_GROUPS = {EditionKind.FLEET: GroupKind.FLEET, EditionKind.NAMESPACE: GroupKind.NAMESPACE}


@dataclass(frozen=True, slots=True, kw_only=True)
class DayAhead:
    """One day of the zone: mean of the hours' q10, q50, q90, and the hour whose q90 is largest.

    `hours` tells how many hours of the day the forecast covers.
    """

    day: date
    hours: int
    wanted: Range | None
    used: Range | None
    peak_wanted: float | None
    peak_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeeklyReport:
    """Everything the report says; `fleet` is the hourly frame behind its picture.

    `waste` is what was allocated but idle, by namespace and owner; `decided` what people and we did
    in the week, `saved` what came of it; `ahead` the forecast of the coming days. `recorded`: all
    of it was imported.
    """

    week: Week
    edition: Edition
    as_of: datetime | None
    fleet: pd.DataFrame
    boards: float | None
    allocated_gpus: float | None
    used_gpus: float | None
    coverage_ratio: float | None
    energy: WeeklyEnergy
    waste: tuple[WasteRow, ...]
    decided: tuple[AuditEntry, ...]
    saved: WeeklySaved
    recommendations: tuple[StoredRecommendation, ...]
    ahead: tuple[DayAhead, ...]
    currency: str
    left_out_of_prices: str
    price_note: str
    plan: Plan | None
    forecasts: int
    forecasts_skipped: int
    recorded: bool

    @property
    def finding(self) -> str:
        """The week in one sentence."""
        if self.edition != WHOLE:
            return self._own_finding()
        if self.boards is None or self.allocated_gpus is None or self.used_gpus is None:
            return "No samples were kept for this week."
        return (
            f"On average {self.allocated_gpus:,.1f} of {_amount_text(self.boards, 'GPU')} were "
            f"allocated and {self.used_gpus:,.1f} in use; {self._idle()}; {self._waiting()}."
        )

    def _own_finding(self) -> str:
        hours = self.energy.statement.total.gpu_hours
        if not hours:
            return f"No job of {self.edition.whose} held a GPU in this week."
        return (
            f"The jobs of {self.edition.whose} held {_amount_text(hours, 'GPU-hour')}; "
            f"{self._idle()}; {self._waiting()}."
        )

    def name_of(self, digest: str) -> str:
        """Return a name for people of a decision's subject: TT-12, else the start of its digest."""
        names = {entry.recommendation.digest: entry.reference for entry in self.recommendations}
        return names.get(digest) or digest[:12]

    @property
    def fleet_size(self) -> str:
        """The mean boards of the week in words: some may have come, gone or not been seen."""
        return "" if self.boards is None else f"on average {_amount_text(self.boards, 'GPU')}"

    @property
    def no_waste(self) -> str:
        """Text in place of an empty table of what was allocated but idle."""
        return _TOO_FAR_APART if self._is_unmeasured else "Nothing was allocated but idle."

    @property
    def _is_unmeasured(self) -> bool:
        """Return whether GPUs were allocated, and for no time: readings lie too far apart."""
        return bool(self.allocated_gpus) and not self.energy.statement.total.gpu_hours

    def _idle(self) -> str:
        if self._is_unmeasured:
            return "how long they were allocated but idle is not known"
        idle = sum(row.idle_gpu_hours for row in self.waste)
        rents = [row.rent for row in self.waste if row.rent is not None]
        unpriced = {model for row in self.waste for model in row.unpriced_models}
        rent = Rent(amount=sum(rents) if rents else None, unpriced_models=tuple(sorted(unpriced)))
        cost = (
            f", at a cost of {rent.sentence(self.currency, self.left_out_of_prices)}"
            if rents or unpriced
            else ""
        )
        return f"{_amount_text(idle, 'GPU-hour')} allocated but idle{cost}"

    def _waiting(self) -> str:
        proposed = sum(
            recommendation.state == "proposed" for recommendation in self.recommendations
        )
        if self.recorded:
            count = count_text(proposed, "recommendation")
            return f"{count} would have been made at the end of the recording"
        waiting = count_text(proposed, "recommendation waits", "recommendations wait")
        return f"{waiting} for a decision"


def make_weekly_report(
    reader: StoreReader, *, week: Week, settings: Settings, edition: Edition = WHOLE
) -> WeeklyReport:
    """Return the report of one week, or the edition of it that a namespace or an owner gets."""
    complete = edition == WHOLE
    jobs = {} if complete else edition.jobs(reader.jobs())
    # Of the whole fleet's only those count that held something in the week.
    holders = reader.job_holders(seen_since=week.start) if complete else holders_of(jobs.values())
    energy = weekly_energy(reader, week=week, settings=settings, jobs=None if complete else jobs)
    fleet = reader.fleet_history(start=week.start, end=week.end, slot_seconds=3600)
    recommendations = tuple(
        replace(stored, recommendation=as_shown(stored.recommendation, settings))
        for stored in reader.recommendations(now=week.end)
        if complete or stored.recommendation.job_id in jobs
    )
    ours = {stored.recommendation.digest for stored in recommendations}
    forecasts = [skipped for job, skipped in reader.forecast_jobs() if complete or job in jobs]
    decided = tuple(
        entry
        for entry in reader.audit()
        if week.start <= entry.at < week.end and (complete or entry.digest in ours)
    )
    rent_of = partial(
        price_list(settings, load_gpu_catalogue()).rent, start=week.start, end=week.end
    )
    applied = [row for row in ledger(reader, now=week.end) if row.recommendation.digest in ours]
    days = saved_by_day(reader, settings, now=week.end) if applied else ()
    return WeeklyReport(
        week=week,
        edition=edition,
        as_of=reader.latest_sample_at(),
        fleet=fleet if complete else fleet.iloc[:0],
        boards=_mean(fleet, "boards") if complete else None,
        allocated_gpus=_mean(fleet, "allocated_gpus") if complete else None,
        used_gpus=_mean(fleet, "used_gpus") if complete else None,
        coverage_ratio=None if fleet.empty else min(1.0, len(fleet) / week.hours),
        energy=energy,
        waste=waste_rows(energy.allocated, holders, rent_of),
        decided=decided,
        saved=saved_in(
            week,
            applied,
            decided,
            days=[day for day in days if day.recommendation.digest in ours],
            until=measured_until(reader, settings),
        ),
        recommendations=recommendations,
        ahead=days_ahead(reader.group_forecasts(), week, edition),
        currency=settings.energy.currency,
        left_out_of_prices=exclusion_words(settings),
        price_note=price_note(settings),
        plan=reader.latest_plan() if complete else None,
        forecasts=len(forecasts),
        forecasts_skipped=sum(forecasts),
        recorded=reader.recording() is not None,
    )


def asked_report(
    reader: StoreReader,
    settings: Settings,
    *,
    end: datetime | None,
    last_week: bool,
    edition: Edition = WHOLE,
) -> WeeklyReport:
    """Return the report of the 168 hours before `end`, the newest sample where it is None.

    With `last_week`, of the last whole week of the calendar before it. Errors: StoreError.
    """
    now = end or min(utc_now(), reader.latest_sample_at() or utc_now())
    zone = settings.report.timezone
    return make_weekly_report(
        reader,
        week=last_whole_week(now, settings.report) if last_week else week_to(now, zone),
        settings=settings,
        edition=edition,
    )


def _amount_text(amount: float, noun: str) -> str:
    """Return an amount as the tables show it, with its noun."""
    number = figure_text(amount)
    return f"{number} {noun if number == '1' else f'{noun}s'}"


def _mean(frame: pd.DataFrame, column: str) -> float | None:
    return None if frame.empty else known(frame[column].mean())


def days_ahead(
    groups: Sequence[GroupForecast], week: Week, edition: Edition = WHOLE
) -> tuple[DayAhead, ...]:
    """Return the days that the hourly forecast of the fleet or namespace reaches; none without one.

    The mean of the hours' quantiles is wider than the quantile of the day's mean, since hours are
    not perfectly tied to one another: a cautious range.
    """
    key = _GROUPS.get(edition.kind), edition.name or "fleet"
    fleet = next(
        (group for group in groups if (group.kind, group.name) == key and group.by_hour), None
    )
    if fleet is None:
        return ()
    hours_of: dict[date, list[int]] = {}
    for index, at in enumerate(fleet.slot_starts):
        hours_of.setdefault(week.date_of(at), []).append(index)
    demand = fleet.path(Quantity.ALLOCATED_GPUS)
    used = fleet.path(Quantity.EFFECTIVE_GPUS)
    rows = []
    for day, hours in sorted(hours_of.items()):
        peak = None if demand is None else max(hours, key=lambda hour: demand.q90[hour])
        rows.append(
            DayAhead(
                day=day,
                hours=len(hours),
                wanted=_mean_of_path(demand, hours),
                used=_mean_of_path(used, hours),
                peak_wanted=None if demand is None or peak is None else demand.q90[peak],
                peak_at=None if peak is None else fleet.slot_starts[peak],
            )
        )
    return tuple(rows)


def _mean_of_path(path: QuantilePath | None, hours: Sequence[int]) -> Range | None:
    if path is None:
        return None
    low, central, high = (
        sum(level[hour] for hour in hours) / len(hours) for level in (path.q10, path.q50, path.q90)
    )
    return Range(low=low, central=central, high=high, unit="GPU")
