"""Money of changes as people read it: at planning prices its range holds that of the prices.

Promises are kept, ordered and verified at the price of the plan. Prices of one model move together,
so ranges add up low to low and high to high (`ledger.sum_of`).
"""

from dataclasses import replace

from dashboard.accounting.cost.prices import price_range
from data.records.recommendations import Range, Recommendation
from data.settings.all_settings import Settings

HOURS_A_DAY = 24
_KILOGRAMS_PER_TONNE = 1000


def as_shown(recommendation: Recommendation, settings: Settings) -> Recommendation:
    """Return it as every door shows it, with its digest: the money alone has another range."""
    savings, energy = recommendation.savings, settings.energy
    cost, kwh, emitted = savings.cost, savings.energy_kwh, savings.emissions_kgco2e
    if cost is None or settings.statement.prices:
        return recommendation
    carbon = energy.carbon_price_per_tonne / _KILOGRAMS_PER_TONNE

    def rent(bound: str) -> float:
        """Return a bound of the cost without its electricity and carbon."""
        prices = ((kwh, energy.electricity_price_per_kwh), (emitted, carbon))
        bill = sum(price * getattr(amount, bound) for amount, price in prices if amount)
        return float(getattr(cost, bound) - bill)

    money = in_price_range(cost, (rent("low"), rent("high")), settings)
    answer = replace(recommendation, savings=replace(savings, cost=money))
    return answer.as_kept(recommendation.digest)


def a_day(value: Range | None, revision: Recommendation) -> Range | None:
    """Return the part of a saving that falls within a day, None when it is unknown.

    A job that ends in two hours saves for two hours.
    """
    hours = revision.savings.horizon_hours
    return (
        None if value is None or hours <= 0 else value.times(HOURS_A_DAY / max(HOURS_A_DAY, hours))
    )


def in_price_range(money: Range, rent: tuple[float, float], settings: Settings) -> Range:
    """Return money over the range of prices; GPU prices make `rent` of its low and its high."""
    changes = (0.0, *(factor - 1 for factor in price_range(settings)))
    return replace(
        money,
        low=min(money.low + change * rent[0] for change in changes),
        high=max(money.high + change * rent[1] for change in changes),
    )
