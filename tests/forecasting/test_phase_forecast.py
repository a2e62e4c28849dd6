"""The forecast from phases: dips where they recur, nothing where they do not."""

import numpy as np
import pytest

from forecasting.phases.adjustment import phase_forecast
from forecasting.phases.detect import find_phases
from forecasting.phases.phase_profile import phase_profile
from forecasting.phases.records import Signal


def epochs(slots: int, *, seed: int = 0) -> np.ndarray:
    """Effective GPUs in 15-minute slots: 7.5, and 2 in every twelfth slot."""
    gpus = 7.5 + np.random.default_rng(seed).normal(scale=0.1, size=slots)
    gpus[12::12] = 2.0
    return gpus


def forecast_of(past: np.ndarray) -> np.ndarray | None:
    """The forecast after this past."""
    phases = find_phases(past, 900.0, signal=Signal.ACTIVITY)
    profile = phase_profile(phases, slot_seconds=900.0, horizon=48)
    return phase_forecast(profile, past)


@pytest.mark.parametrize("begin", [96, 101, 107, 119])
def test_recurring_dips_are_forecast_at_their_slots(begin: int) -> None:
    """From any point in the epoch, the next 48 slots err by a tenth of the median's error."""
    demand = epochs(begin + 48)
    found = forecast_of(demand[:begin])
    assert found is not None
    error = np.abs(found - demand[begin:]).mean()
    assert error < 0.3 * np.abs(np.median(demand[:begin]) - demand[begin:]).mean()


def test_without_an_epoch_there_is_no_forecast() -> None:
    """A steady job is left to other models."""
    assert forecast_of(np.full(96, 7.5)) is None


def test_without_a_known_slot_there_is_no_forecast() -> None:
    """Nothing is forecast from slots of which none is known."""
    past = epochs(96)
    phases = find_phases(past, 900.0, signal=Signal.ACTIVITY)
    profile = phase_profile(phases, slot_seconds=900.0, horizon=4)
    assert phase_forecast(profile, np.full(96, np.nan)) is None


def test_gaps_in_the_past_are_passed_over() -> None:
    """A tenth of the slots unknown leaves the levels as they are."""
    past = epochs(240)
    past[np.random.default_rng(1).random(240) < 0.1] = np.nan
    found = forecast_of(past)
    assert found is not None
    assert np.median(found) == pytest.approx(7.5, abs=0.1)
    assert found.min() == pytest.approx(2.0, abs=0.5)
