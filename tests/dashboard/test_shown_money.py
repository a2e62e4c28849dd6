"""Money of changes as doors show it: over the range of planning prices, until prices are stated."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from factories import make_recommendation
from hypothesis import given
from hypothesis import strategies as st

from dashboard.accounting.cost.prices import PLANNING_RANGE, price_note
from dashboard.accounting.savings.ledger import sum_of
from dashboard.accounting.savings.shown_money import as_shown
from data.records.recommendations import Range, Recommendation
from data.settings.all_settings import Settings
from data.settings.statements import GpuPrice, StatementSettings

PLANNED = Settings()
STATED = replace(
    PLANNED,
    statement=StatementSettings(
        prices=(
            GpuPrice(
                gpu_model="H100-SXM5-80GB",
                per_gpu_hour=3.0,
                start=datetime(2020, 1, 1, tzinfo=UTC),
                end=datetime(2030, 1, 1, tzinfo=UTC),
            ),
        )
    ),
)
ENERGY = PLANNED.energy.electricity_price_per_kwh


def saving(hours: tuple[float, ...], kwh: float | None, price: float = 1.0) -> Recommendation:
    """A change that frees GPU-hours, at a price, and saves energy of its own price."""
    low, central, high = (price * each + ENERGY * (kwh or 0.0) for each in sorted(hours))
    return make_recommendation(
        savings=replace(
            make_recommendation().savings,
            energy_kwh=None if kwh is None else Range(low=kwh, central=kwh, high=kwh, unit="kWh"),
            emissions_kgco2e=None,
            cost=Range(low=low, central=central, high=high, unit="EUR"),
        )
    )


def bounds(recommendation: Recommendation, settings: Settings) -> tuple[float, float, float]:
    """What a door shows of its money."""
    cost = as_shown(recommendation, settings).savings.cost
    assert cost is not None
    return cost.low, cost.central, cost.high


def test_a_guessed_price_is_in_the_range() -> None:
    """60 (0-60) EUR may be 144 at another price, and a sure 60 may be 36; energy has its own."""
    assert bounds(saving((0, 60, 60), None), PLANNED) == pytest.approx((0, 60, 144))
    assert bounds(saving((60, 60, 60), None), PLANNED) == pytest.approx((36, 60, 144))
    bill = 100 * ENERGY
    assert bounds(saving((60, 60, 60), 100), PLANNED) == pytest.approx(
        (36 + bill, 60 + bill, 144 + bill)
    )
    assert bounds(saving((0, 0, 0), 100), PLANNED) == pytest.approx((bill, bill, bill))
    assert price_note(PLANNED) == " (planning price 0.6–2.4×)"


def test_a_loss_is_at_most_as_large_as_at_the_dearest_price() -> None:
    """What takes GPUs costs more where they are dear."""
    assert bounds(saving((-10, -10, -10), None), PLANNED) == pytest.approx((-24, -10, -6))


def test_with_a_price_list_nothing_changes() -> None:
    """The range is that of the physical saving, and no word is added."""
    one = saving((0, 60, 60), 100)
    assert as_shown(one, STATED) is one
    assert price_note(STATED) == ""


def test_it_stays_the_same_recommendation() -> None:
    """People approve its digest, which names what was promised at the price of the plan."""
    one = saving((0, 60, 60), None)
    shown = as_shown(one, PLANNED)
    assert (shown.digest, shown.recommendation_id) == (one.digest, one.recommendation_id)
    assert replace(shown, savings=one.savings) == one
    unknown = make_recommendation(savings=replace(one.savings, cost=None))
    assert as_shown(unknown, PLANNED) is unknown


amounts = st.tuples(*[st.floats(0, 1e4)] * 3)


@given(st.lists(st.tuples(amounts, st.floats(0, 1e4)), min_size=1, max_size=5), st.floats(0.6, 2.4))
def test_a_sum_holds_every_price_in_the_range(
    changes: list[tuple[tuple[float, ...], float]], factor: float
) -> None:
    """All prices move together: the sum at any one factor lies in the sum of what is shown."""
    assert PLANNING_RANGE[0] <= factor <= PLANNING_RANGE[1]
    shown = [as_shown(saving(*change), PLANNED).savings.cost for change in changes]
    total = sum_of([cost for cost in shown if cost])
    assert total is not None
    for place in range(3):
        truth = sum(factor * sorted(hours)[place] + ENERGY * kwh for hours, kwh in changes)
        assert total.low - 1e-6 <= truth <= total.high + 1e-6
