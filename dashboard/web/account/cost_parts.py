"""Content of the page of costs: the part of the book in view, its sentence, its rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.accounting.cost.budgets import BudgetRow, month_row
from dashboard.accounting.cost.charges import IDLE, NAMES_OF_UNHELD, SHARED, STATES
from dashboard.accounting.cost.cost_cache import CostBook, cached_book, make_book, sums_of
from dashboard.accounting.cost.statement import CostStatement
from dashboard.accounting.energy.build import tenant_key
from dashboard.common.figures import range_text
from dashboard.web.access.identity import current_role, current_world
from dashboard.web.frame.month import current_month
from dashboard.web.frame.page import number, tense
from dashboard.web.frame.scope import current_scope, scoped_jobs
from data.base.counts import count_text
from data.base.units import known
from data.records.recommendations import Range
from data.settings.all_settings import Settings
from data.store.facts.energy_parts import NO_NAME

LEVELS = ("tenant", "application", "job", "model")
"""By what rows are told apart, from the fleet down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostView:
    """One month of what is looked at: `names` say of which tenant, application and job.

    `rest` is the month against its budget as of now, None where nothing is known of it.
    """

    book: CostBook
    settings: Settings
    is_last: bool
    names: Mapping[str, str]
    by: str
    month: CostStatement
    last_month: CostStatement
    rest: BudgetRow | None
    takes: Callable[[str], bool] | None

    @property
    def title(self) -> str:
        """The month in words."""
        return current_month().title


def own_settings() -> Settings:
    """Return the settings; to owners without budgets, which name the tenants of others."""
    settings = current_world().settings.settings
    if current_role() != "owner":
        return settings
    return replace(settings, statement=replace(settings.statement, budgets=()))


def view_of_month(names: Mapping[str, str], *, is_last: bool) -> CostView | None:
    """Return the part of the book in view, None before the first sample."""
    settings, takes = own_settings(), _takes(names.get("tenant", ""))
    book = _book(settings, takes, names.get("tenant", ""))
    if book is None:
        return None
    of_names = book.statement.within(book.statement.start, book.at, names)
    last_month = of_names.within(book.last_month, book.this_month, {})
    month = last_month if is_last else of_names.within(book.this_month, book.at, {})
    budgets = {entry.tenant: entry.per_month for entry in settings.statement.budgets}
    is_total = set(names) == {"tenant"} and not current_scope().chosen
    watched = cached_book(current_world().reader, settings, now=current_world().clock())
    began = watched.statement.rows if watched is not None else ()
    rows = of_names.rows_by()
    return CostView(
        book=book,
        settings=settings,
        is_last=is_last,
        names=names,
        by=_next_level(names, month),
        month=month,
        last_month=last_month,
        rest=month_row(
            names.get("tenant", ""),
            rows,
            of_names,
            settings,
            per_month=budgets.get(names["tenant"]) if is_total else None,
            since=min((row.start for row in began), default=None),
        )
        if rows
        else None,
        takes=takes,
    )


def _takes(tenant: str) -> Callable[[str], bool] | None:
    """Return the filter of jobs, None for all and for what nobody held."""
    jobs = scoped_jobs()
    if not tenant or tenant in NAMES_OF_UNHELD.values():
        return None if jobs is None else jobs.__contains__
    world = current_world()
    names = world.reader.job_names(tenant_key(world.settings.settings))

    def takes(job_id: str) -> bool:
        return (jobs is None or job_id in jobs) and (names.get(job_id) or NO_NAME) == tenant

    return takes


def _book(settings: Settings, takes: Callable[[str], bool] | None, tenant: str) -> CostBook | None:
    world = current_world()
    book = cached_book(world.reader, settings, now=world.clock())
    if book is None or takes is None:
        return book
    return world.reader.remember(
        ("cost book", settings, book.at, current_scope(), tenant),
        lambda: make_book(world.reader, settings, at=book.at, takes=takes),
        is_lasting=True,
    )


def _next_level(names: Mapping[str, str], month: CostStatement) -> str:
    if names.get("tenant", "") in NAMES_OF_UNHELD.values():
        return "model"
    levels = LEVELS[max((LEVELS.index(name) + 1 for name in names), default=0) :]
    # One application, mostly none that is named, tells nothing apart.
    if levels[0] == "application" and month.charges["application"].nunique() < 2:
        levels = levels[1:]
    return levels[0]


def answer_of(view: CostView) -> str:
    """Return the page's sentence."""
    total, currency = view.month.total, view.month.currency
    whose = " ".join(view.names.values()) or current_scope().describe()
    prefix = f"{whose}: " if whose else ""
    if not len(view.month.charges):
        return f"{prefix}{'no' if prefix else 'No'} GPU was allocated or watched in {view.title}."
    if total.gpu_cost is None:
        return (
            f"{prefix}{'what' if prefix else 'What'} {view.title} {tense('costs', 'cost')} is "
            "unknown: none of its GPUs has a price. Set statement.prices."
        )
    sums = sums_of(view.month.charges.assign(all="all"), "all").iloc[0]
    least = "at least " if total.unpriced_hours > 0 else ""
    money = f"{least}{number(total.cost, currency)}"
    idle = number(known(sums[IDLE]) or 0.0, currency)
    if view.is_last:
        return f"{prefix}{view.title} cost {money}, {idle} of it idle GPUs."
    so_far = f"{prefix}{view.title} so far {tense('costs', 'cost')} {money}, {idle} of it idle GPUs"
    end = view.rest.month_end if view.rest else None
    ahead = f"; {range_text(end)} are forecast by its end" if end else ""
    return f"{so_far}{ahead}{_against_budgets(view)}."


def _against_budgets(view: CostView) -> str:
    """Return the budgets that the forecast exceeds, in words."""
    rest = view.rest
    if view.names and rest is not None and rest.per_month is not None:
        budget = number(rest.per_month, view.month.currency)
        if rest.spent_at is None:
            return f", of a budget of {budget}"
        return f"; its budget of {budget} {spent_text(rest, view.book.at)}"
    budgets = [row for row in view.book.tenants if row.per_month is not None]
    if view.names or view.takes is not None or not budgets:
        return ""
    over = [row.tenant for row in budgets if row.spent_at is not None]
    if not over:
        return f"; {count_text(len(budgets), 'budget holds', 'budgets hold')}"
    return f"; over budget: {', '.join(over)} ({len(over)} of {count_text(len(budgets), 'budget')})"


def spent_text(row: BudgetRow, now: datetime) -> str:
    """Say when a budget is spent."""
    if row.spent_at is None:
        return "holds"
    is_past = row.spent_at <= now
    return f"{'was' if is_past else 'will be'} spent by {row.spent_at:%Y-%m-%d %H:%M} UTC"


def figures_of(view: CostView) -> dict[str, Range | tuple[str, str] | None]:
    """Return the page's figures: the month, its idle part, the weeks and the forecast."""
    total, currency, rest = view.month.total, view.month.currency, view.rest
    sums = sums_of(view.month.charges.assign(all="all"), "all")
    priced = total.gpu_cost is not None and len(sums)
    idle = known(sums.iloc[0][IDLE]) or 0.0 if priced else None
    share = (
        f"{100 * (idle or 0.0) / total.cost:.0f} % of the cost; " if total.cost and priced else ""
    )
    by_title: dict[str, Range | tuple[str, str] | None] = {
        f"cost of {view.title}": (
            number(total.cost if priced else None, currency),
            number(total.board_hours, "GPU-h")
            if priced or not total.board_hours
            else "no price is set",
        ),
        "idle GPUs": (
            number(idle, currency), f"{share}{number(total.idle_hours, 'GPU-h')}"
        ),
    }  # fmt: skip
    if view.is_last or rest is None or not priced:
        return by_title
    change = rest.week_over_week
    by_title["last 7 whole days"] = (
        number(rest.last_week, currency),
        "the 7 before are unknown"
        if change is None
        else f"{round(100 * change):+} % week over week",
    )
    by_title["forecast of the month"] = rest.month_end or (
        number(None, ""),
        "needs 7 whole days with a price",
    )
    if rest.next_month is not None:
        by_title["forecast of the next month"] = rest.next_month
    return by_title


def rows_of(view: CostView) -> pd.DataFrame:
    """Return the table, one number a cell: largest cost first, nobody's last."""
    currency, by = view.month.currency, view.by
    sums = sums_of(view.month.charges, by)
    nobodys = sums[by].isin(NAMES_OF_UNHELD.values())
    sums = sums.assign(nobodys=nobodys).sort_values(
        ["nobodys", "cost", "hours", by], ascending=[True, False, False, True]
    )
    hours = {"GPU-hours": sums["hours"], "GPU-hours without a price": sums["unpriced_hours"]}
    if view.month.total.gpu_cost is None:
        # What is known is no cost of GPUs, and its parts are none of theirs.
        table = pd.DataFrame(
            {by: sums[by], f"electricity alone ({currency})": sums["cost"]} | hours
        )
        return table.reset_index(drop=True)
    known_part = "known " if sums["unpriced_hours"].any() else ""
    table = pd.DataFrame({by: sums[by], f"{known_part}cost ({currency})": sums["cost"]})
    for state in STATES:
        if sums[state].fillna(0).any():
            table[f"{state} ({currency})"] = sums[state]
    if sums[SHARED].fillna(0).any():
        table[f"{known_part}cost with shared GPUs by use ({currency})"] = sums["by_use"]
    if not view.is_last:
        before = sums_of(view.last_month.charges, by).set_index(by)["cost"]
        table[f"last month ({currency})"] = sums[by].map(before)
        if by == "tenant":
            table = _with_budgets(table, view)
    if not known_part:
        del hours["GPU-hours without a price"]
    return table.assign(**hours).reset_index(drop=True)


def _with_budgets(table: pd.DataFrame, view: CostView) -> pd.DataFrame:
    """Add what is forecast of each tenant: only of tenants, since each forecast takes a moment."""
    currency = view.month.currency
    rows = {row.tenant: row for row in view.book.tenants}
    entries = [rows[name] for name in table["tenant"]]
    ends = [row.month_end for row in entries]
    columns = {
        "week over week (%)": [row.week_over_week for row in entries],
        f"month end ({currency})": [end.central if end else None for end in ends],
        f"month end, q10 ({currency})": [end.low if end else None for end in ends],
        f"month end, q90 ({currency})": [end.high if end else None for end in ends],
        f"budget ({currency})": [row.per_month for row in entries],
        "of budget (%)": [row.over_ratio for row in entries],
    }
    for name, values in columns.items():
        if any(value is not None for value in values):
            numbers = np.array(values, dtype=np.float64)
            table[name] = 100 * numbers if name.endswith("(%)") else numbers
    return table


def places_of(view: CostView, rows: pd.DataFrame) -> list[dict[str, str]]:
    """Return the address for a click on each row: one level down."""
    query = {**view.names, **({"month": current_month().word} if view.is_last else {})}
    return [query | {view.by: name} for name in rows[view.by]]


def asked_names() -> dict[str, str]:
    """Return the names in the address: a tenant, and a part of its costs."""
    names = {name: st.query_params[name] for name in LEVELS[:-1] if st.query_params.get(name)}
    tenant = names.get("tenant", "")
    if tenant in ("", *NAMES_OF_UNHELD.values()):
        return {"tenant": tenant} if tenant else {}
    return names
