"""The statement of cost as a value, and how it is made from charges.

Who pays: the tenant of the job that held a board. What nobody held is on rows of its own, and what
an invoice bills beyond all known charges is its residual: neither is spread over tenants.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

from dashboard.accounting.cost.charges import (
    AMOUNTS,
    FREE,
    IDLE,
    NAMES,
    SHARED,
    UNATTRIBUTED,
    UNCLEAR,
    USED,
    charges_of,
)
from dashboard.accounting.cost.groups import BOARD_GROUPS
from dashboard.accounting.cost.prices import PLANNING, PriceList, planning_prices, price_list
from dashboard.accounting.energy.build import calendar_of, expected_hours, tenant_key
from dashboard.accounting.energy.factors import factors_from
from dashboard.accounting.energy.periods import Calendar, PeriodLength, require_whole_slots
from data.base.errors import BadRangeError, scrub
from data.base.units import known
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.all_settings import Settings
from data.settings.statements import Invoice
from data.store import StoreReader
from data.store.facts.energy_parts import EnergyKey

_HOURS = {
    "used_hours": USED,
    "idle_hours": IDLE,
    "shared_hours": SHARED,
    "unclear_hours": UNCLEAR,
    "free_hours": FREE,
    "unattributed_hours": UNATTRIBUTED,
}
_SUMS = ("board_hours", *_HOURS, *(name for name in AMOUNTS if name != "hours"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """One group in one period [start, end): board-hours by state of use, energy and money.

    Energy and emissions (location-based) are the site's.

    Money and energy are of what is known; `unpriced_hours` of `board_hours` have no price,
    `unmeasured_hours` no power. None where nothing is known. GPUs are by share in `gpu_cost` (a
    slice, or an equal part of a shared board) and by use in `use_cost`, where `unread_hours` of
    `shared_hours`, whose work nobody told, are by share.
    """

    start: datetime
    end: datetime
    names: tuple[str, ...]
    board_hours: float
    used_hours: float
    idle_hours: float
    shared_hours: float
    unclear_hours: float
    free_hours: float
    unattributed_hours: float
    gpu_kwh: float | None
    site_kwh: float | None
    gpu_cost: float | None
    electricity_cost: float | None
    unpriced_hours: float
    unmeasured_hours: float
    kgco2e: float | None = None
    use_cost: float | None = None
    unread_hours: float = 0.0

    @property
    def cost(self) -> float | None:
        """GPUs and electricity together, of what is known."""
        amounts = [value for value in (self.gpu_cost, self.electricity_cost) if value is not None]
        return sum(amounts) if amounts else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """An invoice beside the known charges of its time; `residual` is what it bills beyond them."""

    invoice: Invoice
    charged: float
    residual: float
    unpriced_hours: float
    unmeasured_hours: float
    unobserved_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CostStatement:
    """Users of the boards in [start, end), and the cost.

    `rows` add up to `total`; `charges` are the parts that both are sums of. Board-time that nobody
    saw, `unobserved_hours`, is in no row. `unheard_of` are models in the price list that no board
    of it has and the catalogue does not know, with the nearest known one.
    """

    start: datetime
    end: datetime
    as_of: datetime | None
    by: tuple[str, ...]
    tenant_is: str
    calendar: Calendar
    currency: str
    rows: tuple[CostRow, ...]
    total: CostRow
    unobserved_hours: float
    invoices: tuple[Reconciliation, ...]
    charges: pd.DataFrame
    unheard_of: Mapping[str, str] = field(default_factory=dict)

    def rows_by(self, *by: str) -> tuple[CostRow, ...]:
        """Return its rows by other groups; boards only where it was made by board."""
        return _rows(self.charges, by, dict(self.calendar.spans(self.start, self.end)))

    def within(self, start: datetime, end: datetime, names: Mapping[str, str]) -> "CostStatement":
        """Return its part in whole periods from start to end with these names.

        What nobody observed and what invoices bill beyond the charges is of the whole alone.
        """
        mask = (self.charges["start"] >= start) & (self.charges["start"] < end)
        for column, name in names.items():
            mask &= self.charges[column] == name
        charges = self.charges[mask]
        spans = dict(self.calendar.spans(self.start, self.end))
        return replace(
            self,
            start=max(start, self.start),
            end=min(end, self.end),
            rows=_rows(charges, self.by, spans),
            total=_row(_by_state(charges)[list(_SUMS)].sum(min_count=1), (), start, end),
            unobserved_hours=0.0,
            invoices=(),
            charges=charges,
        )

    @property
    def unknown(self) -> tuple[str, ...]:
        """Gaps of the statement, and what would close each."""
        total, notes = self.total, []
        if total.unpriced_hours > 0:
            unpriced = self.charges[self.charges["kind"] == ""]
            models = ", ".join(sorted(name or "no name" for name in unpriced["model"].unique()))
            notes.append(
                f"the price of {total.unpriced_hours:,.1f} of {total.board_hours:,.1f} board-hours "
                f"({models}): state it in statement.prices"
            )
        for model, alike in self.unheard_of.items():
            notes.append(
                f"which boards the price of {scrub(repr(model), limit=60)} in statement.prices is "
                "for: no board here is of that model, and the catalogue does not know it"
                + (f"; is it {alike}?" if alike else "")
            )
        if total.unmeasured_hours > 0.05:
            notes.append(
                f"the energy of {total.unmeasured_hours:,.1f} of {total.board_hours:,.1f} "
                "board-hours: no power was measured, so electricity is at least what is shown"
            )
        if total.unread_hours > 0.05:
            notes.append(
                f"the work on {total.unread_hours:,.1f} of {total.shared_hours:,.1f} shared "
                "board-hours: in equal parts by use, as no engine tells its tokens both there and "
                "on a board alone"
            )
        if self.unobserved_hours > 0.05:
            notes.append(
                f"{self.unobserved_hours:,.1f} board-hours that nobody observed: nobody is charged"
            )
        if (self.charges["kind"] == PLANNING).any():
            notes.append(f"your prices: these are {planning_prices(self.currency)}")
        return tuple(notes)


def make_cost_statement(
    reader: StoreReader,
    settings: Settings,
    *,
    start: datetime,
    end: datetime,
    by: Sequence[str] = ("tenant",),
    every: PeriodLength = PeriodLength.TOTAL,
    is_coarse: bool = False,
    takes: Callable[[str], bool] | None = None,
) -> CostStatement:
    """Return the statement of [start, end) by groups together and periods of report.timezone.

    One that is coarse tells apart tenant, model and state, and no jobs. With `takes` it is of the
    jobs of these ids alone: what nobody held or saw, and invoices, are not theirs.

    Errors: BadRangeError for an empty range or groups that do not go together; SettingsError for a
    region that is not in the carbon table.
    """
    if start >= end:
        raise BadRangeError(
            f"from {start:%Y-%m-%dT%H:%MZ} is not before to {end:%Y-%m-%dT%H:%MZ}",
            "Give an earlier `from`; `to` is the newest sample unless it is given.",
        )
    of_boards = [name for name in BOARD_GROUPS if name in by]
    if len(of_boards) > 1 or (of_boards and set(NAMES).intersection(by)):
        raise BadRangeError(
            f"by {','.join(by)}: a {of_boards[0]} is not told apart by who held its boards",
            f"Give {of_boards[0]} alone, or with model or state.",
        )
    calendar = calendar_of(settings, every)
    factors = factors_from(settings.energy, load_carbon_table().get(settings.energy.region))
    covered = [
        invoice
        for invoice in settings.statement.invoices
        if takes is None and start <= invoice.start and invoice.end <= end
    ]
    tenant_is = tenant_key(settings)
    key = EnergyKey(tenant_is) if is_coarse else EnergyKey.JOB
    prices = price_list(settings, load_gpu_catalogue())
    charges = charges_of(
        reader,
        settings,
        start=start,
        end=end,
        calendar=calendar,
        prices=prices,
        factors=factors,
        cuts=[at for value in covered for at in (value.start, value.end)],
        key=EnergyKey(of_boards[0]) if of_boards else key,
        takes=takes,
    )
    return CostStatement(
        start=start,
        end=end,
        as_of=reader.latest_sample_at(),
        by=tuple(by),
        tenant_is=tenant_is,
        calendar=calendar,
        currency=settings.energy.currency,
        rows=_rows(charges, by, dict(calendar.spans(start, end))),
        total=_row(_by_state(charges)[list(_SUMS)].sum(min_count=1), (), start, end),
        unobserved_hours=0.0 if takes else _unobserved(reader, charges, start, end),
        invoices=tuple(_reconciled(reader, charges, value) for value in covered),
        charges=charges,
        unheard_of=_unheard_of(reader, prices, charges),
    )


def _unheard_of(reader: StoreReader, prices: PriceList, charges: pd.DataFrame) -> Mapping[str, str]:
    """Return the models that no board had in any time that is kept, not in the charges' alone."""
    unpriced = set(charges.loc[charges["kind"] == "", "model"]) - {""}
    models = prices.unheard_of(charges["model"].unique())
    if not models:
        return models
    return prices.unheard_of((gpu.gpu_model for gpu in reader.gpus()), unpriced)


def asked_cost_statement(
    reader: StoreReader,
    settings: Settings,
    *,
    by: Sequence[str],
    every: str,
    start: datetime | None,
    end: datetime | None,
) -> CostStatement:
    """Return the statement that somebody asks for: without a range, of the month so far.

    It ends with the newest sample and begins with the calendar month of its end. Errors as of
    `make_cost_statement`, and BadRangeError for times within five minutes.
    """
    require_whole_slots(start, end)
    end = end or reader.latest_sample_at() or reader.clock()
    return make_cost_statement(
        reader,
        settings,
        start=start or month_of(settings, end),
        end=end,
        by=by,
        every=PeriodLength(every),
    )


def month_of(settings: Settings, at: datetime) -> datetime:
    """Return the beginning of the calendar month before a time, in report.timezone, as UTC."""
    local = (at - timedelta(microseconds=1)).astimezone(ZoneInfo(settings.report.timezone))
    first = local.replace(day=1, hour=0, minute=0, second=0, microsecond=0, fold=0)
    return first.astimezone(UTC)


def _by_state(charges: pd.DataFrame) -> pd.DataFrame:
    """Add the hours of each state of use as columns that add up."""
    hours, states = charges["hours"].to_numpy(), charges["state"].to_numpy()
    hours_by_state = {name: np.where(states == state, hours, 0.0) for name, state in _HOURS.items()}
    return charges.assign(board_hours=hours, **hours_by_state)


def _rows(
    charges: pd.DataFrame, by: Sequence[str], spans: Mapping[datetime, datetime]
) -> tuple[CostRow, ...]:
    """Return the rows by period and groups, in order of time and of names."""
    groups = _by_state(charges).groupby(["start", *by], sort=True)[list(_SUMS)]
    records = groups.sum(min_count=1).reset_index().to_dict("records")
    starts = [row["start"].to_pydatetime() for row in records]
    return tuple(
        _row(row, tuple(str(row[group]) for group in by), start, spans[start])
        for row, start in zip(records, starts, strict=True)
    )


def _row(sums: Any, names: tuple[str, ...], start: datetime, end: datetime) -> CostRow:
    amounts: dict[str, Any] = {
        name: (known(sums[name]) or 0.0) if name.endswith("hours") else known(sums[name])
        for name in _SUMS
        if name not in ("listed_cost", "contracted_cost")
    }
    return CostRow(start=start, end=end, names=names, **amounts)


def _unobserved(
    reader: StoreReader, charges: pd.DataFrame, start: datetime, end: datetime
) -> float:
    since = reader.boards_since(start=start, end=end)
    return max(0.0, expected_hours(since, start, end) - float(charges["hours"].sum()))


def _reconciled(reader: StoreReader, charges: pd.DataFrame, invoice: Invoice) -> Reconciliation:
    inside = charges[(charges["at"] >= invoice.start) & (charges["at"] < invoice.end)]
    charged = float(inside[["gpu_cost", "electricity_cost"]].sum().sum())
    return Reconciliation(
        invoice=invoice,
        charged=charged,
        residual=invoice.amount - charged,
        unpriced_hours=float(inside["unpriced_hours"].sum()),
        unmeasured_hours=float(inside["unmeasured_hours"].sum()),
        unobserved_hours=_unobserved(reader, inside, invoice.start, invoice.end),
    )
