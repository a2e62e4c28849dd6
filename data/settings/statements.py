"""Settings of the statement of cost: price lists, budgets, invoices, and the issuer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Any

from data.base.errors import SettingsError, scrub
from data.settings.fields import Section, documented, documented_rows, fixed, require, require_once

PRICE_KINDS = ("internal", "committed", "on-demand")
"""The first kind in force is what tenants pay."""

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_OPEN_END = datetime(2200, 1, 1, tzinfo=UTC)


def _require_span(name: str, start: datetime, end: datetime) -> None:
    for which, at in (("start", start), ("end", end)):
        zoned = f"a time with its zone: {at:%Y-%m-%dT%H:%M:%S}Z"
        require(at.utcoffset() is not None, f"{name} {which}", at, zoned)
        is_hour = at.utcoffset() == timedelta() and at.timestamp() % 3600 == 0
        valid = is_hour and _BEGINNING <= at <= _OPEN_END
        require(valid, f"{name} {which}", at, "a whole hour of UTC: 2026-01-01T00:00:00Z")
    require(end > start, f"{name} end", end, f"after its start {start:%Y-%m-%dT%H:%MZ}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPrice:
    """The price of a whole board of a model per hour from `start` to `end`, by one kind of list.

    `region` empty: everywhere; otherwise where energy.region is this. `discount_ratio` is taken off
    `per_gpu_hour`.
    """

    gpu_model: str
    per_gpu_hour: float
    kind: str = "on-demand"
    region: str = ""
    discount_ratio: float = 0.0
    start: datetime = _BEGINNING
    end: datetime = _OPEN_END

    def __post_init__(self) -> None:
        name = f"statement.prices of {self.gpu_model}"
        require(self.kind in PRICE_KINDS, f"{name} kind", self.kind, " or ".join(PRICE_KINDS))
        require(0 <= self.per_gpu_hour <= 1e6, f"{name} per_gpu_hour", self.per_gpu_hour, "0..1e6")
        ratio = self.discount_ratio
        require(0 <= ratio <= 1, f"{name} discount_ratio", ratio, "a share, 0..1")
        _require_span(name, self.start, self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The budget of a tenant in a calendar month of report.timezone."""

    tenant: str
    per_month: float

    def __post_init__(self) -> None:
        name = f"statement.budgets per_month of {self.tenant}"
        require(0 < self.per_month <= 1e12, name, self.per_month, "above 0, at most 1e12")


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoice:
    """The bill for the whole fleet from `start` to `end`."""

    name: str
    amount: float
    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        name = f"statement.invoices {self.name}"
        require(0 <= self.amount <= 1e12, f"{name} amount", self.amount, "0..1e12")
        _require_span(name, self.start, self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementSettings(Section, name="statement"):
    """Prices of the fleet; without one the catalogue's planning prices are used."""

    provider: str = fixed("own fleet")  # who provides the GPUs, in FOCUS exports
    charge_electricity: bool = documented(
        True, "charge electricity beside the GPUs; off where GPU prices include it"
    )
    prices: tuple[GpuPrice, ...] = documented_rows(
        GpuPrice,
        "price list: tables of gpu_model, per_gpu_hour, kind (internal before committed before "
        "on-demand), region, discount_ratio, start, end; once one is stated, other models have "
        "no price",
    )
    budgets: tuple[Budget, ...] = documented_rows(Budget, "budgets: tables of tenant and per_month")
    invoices: tuple[Invoice, ...] = documented_rows(
        Invoice, "invoices of the whole fleet: tables of name, amount, start, end"
    )

    def _check(self) -> None:
        _require_apart(
            "prices",
            self.prices,
            lambda row: " ".join((row.gpu_model, row.kind, row.region)).strip(),
        )
        _require_apart("invoices", self.invoices, lambda _row: "")
        require_once([budget.tenant for budget in self.budgets], "statement.budgets tenant")


def _require_apart(name: str, rows: Sequence[Any], key: Callable[[Any], str]) -> None:
    """Refuse two rows of the same key that are in force at the same time."""
    for entry, other in combinations(rows, 2):
        if entry.start < other.end and other.start < entry.end and key(entry) == key(other):
            raise SettingsError(
                f"statement.{name}: {_in_words(entry)} and {_in_words(other)} are in force at once",
                "It must be one at a time: let the one end where the other starts.",
            )


def _in_words(row: GpuPrice | Invoice) -> str:
    """Return the name of a row, as a person would find it in the file."""
    which = (
        f"the {row.kind} price {row.per_gpu_hour:g} of {row.gpu_model}"
        if isinstance(row, GpuPrice)
        else f"the invoice {row.name} of {row.amount:g}"
    )
    start = "" if row.start == _BEGINNING else f" from {row.start:%Y-%m-%dT%H:%MZ}"
    end = "" if row.end == _OPEN_END else f" to {row.end:%Y-%m-%dT%H:%MZ}"
    return scrub(which, limit=120) + start + end
