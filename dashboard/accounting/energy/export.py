"""The statement written down: flat rows for CSV, one object for JSON, with method and factors."""

from dataclasses import asdict, dataclass

from dashboard.accounting.energy.factors import Factor
from dashboard.accounting.energy.periods import WHOLE_RANGE, Calendar
from dashboard.accounting.energy.statement import (
    METHOD,
    NOT_INCLUDED,
    WORK_UNIT,
    EsgStatement,
    StatementRow,
)
from dashboard.accounting.energy.work_units import UnitScore
from dashboard.common.csv_cells import csv_text
from data.records.recommendations import Range

_RANGES = {
    "gpu_energy_kwh": "gpu_energy_kwh",
    "site_energy_kwh": "site_energy_kwh",
    "location_kgco2e": "location_based_kgco2e",
    "market_kgco2e": "market_based_kgco2e",
    "embodied_kgco2e": "embodied_kgco2e",
    "sci_gco2e": "sci_gco2e_per_gpu_hour_of_work",
    "electricity_cost": "electricity_cost",
}
_HOURS = (
    "board_hours",
    "measured_hours",
    "gpu_hours",
    "idle_gpu_hours",
    "work_gpu_hours",
    "embodied_hours",
    "scored_hours",
)
Fields = dict[str, str | float | None]
"""A row by column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyDocument:
    """A statement of energy as one object, times as ISO texts."""

    start: str
    end: str
    as_of: str | None
    zone: str
    by: str
    tenant_is: str
    every: str
    completeness_ratio: float | None
    expected_board_hours: float | None
    unknown: list[str]
    total: Fields
    groups: list[Fields]
    rows: list[Fields]
    board_hours_by_model: dict[str, float]
    unit_of_work: str
    runs_scored_per_million_tokens: list[UnitScore]
    method: dict[str, str]
    factors: list[Factor]
    not_included: list[str]
    currency: str


def flat_rows(statement: EsgStatement) -> list[dict[str, object]]:
    """Return a mapping per row: times in UTC, amounts as low, central and high, and the factors.

    Unknown is None. Each row stands alone: it names its factors, their year and source.
    """
    by_name = {entry.name: entry for entry in statement.factors.entries}
    grid = by_name["grid carbon, location-based"]
    unknown = ", ".join(statement.unknown_models)
    basis = {
        "currency": statement.factors.currency,
        "tenant_is": statement.tenant_is,
        "pue": statement.factors.pue[1],
        "grid_carbon": grid.value,
        "grid_source": "; ".join(filter(None, (str(grid.year or ""), grid.source))),
        "market_gco2e_per_kwh": statement.factors.market,
        "gpu_life_years": statement.factors.life_years,
        "no_footprint_known_of": unknown,
        "method": "GHG Protocol Scope 2; ISO/IEC 21031:2024; docs/energy.md",
    }
    return [row_fields(row, statement.calendar) | basis for row in statement.rows]


def factor_rows(statement: EsgStatement) -> list[dict[str, object]]:
    """Return the facts beside every figure: method, factors, what is not included or unknown."""
    return [
        *({"kind": "method", "name": name, "value": text} for name, text in METHOD),
        *({"kind": "factor"} | asdict(entry) for entry in statement.told),
        *({"kind": "not included", "name": text} for text in NOT_INCLUDED),
        *({"kind": "unknown", "name": text} for text in statement.unknown),
    ]


def row_fields(row: StatementRow, calendar: Calendar) -> Fields:
    """Return one row flat, without the factors."""
    fields: Fields = {
        "start": row.start.isoformat(),
        "end": row.end.isoformat(),
        "period": calendar.name_of(row.start),
        "group": row.name,
        "holder": row.holder.value,
    }
    fields |= {name: getattr(row, name) for name in _HOURS}
    for name in ("measured_ratio", "embodied_ratio", "scored_ratio", "embodied_share"):
        fields[name] = getattr(row, name)
    for name, title in _RANGES.items():
        value: Range | None = getattr(row, name)
        bounds = (value.low, value.central, value.high) if value else (None,) * 3
        fields |= dict(zip(ranged(title), bounds, strict=True))
    return fields


def ranged(name: str) -> tuple[str, str, str]:
    """Return the three columns of a range."""
    return (f"{name}_low", name, f"{name}_high")


def statement_csv(statement: EsgStatement) -> str:
    """Return the rows as CSV that no spreadsheet runs."""
    rows = flat_rows(statement)
    columns = list(rows[0]) if rows else list(row_fields(statement.total, statement.calendar))
    return csv_text(rows, columns)


def statement_document(statement: EsgStatement) -> EnergyDocument:
    """Return the whole statement as one object that JSON can hold; unknown is None."""
    measured: Fields = {"measured_ratio": statement.completeness_ratio}
    return EnergyDocument(
        start=statement.start.isoformat(),
        end=statement.end.isoformat(),
        as_of=None if statement.as_of is None else statement.as_of.isoformat(),
        zone=statement.calendar.zone,
        by=statement.by.value,
        tenant_is=statement.tenant_is,
        every=statement.calendar.every.value,
        completeness_ratio=statement.completeness_ratio,
        expected_board_hours=statement.expected_hours,
        unknown=list(statement.unknown),
        total=row_fields(statement.total, WHOLE_RANGE) | measured,
        groups=[row_fields(row, WHOLE_RANGE) for row in statement.groups],
        rows=[row_fields(row, statement.calendar) for row in statement.rows],
        board_hours_by_model=dict(statement.models),
        unit_of_work=WORK_UNIT,
        runs_scored_per_million_tokens=list(statement.unit_scores),
        method=dict(METHOD),
        factors=list(statement.told),
        not_included=list(NOT_INCLUDED),
        currency=statement.factors.currency,
    )
