"""Epochs in forecasts: followed where they foretell, left alone where they do not."""

import numpy as np
from forecasting_cases import daily, series

from forecasting.mix.model import mix
from forecasting.phases.adjustment import phase_adjusted
from forecasting.phases.records import Signal


def training(slots: int, *, every: int, seed: int = 1) -> np.ndarray:
    """Work at 8 GPUs with a dip of two slots at the end of every epoch."""
    rng = np.random.default_rng(seed)
    values = 8.0 + rng.normal(0, 0.05, slots)
    values[np.arange(slots) % every >= every - 2] = 0.5
    return np.clip(values, 0, 8)


def test_a_regular_epoch_is_followed() -> None:
    """Dips every 13 slots of 15 min fall at no hour of the day: the middle falls with them."""
    values = training(13 * 20, every=13)
    one = series(values, upper=8.0, slot_seconds=900)
    found = mix(one, 26).quantiles
    adjusted = phase_adjusted(one, found, Signal.ACTIVITY)
    assert adjusted is not None
    assert "every 195 min" in adjusted.note
    truth = training(13 * 22, every=13)[-26:]
    before = np.abs(found.q50 - truth).mean()
    after = np.abs(adjusted.quantiles.q50 - truth).mean()
    assert after < 0.6 * before
    rows = adjusted.quantiles
    assert (rows.q05 <= rows.q50).all()
    assert (rows.q50 <= rows.q95).all()
    assert rows.q95.max() <= 8


def test_without_an_epoch_nothing_changes() -> None:
    """Noise and a daily curve have no epoch to follow."""
    rng = np.random.default_rng(2)
    for values in (rng.normal(50, 5, 400), daily(14)):
        one = series(values)
        assert phase_adjusted(one, mix(one, 24).quantiles, Signal.ACTIVITY) is None
