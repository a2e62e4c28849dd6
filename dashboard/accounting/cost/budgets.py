"""Budgets, and the bill of this month and the next: so far, forecast, and this week by the last.

The rest of the month is forecast from whole days (forecasting/series/day_sums.py).
"""

from calendar import monthrange
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from math import erfc, sqrt
from zoneinfo import ZoneInfo

import numpy as np

from dashboard.accounting.cost.prices import price_range
from dashboard.accounting.cost.statement import (
    CostRow,
    CostStatement,
    make_cost_statement,
    month_of,
)
from dashboard.accounting.energy.factors import factors_from
from dashboard.accounting.energy.periods import PeriodLength
from data.base.clock import midnight
from data.catalogue.carbon_table import load_carbon_table
from data.records.recommendations import Range
from data.settings.all_settings import Settings
from data.store import StoreReader
from forecasting.series.day_sums import HISTORY_DAYS, DaysAhead, days_ahead

FLEET = "(fleet)"
_GROUPS_WITHOUT_JOBS = frozenset({"tenant", "model", "state"})
"""Groups that a statement tells apart without its jobs."""
_Q90 = 1.2816
_TEAMS = 3
"""Teams that the change of a bill names, those of the largest change of GPU-hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRow:
    """The month of a tenant, or of what else it is `by`. Of what is known; None is unknown.

    `month_end` is the whole month as forecast, with its 80 % interval, `next_month` the one after;
    `kwh` and `kgco2e` are of the site and location-based. The factors' ranges are in all of them.
    `over_ratio` is the central value over the budget, `over_chance` that of exceeding it.
    `spent_at` is when the month's costs reach the budget, past or forecast; None where they stay
    below it. `unpriced_hours` are of the month so far. Weeks are the last seven whole days, and the
    seven before them.

    The next month costs more than this one by the days that it has more (or that nobody watched of
    this one), by GPU-hours a day, and by their models, prices and power: the three add up.
    """

    tenant: str
    per_month: float | None
    month_to_date: float | None
    month_end: Range | None
    next_month: Range | None = None
    kwh: Range | None = None
    next_kwh: Range | None = None
    kgco2e: Range | None = None
    next_kgco2e: Range | None = None
    gpu_hours: Range | None = None
    next_gpu_hours: Range | None = None
    more_by_days: float | None = None
    more_by_gpu_hours: float | None = None
    more_by_prices: float | None = None
    over_ratio: float | None
    over_chance: float | None = None
    next_over_chance: float | None = None
    spent_at: datetime | None
    last_week: float | None
    week_before: float | None
    week_over_week: float | None
    unpriced_hours: float
    by: str = "tenant"


def budget_rows(
    reader: StoreReader, settings: Settings, *, at: datetime, by: Sequence[str] = ("tenant",)
) -> tuple[BudgetRow, ...]:
    """Return a row for each group seen in the last weeks, by name, then one of the whole fleet.

    By tenant also for each that a budget names.
    """
    start = history_start(settings, at)
    statement = make_cost_statement(
        reader,
        settings,
        start=start,
        end=at,
        by=by,
        every=PeriodLength.DAY,
        is_coarse=set(by) <= _GROUPS_WITHOUT_JOBS,
    )
    rows = budgets_of(statement, settings, by)
    everything = statement.rows_by()
    if not everything:
        return rows
    return (*rows, replace(month_row(FLEET, everything, statement, settings), by="fleet"))


def history_start(settings: Settings, at: datetime) -> datetime:
    """Return from when on costs are read: the month, and the days that a forecast rests on."""
    zone = ZoneInfo(settings.report.timezone)
    month = month_of(settings, at).astimezone(zone).date()
    first = min(at.astimezone(zone).date() - timedelta(days=HISTORY_DAYS), month)
    return midnight(first, zone)


def budgets_of(
    statement: CostStatement, settings: Settings, by: Sequence[str] = ("tenant",)
) -> tuple[BudgetRow, ...]:
    """Return the rows of a daily statement that begins with `history_start` or before, by name."""
    kind = ",".join(by)
    budgets = settings.statement.budgets if kind == "tenant" else ()
    per_month = {budget.tenant: budget.per_month for budget in budgets}
    groups: dict[str, list[CostRow]] = {name: [] for name in per_month if statement.rows}
    for row in statement.rows_by(*by):
        groups.setdefault("/".join(row.names), []).append(row)
    return tuple(
        replace(month_row(name, rows, statement, settings, per_month=per_month.get(name)), by=kind)
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
    first = since or min(row.start for row in statement.rows)
    days = _Days.of(statement.end, first, ZoneInfo(settings.report.timezone))
    factors = factors_from(settings.energy, load_carbon_table().get(settings.energy.region))
    site = tuple(bound / factors.pue[1] for bound in factors.pue)
    known_cost = sum(row.cost or 0.0 for row in rows)
    power = sum(row.electricity_cost or 0.0 for row in rows) / known_cost if known_cost else 0.0
    costs = days.amounts(rows, lambda row: row.cost)
    low, high = price_range(settings)
    money = _Months.of(
        costs,
        days,
        float(np.hypot(power * (1 - site[0]), (1 - power) * (1 - low))),
        float(np.hypot(power * (site[2] - 1), (1 - power) * (high - 1))),
    )
    kwh = _Months.of(days.amounts(rows, lambda row: row.site_kwh), days, 1 - site[0], site[2] - 1)
    emitted = _Months.of(
        days.amounts(rows, lambda row: row.kgco2e),
        days,
        1 - site[0] * factors.carbon_low_ratio,
        site[2] * factors.carbon_high_ratio - 1,
    )
    hours = _Months.of(days.amounts(rows, lambda row: row.board_hours), days, 0.0, 0.0)
    by_days, by_hours, by_prices = _drivers(money, hours, days)
    currency = settings.energy.currency
    month_end, next_month = money.range(money.this, currency), money.range(money.next, currency)
    week, before = _week(money.past, 0), _week(money.past, 7)
    return BudgetRow(
        tenant=name,
        per_month=per_month,
        month_to_date=money.so_far,
        month_end=month_end,
        next_month=next_month,
        kwh=kwh.range(kwh.this, "kWh"),
        next_kwh=kwh.range(kwh.next, "kWh"),
        kgco2e=emitted.range(emitted.this, "kgCO2e"),
        next_kgco2e=emitted.range(emitted.next, "kgCO2e"),
        gpu_hours=hours.range(hours.this, "GPU-h"),
        next_gpu_hours=hours.range(hours.next, "GPU-h"),
        more_by_days=by_days,
        more_by_gpu_hours=by_hours,
        more_by_prices=by_prices,
        over_ratio=month_end.central / per_month if month_end and per_month else None,
        over_chance=_chance(month_end, per_month, money.so_far or 0.0),
        next_over_chance=_chance(next_month, per_month, 0.0),
        spent_at=_spent_at(costs, money.ahead, per_month, days, at=statement.end),
        last_week=week,
        week_before=before,
        # 0.0 is added as a week that cost a little less is no change of -0.
        week_over_week=round(week / before - 1, 5) + 0.0 if week is not None and before else None,
        unpriced_hours=sum(
            row.unpriced_hours for row in rows if days.date_of(row.start) >= days.month
        ),
    )


def _drivers(
    money: "_Months", hours: "_Months", days: "_Days"
) -> tuple[float, float, float] | tuple[None, None, None]:
    """Return by what the next month costs more: days, GPU-hours, prices; None where unknown."""
    if not (money.this and money.next and hours.this and hours.next and hours.this[1]):
        return None, None, None
    cost, ratio = money.this[1], days.in_next / days.in_month
    by_days = (ratio - 1) * cost
    by_hours = (hours.next[1] / hours.this[1] - ratio) * cost
    return by_days, by_hours, money.next[1] - cost - by_days - by_hours


def drivers_text(row: BudgetRow, teams: Sequence[BudgetRow], currency: str) -> str:
    """Return what the next month costs more by, and the teams of most, in words; '' unknown."""
    if row.more_by_days is None or row.more_by_gpu_hours is None or row.more_by_prices is None:
        return ""
    by_team = [(team.more_by_gpu_hours or 0.0, team.tenant) for team in teams]
    most = sorted(by_team, key=lambda pair: -abs(pair[0]))[:_TEAMS]
    names = ", ".join(f"{name} {amount:+,.0f}" for amount, name in most if round(amount))
    # 0.0 is added as a part that rounds to nothing is no -0.
    days, hours, prices = (
        round(part) + 0.0 for part in (row.more_by_days, row.more_by_gpu_hours, row.more_by_prices)
    )
    return (
        f"Next month against this one: {days + hours + prices:+,.0f} {currency}: days {days:+,.0f}"
        f", GPU-hours {hours:+,.0f}{f' ({names})' if names else ''}, models, prices and power "
        f"{prices:+,.0f}. GPUs that are freed stay in the bill until they are returned."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Days:
    """The days of a forecast: whole ones of the past, those of the month to come, and the next's.

    `in_month` are those of the month from when on boards were watched. The day on which watching
    began and today are left out: they are incomplete.
    """

    zone: ZoneInfo
    today: date
    month: date
    past: tuple[date, ...]
    to_come: float
    in_month: int
    in_next: int

    @classmethod
    def of(cls, at: datetime, since: datetime, zone: ZoneInfo) -> "_Days":
        today, start = at.astimezone(zone).date(), since.astimezone(zone).date()
        past = [start + timedelta(days=n) for n in range(1, (today - start).days)]
        month = (at - timedelta(microseconds=1)).astimezone(zone).date().replace(day=1)
        following = (month + timedelta(days=32)).replace(day=1)
        begun, ends = midnight(today, zone), midnight(today + timedelta(days=1), zone)
        return cls(
            zone=zone,
            today=today,
            month=month,
            past=tuple(past[-HISTORY_DAYS:]),
            # A day on which the clocks change is one day, however long.
            to_come=(following - today).days - (at - begun) / (ends - begun),
            in_month=(following - max(month, start)).days,
            in_next=monthrange(following.year, following.month)[1],
        )

    def date_of(self, at: datetime) -> date:
        return at.astimezone(self.zone).date()

    def amounts(
        self, rows: Sequence[CostRow], amount: Callable[[CostRow], float | None]
    ) -> dict[date, float | None]:
        """Return an amount of rows by day."""
        return {self.date_of(row.start): amount(row) for row in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Months:
    """One amount: its past days, the month so far, and both months as low, central and high."""

    past: tuple[float | None, ...]
    so_far: float | None
    ahead: DaysAhead | None
    this: tuple[float, ...] | None
    next: tuple[float, ...] | None
    below: float
    above: float

    @classmethod
    def of(
        cls, amounts: Mapping[date, float | None], days: _Days, below: float, above: float
    ) -> "_Months":
        """Return it where its factors reach so far below and above their central values."""
        past = tuple(amounts.get(day, 0.0) for day in days.past)
        so_far = _sum([amount for day, amount in amounts.items() if day >= days.month])
        daily = np.array([amount for amount in past if amount is not None])
        ahead = following = None
        if len(daily) == len(past):
            weekday = days.today.weekday()
            ahead = days_ahead(daily, days_left=days.to_come, weekday=weekday)
            following = days_ahead(
                daily, days_left=float(days.in_next), weekday=weekday, after=days.to_come
            )
        is_known = ahead is not None and so_far is not None
        return cls(
            past=past,
            so_far=so_far,
            ahead=ahead,
            this=tuple((so_far or 0.0) + part for part in ahead.sums)
            if ahead and is_known
            else None,
            next=following.sums if following and is_known else None,
            below=below,
            above=above,
        )

    def range(self, sums: tuple[float, ...] | None, unit: str) -> Range | None:
        """Return a month with the ranges of its factors, which err apart from its forecast."""
        if sums is None:
            return None
        low, central, high = sums
        return Range(
            low=max(0.0, central - float(np.hypot(central - low, central * self.below))),
            central=central,
            high=central + float(np.hypot(high - central, central * self.above)),
            unit=unit,
        )


def _chance(month: Range | None, limit: float | None, so_far: float) -> float | None:
    """Return the chance that a month costs more, of two half normal curves through its bounds."""
    if month is None or not limit:
        return None
    side = month.high - month.central if limit > month.central else month.central - month.low
    if so_far >= limit or side <= 0:
        return float(max(so_far, month.central) >= limit)
    return erfc((limit - month.central) / side * _Q90 / sqrt(2)) / 2


def _spent_at(
    costs: Mapping[date, float | None],
    ahead: DaysAhead | None,
    per_month: float | None,
    days: _Days,
    *,
    at: datetime,
) -> datetime | None:
    """Return when the costs of the month reach the budget, each day's spread evenly over it."""
    if per_month is None:
        return None
    zone = days.zone
    spent = [
        (midnight(day, zone), min(at, midnight(day + timedelta(days=1), zone)), cost or 0.0)
        for day, cost in sorted(costs.items())
        if day >= days.month
    ]
    for number, cost in enumerate(ahead.days if ahead else ()):
        day = days.today + timedelta(days=number)
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
