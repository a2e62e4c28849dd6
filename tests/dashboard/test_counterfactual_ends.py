"""What a job that was stopped would have gone on to hold, by when it was expected to end."""

import numpy as np
import pytest

from dashboard.apply.worker.counterfactual import remaining_part

HORIZON = 24.0


@pytest.mark.parametrize("mean_life", [0.5, 3.0, 12.0, 40.0, 200.0])
@pytest.mark.parametrize("window", [0.5, 4.0, 8.0, 24.0])
def test_it_lasts_as_jobs_do_that_end_in_any_hour_alike(mean_life: float, window: float) -> None:
    """A million lives: what is expected of the horizon tells the mean and the range of a window."""
    lives = np.random.default_rng(3).exponential(mean_life, 1_000_000)
    expected = float(np.minimum(lives, HORIZON).mean())
    held = np.minimum(lives, window)
    low, mean, high = remaining_part(expected, HORIZON, window)
    assert mean == pytest.approx(float(held.mean()), rel=0.01)
    assert low <= mean <= high <= window
    inside = float(((held >= low - 1e-9) & (held <= high + 1e-9)).mean())
    assert inside >= 0.79
    if (held < window).mean() > 0.2:
        assert inside == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize("expected", [HORIZON, HORIZON + 1, 0.0])
def test_one_that_is_not_expected_to_end_lasts(expected: float) -> None:
    """A service; and one of which nothing was said."""
    assert remaining_part(expected, HORIZON, 8.0) == (8.0, 8.0, 8.0)
