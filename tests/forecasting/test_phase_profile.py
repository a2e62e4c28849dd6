"""The profile of a job's phases over slots: angles, expected shares, regressors."""

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from forecasting.phases.find import PhaseKind, PhaseRules, Signal, find_phases
from forecasting.phases.profile import phase_profile

SLOT = 900.0


def hourly_epochs(*, slots: int = 96, every: int = 12, seed: int = 0) -> np.ndarray:
    """Effective GPUs in 15-minute slots: 7.5, and 2 in the first slot of every epoch but slot 0."""
    gpus = 7.5 + np.random.default_rng(seed).normal(scale=0.05, size=slots)
    gpus[every::every] = 2.0
    return gpus


def short_epochs(samples: int = 3600) -> np.ndarray:
    """Board power every 2 s: 700 W with a dip of 4 samples every 20."""
    watts = np.full(samples, 700.0)
    for start in range(20, samples - 4, 20):
        watts[start : start + 4] = 400.0
    return watts + np.random.default_rng(1).normal(scale=5, size=samples)


def test_slots_of_a_long_epoch_have_their_angle() -> None:
    """Angles go round once in twelve slots, on from the past into the future."""
    phases = find_phases(hourly_epochs(), SLOT, signal=Signal.ACTIVITY)
    profile = phase_profile(phases, slot_seconds=SLOT, horizon=24)
    assert profile.past_angle is not None
    assert profile.future_angle is not None
    whole = np.concatenate([profile.past_angle, profile.future_angle])
    assert np.diff(whole) % 1.0 == pytest.approx(1 / 12, abs=1e-3)


def test_dips_are_expected_where_they_were() -> None:
    """Of the next 24 slots, those 0 and 12 steps ahead are dips, the others are not."""
    phases = find_phases(hourly_epochs(), SLOT, signal=Signal.ACTIVITY)
    profile = phase_profile(phases, slot_seconds=SLOT, horizon=24)
    dips = profile.future_shares[:, profile.kinds.index(PhaseKind.DIP)]
    assert dips[[0, 12]].min() > 0.8
    assert np.delete(dips, [0, 12]).max() < 0.05
    assert profile.expected(PhaseKind.DIP) == pytest.approx(1 / 12, abs=0.02)


def test_an_epoch_shorter_than_two_slots_has_no_angle() -> None:
    """Epochs of 40 s in slots of 15 minutes: no angle, its reason, the share of time in dips."""
    phases = find_phases(short_epochs(), 2.0)
    assert phases.epoch_seconds == pytest.approx(40, rel=0.01)
    profile = phase_profile(phases, slot_seconds=SLOT, horizon=8)
    assert profile.future_angle is None
    assert "shorter than two slots" in profile.angle_reason
    assert profile.expected(PhaseKind.DIP) == pytest.approx(0.2, abs=0.01)
    assert profile.expected(PhaseKind.STEADY) == pytest.approx(0.8, abs=0.01)


def test_an_unknown_epoch_says_so() -> None:
    """A steady job has no angle; its future is steady."""
    phases = find_phases(np.full(600, 500.0), 2.0)
    profile = phase_profile(phases, slot_seconds=SLOT, horizon=4)
    assert profile.past_angle is None
    assert "0 dips seen" in profile.angle_reason
    assert profile.expected(PhaseKind.STEADY) == pytest.approx(1.0)


def test_a_job_that_ends_leaves_the_rest_empty() -> None:
    """A job that ends in two and a half slots fills 2.5 of 8 slots."""
    phases = find_phases(np.full(450, 500.0), 2.0)
    profile = phase_profile(phases, slot_seconds=SLOT, horizon=8, ends_in_seconds=2.5 * SLOT)
    assert profile.future_shares.sum() == pytest.approx(2.5)
    assert profile.ended_share == pytest.approx([0, 0, 0.5, 1, 1, 1, 1, 1])


def test_regressors_continue_from_past_to_future() -> None:
    """Past and future have the same named columns; past shares are those of the segments."""
    phases = find_phases(hourly_epochs(), SLOT, signal=Signal.ACTIVITY)
    profile = phase_profile(phases, slot_seconds=SLOT, horizon=24)
    assert profile.past.shape == (96, len(profile.columns))
    assert profile.future.shape == (24, len(profile.columns))
    assert "epoch_sin_1" in profile.columns
    dips = profile.past[:, profile.columns.index("evaluation-or-checkpoint_share")]
    assert np.flatnonzero(dips == 1.0).tolist() == list(range(12, 96, 12))


def test_regressors_explain_the_demand_that_recurs() -> None:
    """Least squares on the regressors forecasts the next day four times better than the mean."""
    demand = hourly_epochs(slots=192)
    phases = find_phases(demand[:96], SLOT, signal=Signal.ACTIVITY)
    profile = phase_profile(phases, slot_seconds=SLOT, horizon=96)
    past = np.column_stack([np.ones(96), profile.past])
    fit = np.linalg.lstsq(past, demand[:96], rcond=1e-8)[0]
    forecast = np.column_stack([np.ones(96), profile.future]) @ fit
    error = np.abs(forecast - demand[96:]).mean()
    assert error < np.abs(demand[:96].mean() - demand[96:]).mean() / 4


def test_the_grid_of_slots_may_begin_before_the_series() -> None:
    """A series that begins 600 s into a slot fills a third of the first one."""
    phases = find_phases(np.full(450, 500.0), 2.0)
    profile = phase_profile(phases, slot_seconds=SLOT, horizon=2, offset_seconds=600.0)
    assert profile.past_shares[:, 0] == pytest.approx([1 / 3, 2 / 3])


def test_a_job_in_warm_up_is_expected_to_work_later() -> None:
    """What passes by its nature does not last the whole horizon, even when never seen to end."""
    watts = np.concatenate([np.full(600, 700.0), np.full(20, 300.0)])
    phases = find_phases(watts, 2.0, rules=PhaseRules(idle_below=100.0))
    assert phases.segments[-1].kind is PhaseKind.DIP
    profile = phase_profile(phases, slot_seconds=SLOT, horizon=4)
    assert profile.future_shares[0, profile.kinds.index(PhaseKind.DIP)] < 0.2
    assert profile.expected(PhaseKind.STEADY) > 0.9


@pytest.mark.parametrize(("slot", "horizon"), [(0.0, 4), (float("nan"), 4), (900.0, -1)])
def test_a_horizon_that_is_none_is_refused(slot: float, horizon: int) -> None:
    """Slots without length and negative horizons are errors that name them."""
    with pytest.raises(ValueError, match="no horizon"):
        phase_profile(find_phases([1.0], 2.0), slot_seconds=slot, horizon=horizon)


@settings(max_examples=examples(80), deadline=None)
@given(
    hnp.arrays(np.float64, st.integers(0, 120), elements=st.sampled_from([0.0, 3.0, 8.0, np.nan])),
    st.sampled_from([60.0, 300.0, 900.0]),
    st.sampled_from([100.0, 900.0, 3600.0]),
    st.one_of(st.none(), st.floats(0, 1e4)),
)
def test_shares_are_shares(values, step, slot, ends) -> None:
    """For any series every share lies in 0..1 and no slot holds more than itself."""
    phases = find_phases(values, step, signal=Signal.ACTIVITY, rules=PhaseRules(ended=False))
    found = phase_profile(phases, slot_seconds=slot, horizon=12, ends_in_seconds=ends)
    for shares in (found.past_shares, found.future_shares):
        assert ((shares >= 0) & (shares <= 1)).all()
        assert (shares.sum(axis=1) <= 1 + 1e-9).all()
    assert found.future.shape == (12, len(found.columns))
    if found.kinds:
        whole = found.future_shares.sum(axis=1) + found.ended_share
        assert whole == pytest.approx(np.ones(12))
