"""Price of a GPU-hour at a time: the row of the price list that is in force."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from itertools import pairwise
from statistics import median

from dashboard.common.figures import figure_text
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import CURRENCY, GpuCatalogue, GpuModel
from data.catalogue.grid_forecast import GridOutlook, current_outlook
from data.settings.all_settings import Settings
from data.settings.statements import PRICE_KINDS, GpuPrice

PLANNING = "planning"
"""The kind of the catalogue's prices: estimates for plans, not taken from an invoice."""

PLANNING_RANGE = (0.6, 2.4)
"""Times a planning price, 80 %: on-demand lists of eight providers in September to November 2026
have 2.4 to 12.3 USD for an hour of an H100 SXM (2.5 EUR here), 1.4 to 3.4 for an A100 SXM 80 GB;
commitments and own machines cost about half of the lower ones."""


def price_range(settings: Settings) -> tuple[float, float]:
    """Return how far prices may be off, as factors: those that somebody stated are right."""
    return (1.0, 1.0) if settings.statement.prices else PLANNING_RANGE


def price_note(settings: Settings) -> str:
    """Return the words for a range that holds that of prices, '' where they are stated."""
    low, high = price_range(settings)
    return "" if low == high else f" (planning price {low:g}–{high:g}×)"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPrice:
    """Prices of a GPU-hour: as listed, as agreed without a commitment, and as charged."""

    kind: str
    listed: float
    contracted: float
    charged: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rent:
    """Cost of GPU-hours that have a price, None where none has; and the models of the others."""

    amount: float | None
    unpriced_models: tuple[str, ...] = ()

    def text(self, currency: str) -> str:
        """Return it in words: where a model has no price it is a minimum, and names the model."""
        names = ", ".join(model or "no name" for model in self.unpriced_models)
        note = f" (no price of {names})" if names else ""
        if self.amount is None:
            return f"—{note}"
        least = "at least " if names else ""
        return f"{least}{figure_text(self.amount)} {currency}{note}"

    def sentence(self, currency: str, left_out: str) -> str:
        """Return it with what it leaves out, from `exclusion_words`: no heading says so."""
        return self.text(currency) + ("" if self.amount is None else left_out)


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
        by_kind = {kind: self._row(gpu_model, kind, at) for kind in PRICE_KINDS}
        paid = next((row for row in by_kind.values() if row is not None), None)
        if paid is None:
            return None
        charged = paid.per_gpu_hour * (1 - paid.discount_ratio)
        public = by_kind["on-demand"] or paid
        listed = public.per_gpu_hour
        agreed = listed * (1 - public.discount_ratio) if paid.kind == "committed" else charged
        # A committed rate is no negotiated one: without an on-demand row it has none beside it.
        contracted = listed if public is paid and paid.kind == "committed" else agreed
        return UnitPrice(kind=paid.kind, listed=listed, contracted=contracted, charged=charged)

    def _row(self, gpu_model: str, kind: str, at: datetime) -> GpuPrice | None:
        """Return the row in force, one of this region before one of every region."""
        rows = [
            row
            for row in self.rows
            if self.catalogue.recognise(row.gpu_model) == self.catalogue.recognise(gpu_model)
            and row.kind == kind
            and row.region.upper() in ("", self.region.upper())
            and row.start <= at < row.end
        ]
        return max(rows, key=lambda row: bool(row.region), default=None)

    def mean_charge(self, gpu_model: str, start: datetime, end: datetime) -> float | None:
        """Return the mean charge of a GPU-hour from `start` to a later `end`.

        None where the model has no price at some of that time.
        """
        inside = {at for at in self.changes() if start < at < end}
        total = 0.0
        for begin, stop in pairwise(sorted({start, end, *inside})):
            price = self.find(gpu_model, begin)
            if price is None:
                return None
            total += price.charged * (stop - begin).total_seconds()
        return total / (end - start).total_seconds()

    def rent(self, hours: Iterable[tuple[str, float]], start: datetime, end: datetime) -> Rent:
        """Return the cost of GPU-hours by model at the mean price from `start` to `end`."""
        rented = [
            (model, self.mean_charge(model, start, end), spent) for model, spent in hours if spent
        ]
        costs = [price * spent for _, price, spent in rented if price is not None]
        models = {model for model, price, _ in rented if price is None}
        return Rent(amount=sum(costs) if costs else None, unpriced_models=tuple(sorted(models)))

    def unheard_of(self, models: Iterable[str], unpriced: Iterable[str] = ()) -> dict[str, str]:
        """Return priced models that neither `models` nor the catalogue have, with one alike or ''.

        A price of a model in the catalogue that no board has is of use to plans. A model that is
        `unpriced` is what a price was more likely meant for than any other.
        """
        catalogued = {*models, *(model.name for model in self.catalogue)}
        stated = {row.gpu_model for row in self.rows}
        names = sorted(name for name in stated - catalogued if self.catalogue.find(name) is None)
        return {name: _alike(name, unpriced) or _alike(name, catalogued) for name in names}

    def changes(self) -> Iterator[datetime]:
        """Yield the times at which a price begins or ends."""
        for row in self.rows:
            yield from (row.start, row.end)


def _alike(name: str, models: Iterable[str]) -> str:
    """Return the model whose name is most like this one, '' where none is."""
    folded = {model.casefold(): model for model in sorted(models)}
    return "".join(
        folded[match] for match in get_close_matches(name.casefold(), folded, n=1, cutoff=0.3)
    )


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


def priced(catalogue: GpuCatalogue, settings: Settings, at: datetime) -> GpuCatalogue:
    """Return the catalogue with what a GPU-hour is charged at a time.

    A plan weighs all GPUs against each other. So a model that the price list does not price then
    has an estimate, and says so: the catalogue's price, times the median ratio of stated
    prices to the catalogue's, which also brings it into the currency of the list. Without a price
    list nothing changes.
    """
    prices = price_list(settings, catalogue)
    if not prices.rows:
        return catalogue
    price_by_model = {model.name: prices.find(model.name, at) for model in catalogue}
    ratios = [
        price.charged / model.price_per_hour
        for model in catalogue
        if (price := price_by_model[model.name]) is not None and model.price_per_hour > 0
    ]
    ratio = median(ratios) if ratios else 1.0

    def stated(model: GpuModel) -> GpuModel:
        price = price_by_model[model.name]
        if price is None:
            estimate = ratio * model.price_per_hour
            return replace(model, price_per_hour=estimate, price_is_stated=False)
        return replace(model, price_per_hour=price.charged, price_is_stated=True)

    return GpuCatalogue(tuple(map(stated, catalogue)))


def planning_prices(currency: str) -> str:
    """Return the worth of the catalogue's prices where sums are in a currency, in words."""
    same = currency.upper() == CURRENCY
    are = "" if same else f" in {CURRENCY}, counted as {currency} without conversion"
    return f"the catalogue's planning prices{are}, not from an invoice; set statement.prices"


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


def exclusion_words(settings: Settings) -> str:
    """Return, in words that follow a cost by GPU prices, what it leaves out; '' where nothing."""
    return "" if _includes_electricity(settings) else ", excluding electricity"


def _includes_electricity(settings: Settings) -> bool:
    """Return whether GPU prices include electricity."""
    return bool(settings.statement.prices) and not settings.statement.charge_electricity
