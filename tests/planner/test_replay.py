"""Replays see the past only, lose nothing in the counting, and nobody beats the oracle."""

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from rightsizing_cases import make_recorded

from benchmarks.rightsizing.all_policies import own_policies, peer_policies
from benchmarks.rightsizing.charges import UnitCharges
from benchmarks.rightsizing.oracle import oracle_of
from benchmarks.rightsizing.past import LimitRule, Past, Values
from benchmarks.rightsizing.replay import replay
from data.base.errors import ImpossibleProblemError

CHARGES = UnitCharges(unit_hour=2.0, idle_kw=0.1, busy_kw=0.5, energy_price=0.2, pue=1.5)
POLICIES: list[LimitRule] = [
    *peer_policies(0.01),
    *own_policies(CHARGES, memory=True, forecasting=True),
    *own_policies(CHARGES, memory=False, forecasting=False),
]
USAGE = arrays.arrays(
    np.float64, (2, 10), elements=st.one_of(st.just(float("nan")), st.floats(0, 8))
)


class Fixed:
    """Gives the limits that it was told, step by step."""

    name = "fixed"

    def __init__(self, *limits: float) -> None:
        self._limits = limits

    def recommend(self, past: Past) -> Values:
        """The next limit, for every job."""
        return np.full(len(past.usage), self._limits[past.usage.shape[1] // 2 - 1])


@pytest.mark.parametrize("policy", POLICIES, ids=lambda entry: entry.name)
@settings(max_examples=examples(12), deadline=None)
@given(usage=USAGE)
def test_no_rule_is_cheaper_than_the_oracle(policy: LimitRule, usage: np.ndarray) -> None:
    """On limits bound to levels the oracle is exact, job by job."""
    recorded = make_recorded(usage)
    oracle = oracle_of(
        usage,
        recorded.levels,
        charges=CHARGES,
        sample_hours=1.0,
        samples_per_step=2,
        first_step=1,
    )
    best = replay(recorded, oracle, charges=CHARGES).totals.cost
    cost = replay(recorded, policy, charges=CHARGES).totals.cost
    assert (best <= cost + 1e-9).all()


@pytest.mark.parametrize("policy", POLICIES, ids=lambda entry: entry.name)
@settings(max_examples=examples(12), deadline=None)
@given(usage=USAGE, other=USAGE)
def test_what_comes_later_changes_no_earlier_limit(
    policy: LimitRule, usage: np.ndarray, other: np.ndarray
) -> None:
    """Two recordings alike for three steps have the same limits up to the step that follows."""
    changed = usage.copy()
    changed[:, 6:] = other[:, 6:]
    one, two = (
        replay(make_recorded(each), policy, charges=CHARGES).limits for each in (usage, changed)
    )
    np.testing.assert_array_equal(one[:, :4], two[:, :4])


@settings(deadline=None)
@given(usage=USAGE)
def test_demand_is_either_served_or_missing(usage: np.ndarray) -> None:
    """Used plus missing is the demand of the judged samples; used is never above held."""
    recorded = make_recorded(usage)
    found = replay(recorded, Fixed(3, 5, 2, 4), charges=CHARGES)
    totals = found.totals
    judged = np.repeat(np.isfinite(found.limits[:, 1:]), 2, axis=1)
    demand = np.where(judged, np.nan_to_num(usage[:, 2:]), 0.0).sum(axis=1)
    assert totals.used + totals.missing == pytest.approx(demand)
    assert (totals.used <= totals.held + 1e-9).all()


def test_figures_of_one_job_can_be_checked_by_hand() -> None:
    """Limits 4, 4, 2 over six hours: two changes none, one; one sample above, by 3."""
    recorded = make_recorded([1, 1, 2, 3, 4, 7, 1, 1])
    found = replay(recorded, Fixed(4, 4, 2), charges=UnitCharges(unit_hour=1.0))
    figures = found.figures()
    assert figures.held_hours == 20
    assert figures.missing_hours == 3
    assert figures.slack_ratio == pytest.approx(1 - 15 / 20)
    assert figures.over_samples_ratio == pytest.approx(1 / 6)
    assert figures.over_jobs_ratio == 1
    assert figures.changes_per_job_day == pytest.approx(1 / (6 / 24))
    assert figures.later_changes_per_job_day is None
    assert figures.cost == pytest.approx(20 + 20 * 3 + 2 / 6)


def test_energy_is_rest_plus_work() -> None:
    """Four units held for two hours, one working: 1.5 x (4 x 0.1 + 1 x 0.4) x 2 kWh."""
    recorded = make_recorded([1, 1, 1, 1])
    figures = replay(recorded, Fixed(4), charges=CHARGES).figures()
    assert figures.energy_kwh == pytest.approx(1.5 * 0.8 * 2)


def test_an_unknown_sample_costs_nothing_and_is_not_judged() -> None:
    """Half of the hours unknown: half of the rent."""
    recorded = make_recorded([1, 1, np.nan, 1, np.nan, 1])
    figures = replay(recorded, Fixed(4, 4), charges=UnitCharges(unit_hour=1.0)).figures()
    assert figures.held_hours == 8
    assert figures.over_samples_ratio == 0


def test_changes_after_the_first_day_are_counted_apart() -> None:
    """A new limit every two hours for two days: as many a day after the first as in it."""
    usage = np.ones(52)
    limits = [3.0 + step % 2 for step in range(25)]
    figures = replay(make_recorded(usage), Fixed(*limits), charges=CHARGES).figures()
    assert figures.later_changes_per_job_day == pytest.approx(12)
    assert figures.changes_per_job_day == pytest.approx(24 / 25 * 12)


def test_a_job_is_judged_once_it_has_shown_enough() -> None:
    """The second job begins in the third step and is judged from the fourth on."""
    nothing = np.nan
    recorded = make_recorded([[1] * 8, [nothing] * 4 + [1] * 4], first_step=1, warm_up_samples=2)
    limits = replay(recorded, Fixed(2, 2, 2), charges=CHARGES).limits
    assert np.isfinite(limits).sum(axis=1).tolist() == [3, 1]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"usage": np.array([[1.0, -1.0, 1.0, 1.0]])}, "below zero"),
        ({"levels": np.array([[1.0, 1.0]])}, "ascend"),
        ({"first_step": 2}, "nothing to replay"),
        ({"first_step": 0}, "nothing to replay"),
    ],
)
def test_wrong_recordings_are_refused(changes: dict[str, object], said: str) -> None:
    """Negative usage, levels out of order, no step to replay."""
    with pytest.raises(ImpossibleProblemError, match=said):
        make_recorded(**({"usage": [1, 1, 1, 1]} | changes))
