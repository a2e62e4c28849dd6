"""Budgets of tenants: the month so far, its forecast end, and this week beside the last.

The rest of the month is forecast from whole days: the mean of the last `_LEVEL_DAYS`, times what
each weekday is of the mean where four weeks are known. Its 80 % interval is that of a sum of days
whose deviations stay alike for up to a week (long-run variance by Bartlett weights), widened for
the mean being an estimate. `python -m benchmarks.statement` counts how often it holds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from dashboard.reports.esg.periods import Every
from dashboard.statement.statement import CostRow, CostStatement, make_cost_statement, month_of
from data.records.decisions import Range
from data.settings import Settings
from data.store import StoreReader

Floats = npt.NDArray[np.float64]
HISTORY_DAYS = 56
MIN_DAYS = 7
_LEVEL_DAYS = 7
_WEEKDAYS_FROM = 28
_LAGS = 7
_QUANTILE_90 = 1.2816


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRow:
    """A tenant's month. Money is of what is known; None is unknown.

    `month_end` is the whole month as forecast, with its 80 % interval; `over_ratio` its central
    value over the budget. `spent_at` is when the month's costs reach the budget, past or forecast;
    None where they stay below it. `unpriced_hours` are of the month so far. Weeks are the last
    seven whole days, and the seven before them.
    """

    tenant: str
    per_month: float | None
    month_to_date: float | None
    month_end: Range | None
    over_ratio: float | None
    spent_at: datetime | None
    last_week: float | None
    week_before: float | None
    week_over_week: float | None
    unpriced_hours: float


def budget_rows(reader: StoreReader, settings: Settings, *, at: datetime) -> tuple[BudgetRow, ...]:
    """Return a row for each tenant seen in the last weeks or named by a budget, by name."""
    start = history_start(settings, at)
    statement = make_cost_statement(
        reader, settings, start=start, end=at, every=Every.DAY, is_coarse=True
    )
    return budgets_of(statement, settings)


def history_start(settings: Settings, at: datetime) -> datetime:
    """Return from when on costs are read: the month, and the days that a forecast rests on."""
    zone = ZoneInfo(settings.report.timezone)
    month = month_of(settings, at).astimezone(zone).date()
    first = min(at.astimezone(zone).date() - timedelta(days=HISTORY_DAYS), month)
    return datetime.combine(first, datetime.min.time(), tzinfo=zone).astimezone(UTC)


def budgets_of(statement: CostStatement, settings: Settings) -> tuple[BudgetRow, ...]:
    """Return the rows of a daily statement that begins with `history_start` or before, by name."""
    per_month = {budget.tenant: budget.per_month for budget in settings.statement.budgets}
    groups: dict[str, list[CostRow]] = {name: [] for name in per_month if statement.rows}
    for row in statement.rows_by("tenant"):
        groups.setdefault(row.names[0], []).append(row)
    return tuple(
        month_row(name, rows, statement, settings, per_month=per_month.get(name))
        for name, rows in sorted(groups.items())
    )


def month_row(
    name: str,
    rows: Sequence[CostRow],
    statement: CostStatement,
    settings: Settings,
    *,
    per_month: float | None = None,
    since: datetime | None = None,
) -> BudgetRow:
    """Return the month of rows by day of one tenant, or of all; `statement` is what they are of.

    `since` is when boards were first watched, by default when the statement has its first row.
    """
    zone, at = ZoneInfo(settings.report.timezone), statement.end
    today = at.astimezone(zone).date()
    first = since or min(row.start for row in statement.rows)
    seen = first.astimezone(zone).date()
    costs: dict[date, float | None] = {row.start.astimezone(zone).date(): row.cost for row in rows}
    # The day on which watching began is no whole one, and neither is today.
    whole = [seen + timedelta(days=n) for n in range(1, (today - seen).days)]
    days = [costs.get(day, 0.0) for day in whole][-HISTORY_DAYS:]
    month = month_of(settings, at).astimezone(zone).date()
    so_far = _sum([cost for day, cost in costs.items() if day >= month])
    left = _days_left(at, zone)
    known = [cost for cost in days if cost is not None]
    ahead = (
        _forecast(np.array(known), days_left=left, weekday=today.weekday())
        if len(known) == len(days)
        else None
    )
    month_end = None
    if ahead is not None and so_far is not None:
        low, central, high = (so_far + part for part in ahead.sums)
        month_end = Range(low=low, central=central, high=high, unit=settings.energy.currency)
    week, before = _week(days, 0), _week(days, 7)
    return BudgetRow(
        tenant=name,
        per_month=per_month,
        month_to_date=so_far,
        month_end=month_end,
        over_ratio=month_end.central / per_month if month_end and per_month else None,
        spent_at=_spent_at(costs, ahead, per_month, at=at, zone=zone),
        last_week=week,
        week_before=before,
        week_over_week=round(week / before - 1, 5) if week is not None and before else None,
        unpriced_hours=sum(
            row.unpriced_hours for row in rows if row.start.astimezone(zone).date() >= month
        ),
    )


def _spent_at(
    costs: Mapping[date, float | None],
    ahead: "_Ahead | None",
    per_month: float | None,
    *,
    at: datetime,
    zone: ZoneInfo,
) -> datetime | None:
    """Return when the costs of the month reach the budget, each day's spread evenly over it."""
    if per_month is None:
        return None
    month = (at - timedelta(microseconds=1)).astimezone(zone).date().replace(day=1)
    spent = [
        (_midnight(day, zone), min(at, _midnight(day + timedelta(days=1), zone)), cost or 0.0)
        for day, cost in sorted(costs.items())
        if day >= month
    ]
    today = at.astimezone(zone).date()
    for number, cost in enumerate(ahead.days if ahead else ()):
        day = today + timedelta(days=number)
        spent.append(
            (max(at, _midnight(day, zone)), _midnight(day + timedelta(days=1), zone), cost)
        )
    total = 0.0
    for start, end, cost in spent:
        if cost > 0 and total + cost >= per_month:
            return start + (end - start) * ((per_month - total) / cost)
        total += cost
    return None


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, datetime.min.time(), tzinfo=zone).astimezone(UTC)


def _sum(costs: Sequence[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known or not costs else None


def _week(days: Sequence[float | None], back: int) -> float | None:
    """Return what the seven days before the last `back` ones cost, None where one is unknown."""
    week = [cost for cost in days[len(days) - back - 7 : len(days) - back] if cost is not None]
    return sum(week) if len(week) == 7 and len(days) >= back + 7 else None


def _days_left(at: datetime, zone: ZoneInfo) -> float:
    """Return the days of the zone from a time to the end of its month, with the part of its own.

    A day on which the clocks change is one day, however long.
    """
    last = (at - timedelta(microseconds=1)).astimezone(zone).date()
    following = (last.replace(day=1) + timedelta(days=32)).replace(day=1)
    today = at.astimezone(zone).date()
    start, end = _midnight(today, zone), _midnight(today + timedelta(days=1), zone)
    return (following - today).days - (at - start) / (end - start)


@dataclass(frozen=True, slots=True)
class _Ahead:
    """The next days as forecast: the cost of each, and of all together q10, central, q90."""

    days: Floats
    sums: tuple[float, float, float]


def forecast_sum(
    days: Floats, *, days_left: float, weekday: int
) -> tuple[float, float, float] | None:
    """Return what the next days are forecast to cost together: q10, central, q90.

    `days` are whole days up to yesterday, `weekday` is that of today. None of fewer than a week.
    """
    ahead = _forecast(days, days_left=days_left, weekday=weekday)
    return None if ahead is None else ahead.sums


def _forecast(days: Floats, *, days_left: float, weekday: int) -> _Ahead | None:
    if len(days) < MIN_DAYS:
        return None
    weights = _weekday_weights(days, weekday)
    past = weights[(weekday - np.arange(len(days), 0, -1)) % 7]
    level_days = min(_LEVEL_DAYS, len(days))
    level = float((days[-level_days:] / past[-level_days:]).mean())
    count = int(np.ceil(days_left))
    parts = np.minimum(days_left - np.arange(count), 1.0)[::-1]  # today is the part that is left
    ahead = level * weights[(weekday + np.arange(count)) % 7] * parts
    central = float(ahead.sum())
    spread = _long_run_sd(days - level * past) * np.sqrt(days_left + days_left**2 / level_days)
    reach = _QUANTILE_90 * float(spread)
    return _Ahead(ahead, (max(0.0, central - reach), central, central + reach))


def _weekday_weights(days: Floats, weekday: int) -> Floats:
    """Return what each weekday costs in shares of the mean, all 1 of fewer than four weeks."""
    if len(days) < _WEEKDAYS_FROM or not days.mean():
        return np.ones(7)
    which = (weekday - np.arange(len(days), 0, -1)) % 7
    means = np.array([days[which == day].mean() for day in range(7)])
    return np.asarray(np.maximum(means / means.mean(), 0.05), dtype=np.float64)


def _long_run_sd(deviations: Floats) -> float:
    """Return the standard deviation of a day that carries its neighbours' likeness."""
    count = len(deviations)
    lags = min(_LAGS, count - 1)
    covariances = [
        float((deviations[lag:] * deviations[: count - lag]).sum() / count)
        for lag in range(lags + 1)
    ]
    variance = covariances[0] + 2 * sum(
        (1 - lag / (lags + 1)) * covariances[lag] for lag in range(1, lags + 1)
    )
    return float(np.sqrt(max(variance, covariances[0])))
