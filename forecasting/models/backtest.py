"""Backtests: a model's forecasts at past moments, judged by the demand that came."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from data.base.errors import ForecastError
from data.records.forecasts import Backtest, LeadAccuracy
from forecasting.models.demand_model import LEVELS, DemandModel, Quantiles
from forecasting.models.seasonal_naive_model import SeasonalNaiveModel
from forecasting.series.demand_series import DemandSeries, Values

_SHARE_HELD_OUT = 0.25
_MIN_HELD_OUT = 4


def pinball_losses(truth: Values, quantiles: Quantiles) -> Values:
    """Return the pinball loss of each slot, mean over q10, q50, q90; NaN where truth is unknown."""
    losses = np.zeros(len(truth))
    for level, predicted in zip(LEVELS, (quantiles.q10, quantiles.q50, quantiles.q90), strict=True):
        error = truth - predicted
        losses += np.maximum(level * error, (level - 1) * error) / len(LEVELS)
    return losses


def inside_band(truth: Values, quantiles: Quantiles) -> npt.NDArray[np.bool_]:
    """Return a mask of the slots within q10..q90, a rounding error allowed."""
    edge = 1e-9 * np.maximum(1.0, np.abs(truth))
    return np.asarray((truth >= quantiles.q10 - edge) & (truth <= quantiles.q90 + edge))


def held_out(series: DemandSeries, model: DemandModel, horizon: int) -> Backtest | None:
    """Return the errors of a model and of seasonal naive on the last min(horizon, a quarter) slots.

    None when fewer than four of them are known or the model cannot answer from the slots before.
    """
    length = len(series.values)
    ahead = min(horizon, int(length * _SHARE_HELD_OUT))
    truth = series.values[length - ahead :]
    finite = np.isfinite(truth)
    if int(finite.sum()) < _MIN_HELD_OUT:
        return None
    losses = dict[str, float]()
    for entry in (SeasonalNaiveModel(), model):
        try:
            quantiles = entry.forecast(series.head(length - ahead), ahead)
        except ForecastError:
            return None
        losses[entry.name] = float(np.nanmean(pinball_losses(truth, quantiles)))
    return Backtest(
        losses=tuple(losses.items()),
        held_out_slots=int(finite.sum()),
        coverage_ratio=float(inside_band(truth, quantiles)[finite].mean()),
    )


def summarised(
    model: str, by_lead: Sequence[LeadAccuracy], slots_per_hour: float
) -> Backtest | None:
    """Return the backtest of a model over all leads, each slot of the horizon counting the same."""
    if not by_lead:
        return None
    ends = [accuracy.until_hours for accuracy in by_lead]
    widths = np.diff([0.0, *ends])
    weights = widths / widths.sum()

    def mean(values: Sequence[float]) -> float:
        return float(np.dot(weights, values))

    return Backtest(
        losses=(
            (model, mean([accuracy.loss for accuracy in by_lead])),
            ("naive", mean([accuracy.naive_loss for accuracy in by_lead])),
            ("seasonal-naive", mean([accuracy.seasonal_naive_loss for accuracy in by_lead])),
        ),
        held_out_slots=round(
            sum(accuracy.origins * width for accuracy, width in zip(by_lead, widths, strict=True))
            * slots_per_hour
        ),
        coverage_ratio=mean([accuracy.coverage_ratio for accuracy in by_lead]),
        by_lead=tuple(by_lead),
    )
