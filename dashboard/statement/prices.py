"""What a GPU-hour costs at a time: the row of the price list that is in force."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from itertools import pairwise
from statistics import median

from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import GpuCatalogue, GpuModel
from data.grid_forecast import GridOutlook, current_outlook
from data.settings import Settings
from data.statement_settings import PRICE_KINDS, GpuPrice
from data.units import SECONDS_PER_HOUR

PLANNING = "planning"
"""The kind of the catalogue's prices: estimates for plans, of no bill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPrice:
    """Prices of a GPU-hour: as listed, as agreed without a commitment, and as charged."""

    kind: str
    listed: float
    contracted: float
    charged: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """The price list of one region; the catalogue's planning prices where no row is stated."""

    rows: tuple[GpuPrice, ...]
    region: str
    catalogue: GpuCatalogue

    def find(self, gpu_model: str, at: datetime) -> UnitPrice | None:
        """Return the prices of a model at a time, None when they are unknown."""
        if not self.rows:
            model = self.catalogue.find(gpu_model)
            if model is None:
                return None
            planned = model.price_per_hour
            return UnitPrice(kind=PLANNING, listed=planned, contracted=planned, charged=planned)
        found = {kind: self._row(gpu_model, kind, at) for kind in PRICE_KINDS}
        paid = next((row for row in found.values() if row is not None), None)
        if paid is None:
            return None
        charged = paid.per_gpu_hour * (1 - paid.discount_ratio)
        public = found["on-demand"] or paid
        listed = public.per_gpu_hour
        agreed = listed * (1 - public.discount_ratio) if paid.kind == "committed" else charged
        # A committed rate is no negotiated one: without an on-demand row it has none beside it.
        contracted = listed if public is paid and paid.kind == "committed" else agreed
        return UnitPrice(kind=paid.kind, listed=listed, contracted=contracted, charged=charged)

    def _row(self, gpu_model: str, kind: str, at: datetime) -> GpuPrice | None:
        """Return the row in force, one of this region before one of every region."""
        found = [
            row
            for row in self.rows
            if self.catalogue.recognise(row.gpu_model) == self.catalogue.recognise(gpu_model)
            and row.kind == kind
            and row.region.upper() in ("", self.region.upper())
            and row.start <= at < row.end
        ]
        return max(found, key=lambda row: bool(row.region), default=None)

    def unheard_of(self, models: Iterable[str]) -> dict[str, str]:
        """Return priced models that neither `models` nor the catalogue have, with one alike or ''.

        A price of a model in the catalogue that no board has is of use to plans.
        """
        known = {*models, *(model.name for model in self.catalogue)}
        stated = {row.gpu_model for row in self.rows}
        names = sorted(name for name in stated - known if self.catalogue.find(name) is None)
        alike = {name: get_close_matches(name, sorted(known), n=1, cutoff=0.3) for name in names}
        return {name: "".join(found) for name, found in alike.items()}

    def changes(self) -> Iterator[datetime]:
        """Yield the times at which a price begins or ends."""
        for row in self.rows:
            yield from (row.start, row.end)


def price_list(settings: Settings, catalogue: GpuCatalogue) -> PriceList:
    """Return the price list in force where the fleet stands.

    Errors: SettingsError for a region that no fleet can have.
    """
    for row in settings.statement.prices:
        if row.region:
            setting = f"statement.prices of {row.gpu_model} region"
            load_carbon_table().get(row.region, setting=setting)
    return PriceList(
        rows=settings.statement.prices, region=settings.energy.region, catalogue=catalogue
    )


def priced(
    catalogue: GpuCatalogue, settings: Settings, start: datetime, end: datetime | None = None
) -> GpuCatalogue:
    """Return the catalogue with what a GPU-hour is charged at a time, or on average until `end`.

    A plan weighs all GPUs against each other. So a model that the price list does not price all
    that time has an estimate, and says so: the catalogue's price, times the median ratio of stated
    prices to the catalogue's, which also brings it into the currency of the list. Without a price
    list nothing changes.
    """
    prices = price_list(settings, catalogue)
    if not prices.rows:
        return catalogue
    charged = {model.name: _mean_charge(prices, model.name, start, end) for model in catalogue}
    ratios = [
        price / model.price_per_hour
        for model in catalogue
        if (price := charged[model.name]) is not None and model.price_per_hour > 0
    ]
    ratio = median(ratios) if ratios else 1.0

    def stated(model: GpuModel) -> GpuModel:
        price = charged[model.name]
        if price is None:
            estimate = ratio * model.price_per_hour
            return replace(model, price_per_hour=estimate, price_is_stated=False)
        return replace(model, price_per_hour=price, price_is_stated=True)

    return GpuCatalogue(tuple(map(stated, catalogue)))


def as_paid(settings: Settings) -> Settings:
    """Return the settings of a plan: electricity costs nothing where GPU prices include it."""
    if not _includes_electricity(settings):
        return settings
    free = replace(settings.energy, electricity_price_per_kwh=0.0, electricity_price_by_hour="")
    return replace(settings, energy=free)


def grid_as_paid(settings: Settings, at: datetime) -> GridOutlook:
    """Return the forecast of the grid that a plan uses, without prices where nobody pays them."""
    outlook = current_outlook(settings, at)
    return outlook.without_prices() if _includes_electricity(settings) else outlook


def _includes_electricity(settings: Settings) -> bool:
    """Say whether GPU prices include electricity."""
    return bool(settings.statement.prices) and not settings.statement.charge_electricity


def _mean_charge(
    prices: PriceList, gpu_model: str, start: datetime, end: datetime | None
) -> float | None:
    """Return what a GPU-hour is charged on average, None where it has no price at some time."""
    until = end if end is not None and end > start else start + timedelta(hours=1)
    inside = {at for at in prices.changes() if start < at < until} if end is not None else set()
    times = sorted({start, until, *inside})
    total = 0.0
    for begin, stop in pairwise(times):
        found = prices.find(gpu_model, begin)
        if found is None:
            return None
        total += found.charged * (stop - begin).total_seconds() / SECONDS_PER_HOUR
    return total / ((until - start).total_seconds() / SECONDS_PER_HOUR)
