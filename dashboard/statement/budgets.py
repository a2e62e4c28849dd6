"""Budgets of tenants: the month so far, its forecast end, and this week beside the last.

The rest of the month is forecast from whole days: the mean of the last `_LEVEL_DAYS`, times what
each weekday is of the mean where four weeks are known. Its 80 % interval is that of a sum of days
whose deviations stay alike for up to a week (long-run variance by Bartlett weights), widened for
the mean being an estimate. `python -m benchmarks.statement` counts how often it holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from dashboard.reports.esg.periods import Every
from dashboard.statement.statement import CostRow, make_cost_statement, month_of
from data.records.decisions import Range
from data.settings import Settings
from data.store import StoreReader
from data.units import SECONDS_PER_DAY

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
    value over the budget. Weeks are the last seven whole days, and the seven before them.
    """

    tenant: str
    per_month: float | None
    month_to_date: float | None
    month_end: Range | None
    over_ratio: float | None
    last_week: float | None
    week_before: float | None
    week_over_week: float | None
    unpriced_hours: float


def budget_rows(reader: StoreReader, settings: Settings, *, at: datetime) -> tuple[BudgetRow, ...]:
    """Return a row for each tenant seen in the last weeks or named by a budget, by name."""
    month = month_of(settings, at)
    zone = ZoneInfo(settings.report.timezone)
    today = at.astimezone(zone).date()
    first = min(today - timedelta(days=HISTORY_DAYS), month.astimezone(zone).date())
    begin = datetime.combine(first, datetime.min.time(), tzinfo=zone).astimezone(at.tzinfo)
    statement = make_cost_statement(reader, settings, start=begin, end=at, every=Every.DAY)
    rows = statement.rows
    if not rows:
        return ()
    seen = min(row.start for row in rows).astimezone(zone).date()
    tenants = {row.names[0] for row in rows} | {
        budget.tenant for budget in settings.statement.budgets
    }
    return tuple(
        _budget_row(tenant, [row for row in rows if row.names == (tenant,)], settings, seen, at)
        for tenant in sorted(tenants)
    )


def _budget_row(
    tenant: str, rows: Sequence[CostRow], settings: Settings, seen: date, at: datetime
) -> BudgetRow:
    zone = ZoneInfo(settings.report.timezone)
    today = at.astimezone(zone).date()
    costs: dict[date, float | None] = {row.start.astimezone(zone).date(): row.cost for row in rows}
    # The day on which watching began is no whole one, and neither is today.
    whole = [seen + timedelta(days=n) for n in range(1, (today - seen).days)]
    days = [costs.get(day, 0.0) for day in whole][-HISTORY_DAYS:]
    month = month_of(settings, at).astimezone(zone).date()
    so_far = _sum([cost for day, cost in costs.items() if day >= month])
    left = _days_left(at, zone)
    known = [cost for cost in days if cost is not None]
    rest = (
        forecast_sum(np.array(known), days_left=left, weekday=today.weekday())
        if len(known) == len(days)
        else None
    )
    month_end = None
    if rest is not None and so_far is not None:
        low, central, high = (so_far + part for part in rest)
        month_end = Range(low=low, central=central, high=high, unit=settings.energy.currency)
    budgets = {entry.tenant: entry.per_month for entry in settings.statement.budgets}
    budget = budgets.get(tenant)
    week, before = _week(days, 0), _week(days, 7)
    return BudgetRow(
        tenant=tenant,
        per_month=budget,
        month_to_date=so_far,
        month_end=month_end,
        over_ratio=month_end.central / budget if month_end and budget else None,
        last_week=week,
        week_before=before,
        week_over_week=week / before - 1 if week is not None and before else None,
        unpriced_hours=sum(row.unpriced_hours for row in rows),
    )


def _sum(costs: Sequence[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known or not costs else None


def _week(days: Sequence[float | None], back: int) -> float | None:
    """Return what the seven days before the last `back` ones cost, None where one is unknown."""
    week = [cost for cost in days[len(days) - back - 7 : len(days) - back] if cost is not None]
    return sum(week) if len(week) == 7 and len(days) >= back + 7 else None


def _days_left(at: datetime, zone: ZoneInfo) -> float:
    """Return the days from a time to the end of its month, with the part of its own."""
    local = (at - timedelta(microseconds=1)).astimezone(zone)
    following = (local.replace(day=1) + timedelta(days=32)).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    return (following.timestamp() - at.timestamp()) / SECONDS_PER_DAY


def forecast_sum(
    days: Floats, *, days_left: float, weekday: int
) -> tuple[float, float, float] | None:
    """Return what the next days are forecast to cost together: q10, central, q90.

    `days` are whole days up to yesterday, `weekday` is that of today. None of fewer than a week.
    """
    if len(days) < MIN_DAYS:
        return None
    weights = _weekday_weights(days, weekday)
    past = weights[(weekday - np.arange(len(days), 0, -1)) % 7]
    level_days = min(_LEVEL_DAYS, len(days))
    level = float((days[-level_days:] / past[-level_days:]).mean())
    ahead = int(np.ceil(days_left))
    parts = np.minimum(days_left - np.arange(ahead), 1.0)[::-1]  # today is the part that is left
    central = level * float((weights[(weekday + np.arange(ahead)) % 7] * parts).sum())
    spread = _long_run_sd(days - level * past) * np.sqrt(days_left + days_left**2 / level_days)
    reach = _QUANTILE_90 * float(spread)
    return max(0.0, central - reach), central, central + reach


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
