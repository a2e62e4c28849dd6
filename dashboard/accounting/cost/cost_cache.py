"""The book of costs: every day of this month and the last by tenant, made once an hour for all.

Pages and alerts read it and not the history. It is of what was known when the hour of its newest
sample began to be asked for; what comes later is in the next one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import pandas as pd

from dashboard.accounting.cost.budgets import BudgetRow, budgets_of, history_start
from dashboard.accounting.cost.charges import STATES
from dashboard.accounting.cost.statement import CostStatement, make_cost_statement, month_of
from dashboard.accounting.energy.periods import PeriodLength
from data.base.clock import floor_to_slot
from data.base.units import SECONDS_PER_HOUR
from data.settings.all_settings import Settings
from data.store import StoreReader
from data.store.handles.cached_reader import CachedReader

MEASURES = ("cost", *STATES, "by_use", "hours", "unpriced_hours")
"""Columns of sums: money in all and by state, with shared boards by use, board-hours, unpriced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostBook:
    """A statement by day up to `at`; `last_month` and `this_month` are when these begin.

    `tenants` are the months of tenants against their budgets.
    """

    at: datetime
    last_month: datetime
    this_month: datetime
    statement: CostStatement
    tenants: tuple[BudgetRow, ...]


def make_book(
    reader: StoreReader,
    settings: Settings,
    *,
    at: datetime,
    takes: Callable[[str], bool] | None = None,
) -> CostBook:
    """Return the book up to a time; with `takes` of those jobs alone, and told apart by job."""
    this_month = month_of(settings, at)
    last_month = month_of(settings, this_month)
    statement = make_cost_statement(
        reader,
        settings,
        start=min(last_month, history_start(settings, at)),
        end=at,
        every=PeriodLength.DAY,
        is_coarse=takes is None,
        takes=takes,
    )
    return CostBook(
        at=at,
        last_month=last_month,
        this_month=this_month,
        statement=statement,
        tenants=budgets_of(statement, settings),
    )


def cached_book(reader: StoreReader, settings: Settings, *, now: datetime) -> CostBook | None:
    """Return the book of all that the reader sees, None before the first sample.

    A reader that remembers makes it anew once an hour.
    """
    latest = reader.latest_sample_at()
    if latest is None:
        return None
    at = min(now, latest)

    def make() -> CostBook:
        return make_book(reader, settings, at=at)

    if not isinstance(reader, CachedReader):
        return make()
    hour = floor_to_slot(at - timedelta(microseconds=1), SECONDS_PER_HOUR)
    return reader.remember(("cost book", settings, hour), make, is_lasting=True)


def sums_of(charges: pd.DataFrame, by: str) -> pd.DataFrame:
    """Return `MEASURES` of charges by one of their columns; NaN where nothing is known.

    The states of a row add up to its cost.
    """
    money = charges[["gpu_cost", "electricity_cost"]].sum(axis=1, min_count=1)
    parts = {state: money.where(charges["state"] == state) for state in STATES}
    parts["by_use"] = charges[["use_cost", "electricity_cost"]].sum(axis=1, min_count=1)
    sums = charges.assign(cost=money, **parts).groupby(by)[list(MEASURES)].sum(min_count=1)
    return sums.reset_index()
