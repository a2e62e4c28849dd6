"""The recurrence of dips: said only where two measures agree."""

import numpy as np
import pytest

from forecasting.phases.epoch_period import autocorrelation_period, recurrence


def pulses(starts: list[int], *, length: int, dip: int = 4, seed: int = 0) -> np.ndarray:
    """A level of 100 with dips to 60 of `dip` samples at the starts, noise 1."""
    values = np.full(length, 100.0)
    for start in starts:
        values[start : start + dip] = 60.0
    return values + np.random.default_rng(seed).normal(size=length)


@pytest.mark.parametrize("period", [9, 20, 37, 150])
def test_a_regular_series_gives_its_period(period: int) -> None:
    """The answer is the true period within 1 %."""
    starts = list(range(11, 12 * period, period))
    found = recurrence(pulses(starts, length=12 * period), starts, step_seconds=10.0)
    assert found.seconds == pytest.approx(10 * period, rel=0.01)
    assert found.phase_seconds == pytest.approx(10 * (11 % period), abs=1)


def test_jitter_averages_out() -> None:
    """Starts that wander by two samples still give the period within 2 %."""
    rng = np.random.default_rng(1)
    starts = [int(start) for start in np.arange(10, 1200, 40) + rng.integers(-2, 3, size=30)]
    found = recurrence(pulses(starts, length=1200), starts, step_seconds=1.0)
    assert found.seconds == pytest.approx(40, rel=0.02)


def test_missed_dips_do_not_bend_the_period() -> None:
    """Where every fourth dip was not detected, the gaps' median and the grid still hold."""
    starts = list(range(10, 1200, 40))
    values = pulses(starts, length=1200)
    seen = [start for number, start in enumerate(starts) if number % 4 != 2]
    assert recurrence(values, seen, step_seconds=1.0).seconds == pytest.approx(40, rel=0.01)


def test_a_multiple_counts_as_agreement() -> None:
    """Three shallow dips and a deep one: the correlation says four gaps, the answer is the gap."""
    starts = list(range(10, 2000, 50))
    values = pulses([], length=2000)
    for number, start in enumerate(starts):
        values[start : start + 4] -= 12 if number % 4 else 30
        values[start + 10 : start + 22] += 0 if number % 4 else 60
    found = recurrence(values, starts, step_seconds=1.0)
    assert autocorrelation_period(values) == pytest.approx(200, rel=0.02)
    assert found.seconds == pytest.approx(50, rel=0.01)


def test_fewer_than_four_dips_give_none() -> None:
    """Two gaps are no recurrence, and the reason counts the dips."""
    starts = [20, 60, 100]
    found = recurrence(pulses(starts, length=150), starts, step_seconds=1.0)
    assert found.seconds is None
    assert found.reason == "3 dips seen; 4 are needed"


def test_irregular_dips_give_none() -> None:
    """Gaps of 10 to 190 samples have no period."""
    starts = [10, 40, 200, 215, 400, 430, 600, 790]
    found = recurrence(pulses(starts, length=900), starts, step_seconds=1.0)
    assert found.seconds is None
    assert "irregular" in found.reason


def test_disagreement_gives_none() -> None:
    """Dips every 40 on a wave of 57 samples: the two measures disagree and nothing is said."""
    starts = list(range(10, 1200, 40))
    values = 100 + 30 * np.sin(2 * np.pi * np.arange(1200) / 57)
    found = recurrence(values, starts, step_seconds=1.0)
    assert found.seconds is None
    assert "disagree" in found.reason


def test_noise_has_no_period() -> None:
    """White noise resembles itself at no lag, over 200 seeds nearly always."""
    found = [
        autocorrelation_period(np.random.default_rng(seed).normal(size=600) + 100)
        for seed in range(200)
    ]
    assert sum(value is not None for value in found) <= 4


@pytest.mark.parametrize("values", [[], [1.0], [5.0] * 50, [np.nan] * 50, [0.0] * 50])
def test_series_without_information_have_no_period(values: list[float]) -> None:
    """Empty, constant and unknown series give None without a warning."""
    assert autocorrelation_period(np.array(values)) is None


def test_gaps_in_the_series_do_not_make_a_period() -> None:
    """A fifth of the samples missing leaves the period as it was."""
    starts = list(range(10, 1200, 40))
    values = pulses(starts, length=1200)
    values[np.random.default_rng(2).random(1200) < 0.2] = np.nan
    assert autocorrelation_period(values) == pytest.approx(40, rel=0.02)
