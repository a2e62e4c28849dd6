"""The statement as FOCUS 1.4 charges (FinOps Open Cost and Usage Specification), CSV or Parquet.

A row per hour or day, price, tenant, job, model and state of use: one for the board-hours, one for
their electricity. FOCUS knows no unknown cost, and none of it is 0: a charge whose price or energy
is unknown has no row, and `CostStatement.unknown` says how much that is. What an invoice bills
beyond the charges is an Adjustment, so that BilledCost adds up to the invoice.
"""

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

from dashboard.accounting.cost.budgets import BudgetRow
from dashboard.accounting.cost.charges import FREE, NAMES_OF_UNHELD, SHARED
from dashboard.accounting.cost.groups import BOARD_GROUPS
from dashboard.accounting.cost.prices import PLANNING
from dashboard.accounting.cost.statement import CostStatement, Reconciliation, month_of
from dashboard.accounting.energy.periods import PeriodLength
from dashboard.common.csv_cells import csv_text
from data.base.units import known
from data.catalogue.carbon_table import load_carbon_table
from data.facts.cluster_names import cluster_in
from data.settings.all_settings import Settings
from data.store.facts.energy_parts import NO_NAME

VERSION = "1.4"
PERIODS = (PeriodLength.HOUR, PeriodLength.DAY)
"""How long a charge may be: within one billing period."""
FORECAST_BY = ("tenant", "model")
_BILLING_ACCOUNT = "trimtab"
METHOD_ID = "trimtab-equal-share"
"""How holders of one device share it: docs/statement.md."""


class ColumnType(StrEnum):
    """The type of a column; a decimal is a double in Parquet."""

    TEXT = "String"
    DECIMAL = "Decimal"
    TIME = "Date/Time"
    JSON = "JSON"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the dataset; those that allow no null have one in no row."""

    name: str
    kind: ColumnType
    nulls: bool


_NAMES = {
    (ColumnType.DECIMAL, False): "BilledCost ContractedCost EffectiveCost ListCost",
    (
        ColumnType.TIME,
        False,
    ): "BillingPeriodEnd BillingPeriodStart ChargePeriodEnd ChargePeriodStart",
    (ColumnType.TEXT, False): "BillingAccountId BillingCurrency ChargeCategory ChargeFrequency "
    "HostProviderName InvoiceIssuerName ServiceCategory ServiceName ServiceProviderName "
    "ServiceSubcategory",
    (ColumnType.TEXT, True): "AllocatedMethodId AllocatedResourceId AllocatedResourceName "
    "BillingAccountName ChargeClass ChargeDescription CommitmentDiscountCategory "
    "CommitmentDiscountId CommitmentDiscountName CommitmentDiscountStatus CommitmentDiscountType "
    "CommitmentDiscountUnit ConsumedUnit PricingCategory PricingUnit RegionId RegionName "
    "ResourceId ResourceName ResourceType SkuId SkuMeter SkuPriceId SubAccountId SubAccountName "
    "x_State",
    (ColumnType.DECIMAL, True): "CommitmentDiscountQuantity ConsumedQuantity ContractedUnitPrice "
    "ListUnitPrice PricingQuantity",
    (ColumnType.JSON, True): "AllocatedTags SkuPriceDetails Tags",
}
COLUMNS = tuple(
    sorted(
        (
            Column(name=name, kind=kind, nulls=nulls)
            for (kind, nulls), names in _NAMES.items()
            for name in names.split()
        ),
        key=lambda column: (column.name.startswith("x_"), column.name),
    )
)
"""FOCUS columns in order of their names, then our own."""
FORECAST_COLUMNS = (
    *COLUMNS,
    Column(name="x_ForecastAsOf", kind=ColumnType.TIME, nulls=False),
    Column(name="x_ForecastHigh", kind=ColumnType.DECIMAL, nulls=False),
    Column(name="x_ForecastLow", kind=ColumnType.DECIMAL, nulls=False),
)
"""The columns of forecasts: FOCUS has no dataset of them, and no category of a charge."""

_GPU_UNIT, _ENERGY_UNIT = "GPU-Hours", "Kilowatt-Hours"
_CATEGORIES = {"internal": "Standard", "on-demand": "Standard", "committed": "Committed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FocusDocument:
    """Charges of a statement as FOCUS rows, by column."""

    version: str
    rows: list[dict[str, str | float | datetime | None]]


def focus_rows(statement: CostStatement, settings: Settings) -> list[dict[str, Any]]:
    """Return the charges of a statement by hour or day as FOCUS rows, by column.

    Errors: ValueError for a statement of longer periods or by board.
    """
    if statement.calendar.every not in PERIODS or set(BOARD_GROUPS).intersection(statement.by):
        raise ValueError("FOCUS charges are by hour or day, and of jobs")
    spans = dict(statement.calendar.spans(statement.start, statement.end))
    maker = _Rows(spans=spans, settings=settings)
    rows = [row for charge in statement.charges.to_dict("records") for row in maker.of(charge)]
    return rows + [maker.residual(invoice) for invoice in statement.invoices]


def forecast_rows(
    budgets: Iterable[BudgetRow], settings: Settings, *, at: datetime
) -> list[dict[str, Any]]:
    """Return this whole month and the next as forecast at a time, by tenant and model.

    `budgets` are by these two. No row stands among charges, and none is billed: BilledCost is 0,
    the forecast with its electricity the other costs, the 80 % interval in columns of our own.
    """
    this, maker = month_of(settings, at), _Rows(spans={}, settings=settings)
    following = _next_month(this, settings)
    after, rows = _next_month(following, settings), list[dict[str, Any]]()
    for budget in budgets:
        tenant, _, model = budget.tenant.rpartition("/")
        if budget.by != ",".join(FORECAST_BY):
            continue
        holder = None if tenant in (NO_NAME, *NAMES_OF_UNHELD.values()) else tenant
        for start, end, cost, hours in (
            (this, following, budget.month_end, budget.gpu_hours),
            (following, after, budget.next_month, budget.next_gpu_hours),
        ):
            if cost is None or hours is None or not hours.central:
                continue
            usage = _usage(cost.central, hours.central, _GPU_UNIT, f"gpu/{model}")
            row = maker.common(start, end) | usage
            rows.append(row | {
                "BilledCost": 0.0,
                "ChargeDescription": f"forecast: {model} with electricity, {tenant}",
                "PricingCategory": "Other",
                "ServiceCategory": "Compute",
                "ServiceName": "GPU boards",
                "ServiceSubcategory": "Other (Compute)",
                "SkuMeter": "GPU Hours",
                "SubAccountId": holder,
                "SubAccountName": holder,
                "x_ForecastAsOf": at,
                "x_ForecastHigh": cost.high,
                "x_ForecastLow": cost.low,
            })  # fmt: skip
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Makes the rows of a statement of these periods, from start to end."""

    spans: Mapping[datetime, datetime]
    settings: Settings

    def common(self, start: datetime, end: datetime) -> dict[str, Any]:
        """Return the columns that all rows of a period have."""
        stated, energy = self.settings.statement, self.settings.energy
        month = month_of(self.settings, end)
        return dict.fromkeys(column.name for column in COLUMNS) | {
            "BillingAccountId": _BILLING_ACCOUNT,
            "BillingAccountName": _BILLING_ACCOUNT,
            "BillingCurrency": energy.currency,
            "BillingPeriodEnd": _next_month(month, self.settings),
            "BillingPeriodStart": month,
            "ChargePeriodEnd": end,
            "ChargePeriodStart": start,
            "HostProviderName": stated.provider,
            "InvoiceIssuerName": stated.provider,
            "RegionId": energy.region,
            "RegionName": load_carbon_table().get(energy.region).name,
            "ServiceProviderName": stated.provider,
        }

    def of(self, charge: Mapping[Any, Any]) -> Iterator[dict[str, Any]]:
        """Yield the rows of a charge: board-hours and electricity, where known."""
        start = max(charge["start"].to_pydatetime(), charge["at"].to_pydatetime())
        end = min(self.spans[charge["start"].to_pydatetime()], charge["until"].to_pydatetime())
        common = self.common(start, end) | _holder(charge)
        if known(charge["gpu_cost"]) is not None:
            yield common | _gpu_charge(charge)
        if known(charge["electricity_cost"]):
            yield common | _electricity_charge(charge, self.settings.energy.region)

    def residual(self, reconciliation: Reconciliation) -> dict[str, Any]:
        """Return the amount that an invoice bills beyond the charges, as a row."""
        return self.common(reconciliation.invoice.start, reconciliation.invoice.end) | {
            "BilledCost": reconciliation.residual,
            "ChargeCategory": "Adjustment",
            "ChargeDescription": (
                f"what invoice {reconciliation.invoice.name} bills beyond the charges"
            ),
            "ChargeFrequency": "One-Time",
            "ContractedCost": reconciliation.residual,
            "EffectiveCost": reconciliation.residual,
            "ListCost": reconciliation.residual,
            "ServiceCategory": "Other",
            "ServiceName": "Invoice residual",
            "ServiceSubcategory": "Other (Other)",
        }


def _holder(charge: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the holder of a charge: sub account, resource, tags and a shared device's split."""
    state = charge["state"]
    if charge["holder"] in NAMES_OF_UNHELD:
        return {"x_State": state, "Tags": json.dumps({"trimtab/state": state})}
    names = {
        name: None if charge[name] == NO_NAME else charge[name]
        for name in ("tenant", "application", "owner", "job")
    }
    tags = {
        "application": names["application"],
        "owner": names["owner"],
        "trimtab/cluster": cluster_in(names["job"] or ""),
        "trimtab/state": state,
    }
    split = state == SHARED
    return {
        "AllocatedMethodId": METHOD_ID if split else None,
        "AllocatedResourceId": names["job"] if split else None,
        "AllocatedResourceName": names["job"] if split else None,
        "ResourceId": names["job"],
        "ResourceName": names["job"],
        "ResourceType": "GPU job",
        "SubAccountId": names["tenant"],
        "SubAccountName": names["tenant"],
        "Tags": json.dumps({key: value for key, value in tags.items() if value}),
        "x_State": state,
    }


def _usage(cost: float, quantity: float, unit: str, sku: str) -> dict[str, Any]:
    """Return the columns common to charges of usage, at one price."""
    price = cost / quantity
    return {
        "BilledCost": cost,
        "ChargeCategory": "Usage",
        "ChargeFrequency": "Usage-Based",
        "ConsumedQuantity": quantity,
        "ConsumedUnit": unit,
        "ContractedCost": price * quantity,
        "ContractedUnitPrice": price,
        "EffectiveCost": cost,
        "ListCost": price * quantity,
        "ListUnitPrice": price,
        "PricingCategory": "Standard",
        "PricingQuantity": quantity,
        "PricingUnit": unit,
        "SkuId": sku,
        "SkuPriceId": sku,
    }


def _gpu_charge(charge: Mapping[Any, Any]) -> dict[str, Any]:
    model, kind, hours = charge["model"], charge["kind"], float(charge["hours"])
    listed, contracted = (
        float(charge[f"{name}_cost"]) / hours for name in ("listed", "contracted")
    )
    row = _usage(float(charge["gpu_cost"]), hours, _GPU_UNIT, f"gpu/{model}") | {
        "ChargeDescription": f"{model}, {charge['state']}, {kind} price",
        "ContractedCost": contracted * hours,
        "ContractedUnitPrice": contracted,
        "ListCost": listed * hours,
        "ListUnitPrice": listed,
        "PricingCategory": "Other" if kind == PLANNING else _CATEGORIES[kind],
        "ServiceCategory": "Compute",
        "ServiceName": "GPU boards",
        "ServiceSubcategory": "Other (Compute)",
        "SkuMeter": "GPU Hours",
        "SkuPriceDetails": json.dumps({"GpuCount": 1, "InstanceType": model}),
        "SkuPriceId": f"gpu/{model}/{kind}",
    }
    if kind != "committed":
        return row
    unused = charge["state"] == FREE
    return row | {
        "CommitmentDiscountCategory": "Usage",
        "CommitmentDiscountId": f"committed/{model}",
        "CommitmentDiscountName": f"committed rate of {model}",
        "CommitmentDiscountQuantity": hours,
        "CommitmentDiscountStatus": "Unused" if unused else "Used",
        "CommitmentDiscountType": "Committed rate",
        "CommitmentDiscountUnit": _GPU_UNIT,
        "ConsumedQuantity": None if unused else hours,
        "ConsumedUnit": None if unused else _GPU_UNIT,
    }


def _electricity_charge(charge: Mapping[Any, Any], region: str) -> dict[str, Any]:
    cost, kwh = float(charge["electricity_cost"]), float(charge["site_kwh"])
    return _usage(cost, kwh, _ENERGY_UNIT, f"electricity/{region}") | {
        "ChargeDescription": f"electricity of {charge['model']}, {charge['state']}",
        "ServiceCategory": "Other",
        "ServiceName": "Electricity",
        "ServiceSubcategory": "Other (Other)",
        "SkuMeter": "Electricity",
    }


def _next_month(month: datetime, settings: Settings) -> datetime:
    zone = ZoneInfo(settings.report.timezone)
    local = month.astimezone(zone)
    year, following = divmod(local.year * 12 + local.month, 12)
    return local.replace(year=year, month=following + 1).astimezone(month.tzinfo)


def focus_csv(rows: list[dict[str, Any]], columns: Sequence[Column] = COLUMNS) -> str:
    """Return the rows as CSV: times as FOCUS writes them, null as empty."""
    times = [column.name for column in columns if column.kind is ColumnType.TIME]
    texts = [row | {name: f"{row[name]:%Y-%m-%dT%H:%M:%SZ}" for name in times} for row in rows]
    return csv_text(texts, [column.name for column in columns])


def focus_parquet(rows: list[dict[str, Any]], columns: Sequence[Column] = COLUMNS) -> bytes:
    """Return the rows as a Parquet file that names the version of FOCUS."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {ColumnType.DECIMAL: pa.float64(), ColumnType.TIME: pa.timestamp("us", tz="UTC")}
    schema = pa.schema(
        [
            pa.field(column.name, kinds.get(column.kind, pa.string()), nullable=column.nulls)
            for column in columns
        ],
        metadata={"FocusVersion": VERSION},
    )
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink)
    return sink.getvalue()
