"""Models side by side: the same moments for all, scores that mean what they say."""

import numpy as np
import pytest
from forecasting_cases import daily, series

from benchmarks._model_comparison import compare_models, origins_of, scale_of
from benchmarks._naive_model import NaiveModel
from forecasting.mix.model import MixModel
from forecasting.models.seasonal_naive_model import SeasonalNaiveModel
from forecasting.prophet.model import ProphetModel


def test_the_first_model_is_the_measure() -> None:
    """Naive against itself is 1; on a daily curve yesterday beats it, and its MASE is near 1."""
    naive, seasonal, mixed = compare_models(
        [series(daily(20, noise=0.3, seed=seed)) for seed in range(4)],
        (NaiveModel(), SeasonalNaiveModel(), MixModel()),
        horizon=24,
        origins=5,
    )
    assert naive.pinball_to_naive == pytest.approx(1.0)
    assert 0.8 < seasonal.mase < 1.2
    assert mixed.pinball_to_naive < seasonal.pinball_to_naive < 1
    assert (naive.series, naive.origins) == (4, 20)


def test_series_that_cannot_be_judged_are_left_out() -> None:
    """Constant and too short ones have no scale or no moment."""
    rows = compare_models(
        [series(np.full(400, 2.0)), series(daily(1)[:10])], (NaiveModel(),), horizon=24, origins=3
    )
    assert rows[0].series == 0
    assert np.isnan(rows[0].mase)
    assert origins_of(series(daily(1)[:10]), 24, 3) == []
    assert scale_of(series(np.full(9, np.nan))) == 0.0


def test_a_model_that_gives_no_answer_has_failures() -> None:
    """Prophet needs twelve slots."""
    (_, prophet) = compare_models(
        [series(daily(1)[:16])], (NaiveModel(), ProphetModel()), horizon=4, origins=2
    )
    assert prophet.failures == 1
    assert prophet.origins == 1


def test_naive_bands_grow_with_the_lead() -> None:
    """A random walk's changes grow with their length; the point stays."""
    rng = np.random.default_rng(4)
    walk = 500 + np.cumsum(rng.normal(0, 1, 2000))
    found = NaiveModel().forecast(series(walk, upper=1000), 96)
    width = found.q90 - found.q10
    assert (found.q50 == walk[-1]).all()
    assert 1.5 < width[15] / width[3] < 2.7
    assert (found.q05 <= found.q10).all()
