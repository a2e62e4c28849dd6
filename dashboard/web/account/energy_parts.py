"""Content of the page of energy: figures with their comparison, bars, rows."""

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter

import pandas as pd

from dashboard.accounting.energy.statement import (
    EsgStatement,
    GroupBy,
    Holder,
    StatementRow,
    covered,
)
from dashboard.charts.energy_stack import StackPart
from dashboard.common.figures import range_text
from dashboard.web.frame.page import opener_by_name
from data.records.recommendations import Range
from data.store.facts.energy_parts import NO_NAME

SHOWN = ("kWh", "kgCO2e location-based", "kgCO2e market-based")
"""Quantities that bars can show."""
_COMPARABLE = 0.05
"""Ranges whose measured shares differ by more say nothing about more or less energy."""
_PAGE_LINKS: Mapping[str, tuple[str, str]] = {
    "account-or-namespace": ("costs", "tenant"),
    GroupBy.NAMESPACE: ("jobs", "namespace"),
    GroupBy.ACCOUNT: ("jobs", "team"),
    GroupBy.OWNER: ("jobs", "q"),
    GroupBy.JOB: ("job", "job"),
    GroupBy.MODEL: ("jobs", "model"),
    GroupBy.NODE: ("fleet", "q"),
    GroupBy.CLUSTER: ("jobs", "cluster"),
}


def figure_of(
    name: str, now: StatementRow, before: StatementRow | None, *, reason: str
) -> tuple[str, str]:
    """Return an amount's central value, and below it its range and how it has changed."""
    value: Range | None = getattr(now, name)
    if value is None:
        return "—", reason
    central, low, high = (
        f"{bound:,.3g}" if bound < 1000 else f"{bound:,.0f}" for bound in _bounds(value)
    )
    note = f"{low}–{high}"
    earlier: Range | None = getattr(before, name) if before else None
    if earlier is not None and earlier.central > 0:
        change = round(100 * (value.central / earlier.central - 1))
        note += f"; {abs(change)} % {'more' if change > 0 else 'less'} than" if change else "; as"
        note += " before"
    return f"{central} {value.unit}", note


def _bounds(value: Range) -> tuple[float, float, float]:
    return value.central, value.low, value.high


def comparable(now: EsgStatement, before: EsgStatement) -> bool:
    """Return whether both ranges were measured alike, so that their amounts can be compared."""
    shares = now.completeness_ratio, before.completeness_ratio
    return None not in shares and abs((shares[0] or 0) - (shares[1] or 0)) <= _COMPARABLE


def page_of_group(by: GroupBy, tenant_is: str) -> tuple[str, str]:
    """Return the page that a group leads to, and how its address names the group."""
    return _PAGE_LINKS[tenant_is if by is GroupBy.TENANT else by]


def _key(row: StatementRow) -> str:
    """Return the name of a group in an address, '' for one that has no page."""
    has_page = row.holder in (Holder.JOB, Holder.ANY) and row.key != NO_NAME
    return row.key if has_page else ""


def row_opens(statement: EsgStatement, tenant_is: str) -> Callable[[int], None]:
    """Return the function that opens the page of a row of the table, if it has one."""
    keys, go = (
        [_key(row) for row in statement.groups],
        opener_by_name(*page_of_group(statement.by, tenant_is)),
    )
    return lambda place: go(keys[place]) if keys[place] else None


def stack_parts(statement: EsgStatement, quantity: str) -> list[StackPart]:
    """Return the bars' parts: energy of the boards, or emissions of the site."""
    return [
        StackPart(
            period=statement.calendar.name_of(row.start),
            group=row.name,
            kind=row.holder.value,
            value=None if (value := _amount(row, quantity)) is None else value.central,
            opens=_key(row),
        )
        for row in statement.rows
        if row.holder is not Holder.MISSING
    ]


def _amount(row: StatementRow, quantity: str) -> Range | None:
    amounts = (row.gpu_energy_kwh, row.location_kgco2e, row.market_kgco2e)
    return amounts[SHOWN.index(quantity)]


def measured_of(statement: EsgStatement) -> Iterator[tuple[str, float | None]]:
    """Yield every period in order with the share of its board-time of which energy is known.

    From the first that was measured on: before it nobody watched, and no bar is missing.
    """
    is_watched = False
    for start, group in groupby(statement.rows, key=attrgetter("start")):
        rows = list(group)
        expected = sum(row.board_hours for row in rows)
        measured = sum(row.measured_hours for row in rows)
        is_watched = is_watched or measured > 0
        if is_watched:
            yield statement.calendar.name_of(start), measured / expected if expected else None


def rows_shown(statement: EsgStatement) -> pd.DataFrame:
    """Return the table of a statement: one row per group, unknown as an em dash."""
    return pd.DataFrame(
        [
            {
                statement.by.value: row.name,
                "GPU-hours": row.gpu_hours,
                "idle": row.idle_gpu_hours,
                "measured (%)": None if row.measured_ratio is None else 100 * row.measured_ratio,
                "GPU energy": range_text(row.gpu_energy_kwh),
                "site energy": range_text(row.site_energy_kwh),
                "location-based": range_text(row.location_kgco2e),
                "market-based": range_text(row.market_kgco2e),
                "embodied": covered(range_text(row.embodied_kgco2e), row.embodied_ratio),
                "SCI": covered(range_text(row.sci_gco2e), row.scored_ratio),
                "electricity": range_text(row.electricity_cost),
            }
            for row in statement.groups
        ]
    )
