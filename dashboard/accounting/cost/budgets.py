"""Budgets of tenants: the month so far, its forecast end, and this week beside the last.

The rest of the month is forecast from whole days (forecasting/series/day_sums.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np

from dashboard.accounting.cost.statement import (
    CostRow,
    CostStatement,
    make_cost_statement,
    month_of,
)
from dashboard.accounting.energy.periods import Every
from data.base.clock import midnight
from data.records.recommendations import Range
from data.settings.all_settings import Settings
from data.store import StoreReader
from forecasting.series.day_sums import HISTORY_DAYS, DaysAhead, days_ahead


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
    return midnight(first, zone)


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
    start = first.astimezone(zone).date()
    costs: dict[date, float | None] = {row.start.astimezone(zone).date(): row.cost for row in rows}
    # The day on which watching began is no whole one, and neither is today.
    dates = [start + timedelta(days=n) for n in range(1, (today - start).days)]
    days = [costs.get(day, 0.0) for day in dates][-HISTORY_DAYS:]
    month = month_of(settings, at).astimezone(zone).date()
    so_far = _sum([cost for day, cost in costs.items() if day >= month])
    days_to_come = _days_left(at, zone)
    amounts = [cost for cost in days if cost is not None]
    ahead = (
        days_ahead(np.array(amounts), days_left=days_to_come, weekday=today.weekday())
        if len(amounts) == len(days)
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
        # 0.0 is added as a week that cost a little less is no change of -0.
        week_over_week=round(week / before - 1, 5) + 0.0 if week is not None and before else None,
        unpriced_hours=sum(
            row.unpriced_hours for row in rows if row.start.astimezone(zone).date() >= month
        ),
    )


def _spent_at(
    costs: Mapping[date, float | None],
    ahead: DaysAhead | None,
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
        (midnight(day, zone), min(at, midnight(day + timedelta(days=1), zone)), cost or 0.0)
        for day, cost in sorted(costs.items())
        if day >= month
    ]
    today = at.astimezone(zone).date()
    for number, cost in enumerate(ahead.days if ahead else ()):
        day = today + timedelta(days=number)
        spent.append((max(at, midnight(day, zone)), midnight(day + timedelta(days=1), zone), cost))
    total = 0.0
    for start, end, cost in spent:
        if cost > 0 and total + cost >= per_month:
            return start + (end - start) * ((per_month - total) / cost)
        total += cost
    return None


def _sum(costs: Sequence[float | None]) -> float | None:
    values = [cost for cost in costs if cost is not None]
    return sum(values) if values or not costs else None


def _week(days: Sequence[float | None], back: int) -> float | None:
    """Return the cost of the seven days before the last `back` ones, None where one is unknown."""
    week = [cost for cost in days[len(days) - back - 7 : len(days) - back] if cost is not None]
    return sum(week) if len(week) == 7 and len(days) >= back + 7 else None


def _days_left(at: datetime, zone: ZoneInfo) -> float:
    """Return the days of the zone from a time to the end of its month, with the part of its own.

    A day on which the clocks change is one day, however long.
    """
    last = (at - timedelta(microseconds=1)).astimezone(zone).date()
    following = (last.replace(day=1) + timedelta(days=32)).replace(day=1)
    today = at.astimezone(zone).date()
    start, end = midnight(today, zone), midnight(today + timedelta(days=1), zone)
    return (following - today).days - (at - start) / (end - start)
