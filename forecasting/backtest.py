"""How well a model would have done: the last slots held out, mean pinball loss."""

from collections.abc import Sequence

import numpy as np

from data.errors import NotEnoughHistoryError
from data.records.forecasts import Backtest
from forecasting.demand_model import LEVELS, DemandModel, Quantiles
from forecasting.demand_series import DemandSeries, Values

_SHARE_HELD_OUT = 0.25
_FEWEST_HELD_OUT = 4


def pinball_loss(truth: Values, quantiles: Quantiles) -> float:
    """Mean pinball loss over q10, q50, q90 and the known slots, in the unit of `truth`."""
    known = np.isfinite(truth)
    losses = []
    for level, predicted in zip(LEVELS, (quantiles.q10, quantiles.q50, quantiles.q90), strict=True):
        error = truth[known] - predicted[known]
        losses.append(np.maximum(level * error, (level - 1) * error).mean())
    return float(np.mean(losses))


def backtest(
    series: DemandSeries, models: Sequence[DemandModel], horizon: int
) -> tuple[str, Backtest | None]:
    """Give the name of the best model and how all did; the first model is the baseline.

    A model must beat the baseline to be chosen. Held out are the last min(horizon, a quarter of the
    history) slots; with fewer than four known slots there, the baseline is taken untested.
    """
    baseline = models[0].name
    held_out = min(horizon, int(len(series.values) * _SHARE_HELD_OUT))
    if held_out < _FEWEST_HELD_OUT:
        return baseline, None
    past = series.head(len(series.values) - held_out)
    truth = series.values[-held_out:]
    if int(np.isfinite(truth).sum()) < _FEWEST_HELD_OUT or not past.known.any():
        return baseline, None
    losses: dict[str, float] = {}
    coverage: dict[str, float] = {}
    for model in models:
        try:
            predicted = model.forecast(past, held_out)
        except NotEnoughHistoryError:
            continue
        known = np.isfinite(truth)
        inside = (truth >= predicted.q10 - 1e-9) & (truth <= predicted.q90 + 1e-9)
        losses[model.name] = pinball_loss(truth, predicted)
        coverage[model.name] = float(inside[known].mean())
    best = min(losses, key=lambda name: (losses[name], name != baseline))
    return best, Backtest(
        losses=tuple(losses.items()),
        held_out_slots=held_out,
        coverage_ratio=coverage[best],
    )
