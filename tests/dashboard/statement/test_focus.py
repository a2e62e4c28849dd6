"""FOCUS exports hold the rules that the specification states for each column, row by row."""

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from factories import H100, make_collected, make_job, make_samples

from dashboard.accounting.cost.export import allocation_document
from dashboard.accounting.cost.focus import (
    COLUMNS,
    VERSION,
    ColumnType,
    focus_csv,
    focus_parquet,
    focus_rows,
)
from dashboard.accounting.cost.statement import CostStatement, make_cost_statement
from dashboard.accounting.energy.periods import PeriodLength
from data.settings.all_settings import Settings
from data.settings.energy import EnergySettings
from data.settings.reports import ReportSettings
from data.settings.statements import GpuPrice, Invoice, StatementSettings
from data.store import Store, open_store

END = datetime(2026, 2, 1, 3, tzinfo=UTC)
START = END - timedelta(hours=6)
PRICES = (
    GpuPrice(gpu_model=H100, per_gpu_hour=4.0, discount_ratio=0.1),
    GpuPrice(gpu_model=H100, per_gpu_hour=4.0, discount_ratio=0.5, kind="committed"),
    GpuPrice(gpu_model="L40S-48GB", per_gpu_hour=1.0, kind="internal"),
)
SETTINGS = Settings(
    energy=EnergySettings(region="DEU"),
    report=ReportSettings(timezone="Europe/Berlin"),
    statement=StatementSettings(
        prices=PRICES,
        invoices=(Invoice(name="A-1", amount=100.0, start=START, end=END - timedelta(hours=1)),),
    ),
)
MANDATORY = {
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd",
    "BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargePeriodEnd",
    "ChargePeriodStart", "ContractedCost", "EffectiveCost", "HostProviderName",
    "InvoiceIssuerName", "ListCost", "PricingQuantity", "PricingUnit", "ServiceCategory",
    "ServiceName", "ServiceProviderName",
}  # fmt: skip
NULLABLE = {
    "BillingAccountName", "ChargeClass", "ChargeDescription", "PricingQuantity", "PricingUnit"
}  # fmt: skip
ALLOWED = {
    "ChargeCategory": {"Adjustment", "Credit", "Purchase", "Tax", "Usage"},
    "ChargeClass": {"Correction"},
    "ChargeFrequency": {"One-Time", "Recurring", "Usage-Based"},
    "CommitmentDiscountCategory": {"Spend", "Usage"},
    "CommitmentDiscountStatus": {"Used", "Unused"},
    "PricingCategory": {"Standard", "Dynamic", "Committed", "Other"},
    "ServiceCategory": {"Compute", "Other"},
    "ServiceSubcategory": {"Other (Compute)", "Other (Other)"},
}
COMMITMENT = [column.name for column in COLUMNS if column.name.startswith("CommitmentDiscount")]
PRICED = ("SkuId", "SkuPriceId", "PricingQuantity", "PricingUnit", "PricingCategory")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Six hours over a month's end in Berlin: held, shared, free, without a price or power."""
    held = {
        "GPU-0": {"job_id": "a/b"},
        "GPU-1": {"job_id": "a/=cmd", "gpu_model": "L40S-48GB"},
        "GPU-2": {"job_id": "", "utilization_ratio": 0.0, "memory_used_mib": 0.0},
        "GPU-3": {"job_id": "c/d", "gpu_model": "Voodoo2"},
        "GPU-4": {"job_id": "c/d", "power_watts": float("nan")},
        "GPU-5": {"job_id": "c/d"},
    }
    frames = [
        make_samples(minutes=361, end=END, **({"gpu_uuid": name, "power_watts": 200.0} | columns))
        for name, columns in held.items()
    ]
    frames.append(make_samples(minutes=361, end=END, gpu_uuid="GPU-5", job_id="a/b"))
    folder = tmp_path_factory.mktemp("focus")
    with open_store(f"duckdb:///{folder}/t.duckdb") as opened:
        jobs = (make_job("a/b"), make_job("a/=cmd", owner=""), make_job("c/d", namespace="c"))
        opened.keep(make_collected(pd.concat(frames, ignore_index=True), jobs))
        yield opened


@pytest.fixture(params=[PeriodLength.DAY, PeriodLength.HOUR])
def made(store: Store, request: pytest.FixtureRequest) -> CostStatement:
    """The statement by day or hour."""
    return make_cost_statement(
        store.reader, SETTINGS, start=START, end=END, by=("tenant",), every=request.param
    )


@pytest.fixture
def rows(made: CostStatement) -> list[dict[str, Any]]:
    """Its FOCUS rows."""
    return focus_rows(made, SETTINGS)


def test_every_column_is_there_of_its_type_and_null_only_where_allowed(
    rows: list[dict[str, Any]],
) -> None:
    """Mandatory columns, nullability, types, allowed values, and names in order."""
    names = [column.name for column in COLUMNS]
    own = [name for name in names if name.startswith("x_")]
    assert names == sorted(set(names) - set(own)) + own
    assert set(names) >= MANDATORY
    nulls = {column.name for column in COLUMNS if column.nulls}
    assert not (MANDATORY - NULLABLE) & nulls
    kinds = {
        ColumnType.DECIMAL: float,
        ColumnType.TIME: datetime,
        ColumnType.TEXT: str,
        ColumnType.JSON: str,
    }
    for row in rows:
        assert list(row) == names
        for column in COLUMNS:
            value = row[column.name]
            assert value is not None or column.nulls, column.name
            assert value is None or isinstance(value, kinds[column.kind]), column.name
            if column.kind is ColumnType.JSON and value is not None:
                assert all(isinstance(key, str) for key in json.loads(value))
        for name, allowed in ALLOWED.items():
            assert row[name] is None or row[name] in allowed


def test_prices_times_quantities_are_costs(rows: list[dict[str, Any]]) -> None:
    """Usage has a SKU, its price, quantity and unit; an adjustment has none of them."""
    assert {row["ChargeCategory"] for row in rows} == {"Usage", "Adjustment"}
    for row in rows:
        usage = row["ChargeCategory"] == "Usage"
        assert all((row[name] is not None) == usage for name in PRICED)
        if not usage:
            continue
        for cost, price in (
            ("ListCost", "ListUnitPrice"),
            ("ContractedCost", "ContractedUnitPrice"),
        ):
            assert row[cost] == pytest.approx(row[price] * row["PricingQuantity"], rel=1e-12)
        assert row["ConsumedUnit"] in ("GPU-Hours", "Kilowatt-Hours", None)
        assert (row["ConsumedQuantity"] is None) == (row["CommitmentDiscountStatus"] == "Unused")
        assert (row["ConsumedQuantity"] is None) == (row["ConsumedUnit"] is None)
        assert (row["ResourceId"] is None) == (row["ResourceType"] is None)
        assert row["RegionName"] == "Germany"
        assert (row["AllocatedMethodId"] is None) == (row["AllocatedResourceId"] is None)
        assert (row["AllocatedMethodId"] is not None) == (row["x_State"] == "shared")


def test_committed_rates_are_told_from_agreed_ones(rows: list[dict[str, Any]]) -> None:
    """List before discounts, contracted before the commitment, effective after it."""
    boards = [row for row in rows if row["SkuId"] == f"gpu/{H100}"]
    assert {row["CommitmentDiscountStatus"] for row in boards} == {"Used", "Unused"}
    for row in rows:
        committed = row["PricingCategory"] == "Committed"
        assert all((row[name] is not None) == committed for name in COMMITMENT)
    for row in boards:
        hours = row["PricingQuantity"]
        assert row["ListCost"] == pytest.approx(4.0 * hours)
        assert row["ContractedCost"] == pytest.approx(3.6 * hours)
        assert row["EffectiveCost"] == row["BilledCost"] == pytest.approx(2.0 * hours)
        assert (row["CommitmentDiscountStatus"] == "Unused") == (row["x_State"] == "free")
    own = [row for row in rows if row["SkuPriceId"] == "gpu/L40S-48GB/internal"]
    assert own
    assert all(row["ListCost"] == row["ContractedCost"] == row["EffectiveCost"] for row in own)


def test_charges_lie_within_their_billing_period(rows: list[dict[str, Any]]) -> None:
    """Months of the zone: Berlin's February begins at 23:00 UTC; ends are exclusive."""
    february = datetime(2026, 1, 31, 23, tzinfo=UTC)
    for row in rows:
        assert row["ChargePeriodStart"] < row["ChargePeriodEnd"]
        if row["ChargeCategory"] == "Usage":
            assert row["BillingPeriodStart"] <= row["ChargePeriodStart"]
            assert row["ChargePeriodEnd"] <= row["BillingPeriodEnd"]
    assert {row["BillingPeriodStart"] for row in rows} == {
        february, datetime(2025, 12, 31, 23, tzinfo=UTC)
    }  # fmt: skip
    assert {row["BillingPeriodEnd"] for row in rows} == {
        february, datetime(2026, 2, 28, 23, tzinfo=UTC)
    }  # fmt: skip


def test_billed_cost_is_the_statement_and_the_invoice(
    made: CostStatement, rows: list[dict[str, Any]]
) -> None:
    """All rows are the known cost; those of the invoice's time with its residual are its amount."""
    charges = [row for row in rows if row["ChargeCategory"] == "Usage"]
    assert sum(row["BilledCost"] for row in charges) == pytest.approx(made.total.cost)
    (invoice,) = SETTINGS.statement.invoices
    covered = [row for row in rows if row["ChargePeriodEnd"] <= invoice.end]
    assert sum(row["BilledCost"] for row in covered) == pytest.approx(invoice.amount)


def test_what_is_unknown_has_no_row_and_is_counted(
    made: CostStatement, rows: list[dict[str, Any]]
) -> None:
    """A model without a price and a board without power are named, and are nowhere 0."""
    assert not [row for row in rows if row["SkuId"] == "gpu/Voodoo2"]
    assert all(row["BilledCost"] > 0 for row in rows)
    price, energy, work = made.unknown
    assert price == "the price of 6.0 of 36.0 board-hours (Voodoo2): state it in statement.prices"
    assert energy.startswith("the energy of 6.0 of 36.0 board-hours: no power was measured")
    assert work.startswith("the work on 6.0 of 6.0 shared board-hours: in equal parts by use")
    hours = sum(row["PricingQuantity"] for row in rows if row["PricingUnit"] == "GPU-Hours")
    assert hours == pytest.approx(5 * 6)


def test_csv_and_parquet_hold_the_same(rows: list[dict[str, Any]]) -> None:
    """Times as FOCUS writes them, nulls empty, the version named; a name is no formula."""
    told = list(csv.DictReader(io.StringIO(focus_csv(rows))))
    table = pq.read_table(io.BytesIO(focus_parquet(rows)))
    assert table.schema.metadata == {b"FocusVersion": VERSION.encode()}
    assert len(told) == table.num_rows == len(rows)
    for text, row, stored in zip(told, rows, table.to_pylist(), strict=True):
        assert stored == row
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:00:00Z", text["ChargePeriodStart"])
        assert float(text["BilledCost"]) == row["BilledCost"]
        assert text["ChargeClass"] == ""
        assert not text["ResourceName"].startswith("=")


def test_a_statement_of_longer_periods_is_no_focus_dataset(store: Store) -> None:
    """A charge lies within one billing period."""
    week = make_cost_statement(
        store.reader, SETTINGS, start=START, end=END, every=PeriodLength.WEEK
    )
    with pytest.raises(ValueError, match="by hour or day"):
        focus_rows(week, SETTINGS)


def test_electricity_in_the_price_of_a_board_is_not_charged_again(store: Store) -> None:
    """With statement.charge_electricity off there is no row of it, and no cost."""
    stated = replace(SETTINGS.statement, charge_electricity=False, invoices=())
    settings = replace(SETTINGS, statement=stated)
    made = make_cost_statement(store.reader, settings, start=START, end=END, every=PeriodLength.DAY)
    assert {row["ServiceName"] for row in focus_rows(made, settings)} == {"GPU boards"}
    assert made.total.cost == made.total.gpu_cost


def test_allocations_are_those_of_opencost(made: CostStatement) -> None:
    """A map per period; idle boards under OpenCost's name; costs add up, unknown is null."""
    document = json.loads(json.dumps(asdict(allocation_document(made))))
    assert (document["code"], document["status"]) == (200, "success")
    found = [entry for period in document["data"] for entry in period.values()]
    assert len(document["data"]) == len({row.start for row in made.rows})
    assert sum(entry["totalCost"] for entry in found) == pytest.approx(made.total.cost)
    assert {entry["name"] for entry in found} == {"__idle__", "a", "c"}
    assert {entry["properties"]["namespace"] for entry in found} == {"(not allocated)", "a", "c"}
    for entry in found:
        assert entry["gpuCount"] * entry["minutes"] / 60 == pytest.approx(entry["gpuHours"])
        assert entry["window"] == {"start": entry["start"], "end": entry["end"]}
