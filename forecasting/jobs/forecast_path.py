"""The path of one series: the model in use, cut to the horizon, with its evidence."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from data.base.errors import ForecastError
from data.base.units import SECONDS_PER_HOUR
from data.records.forecasts import QuantilePath
from forecasting.mix.model import MixForecast, MixModel, mix, mix_many
from forecasting.models.backtest import held_out, summarised
from forecasting.models.demand_model import DemandModel, Quantiles
from forecasting.models.seasonal_naive_model import SeasonalNaiveModel
from forecasting.prophet.model import ProphetModel
from forecasting.series.demand_series import DemandSeries, Values

MODELS: tuple[DemandModel, ...] = (MixModel(), ProphetModel(), SeasonalNaiveModel())
"""By name, as planning.model chooses; the mix is the default."""
MIX = MODELS[0].name
_DIGITS = 6
_ASCENDING = ("q05", "q10", "q25", "q50", "q75", "q90", "q95")
_UNEXPECTED = (ForecastError, ArithmeticError, ValueError, RuntimeError, OSError)
"""What numerical libraries raise on series they cannot fit (np.linalg.LinAlgError is a
ValueError, Stan fails with RuntimeError or OSError)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathTask:
    """One series to forecast for `horizon` slots from `first_slot` (s, epoch) on."""

    series: DemandSeries
    first_slot: int
    horizon: int

    @property
    def ahead(self) -> int:
        """The slots between the newest and `first_slot`: forecast across, then cut."""
        after = self.series.first_slot + len(self.series.values) * self.series.slot_seconds
        return max(0, (self.first_slot - after) // self.series.slot_seconds)


def forecast_path(task: PathTask, model: str) -> QuantilePath:
    """Return the path of one series; it never fails for what is in the series.

    A series that the model cannot fit is forecast by seasonal naive, and the path says why.
    Errors: NotEnoughHistoryError when not one slot is known.
    """
    try:
        if model == MIX:
            return _mixed_path(task, mix(task.series, task.ahead + task.horizon))
        return _single(task, {entry.name: entry for entry in MODELS}[model])
    except _UNEXPECTED as error:
        reason = f"{model} could not fit it: {error}"
        return replace(_single(task, SeasonalNaiveModel()), notes=(reason,))


def mixed_paths(tasks: Sequence[PathTask]) -> list[QuantilePath]:
    """Return the paths of many series by the mix, each as `forecast_path` gives it alone.

    Errors: NotEnoughHistoryError when not one slot of a series is known.
    """
    try:
        mixes = mix_many(
            [task.series for task in tasks], [task.ahead + task.horizon for task in tasks]
        )
        return [_mixed_path(task, forecast) for task, forecast in zip(tasks, mixes, strict=True)]
    except _UNEXPECTED:
        return [forecast_path(task, MIX) for task in tasks]


def _mixed_path(task: PathTask, forecast: MixForecast) -> QuantilePath:
    series, quantiles = task.series, forecast.quantiles
    notes = _notes(series, forecast, len(quantiles.q50))
    return replace(
        path_of(series, quantiles, MIX, ahead=task.ahead),
        backtest=summarised(MIX, forecast.backtest, SECONDS_PER_HOUR / series.slot_seconds),
        weights=forecast.weights,
        notes=notes,
    )


def _single(task: PathTask, model: DemandModel) -> QuantilePath:
    quantiles = model.forecast(task.series, task.ahead + task.horizon)
    path = path_of(task.series, quantiles, model.name, ahead=task.ahead)
    return replace(path, backtest=held_out(task.series, model, task.horizon))


def path_of(
    series: DemandSeries, quantiles: Quantiles, model: str, *, ahead: int = 0
) -> QuantilePath:
    """Return quantiles from slot `ahead` on as the path of a series, without a backtest yet.

    Six significant digits are kept: a path is stored as text at every cycle.
    """
    by_name = {name: getattr(quantiles, name) for name in _ASCENDING}
    levels = {name: row for name, row in by_name.items() if row is not None}
    rounded = _rounded(np.stack(list(levels.values()))[:, ahead:]).clip(series.lower, series.upper)
    # Rounding to binary fractions of a unit may reverse two that were equal.
    rows = np.maximum.accumulate(rounded, axis=0).tolist()
    return QuantilePath(
        quantity=series.quantity,
        model=model,
        backtest=None,
        winsorised_slots=series.winsorised,
        censored_slots=series.censored,
        **{name: tuple(row) for name, row in zip(levels, rows, strict=True)},
    )


def _rounded(values: Values) -> Values:
    magnitude = np.floor(np.log10(np.maximum(np.abs(values), 1e-12)))
    unit = 10.0 ** (magnitude - _DIGITS + 1)
    return np.asarray(np.round(values / unit) * unit)


def _notes(series: DemandSeries, forecast: MixForecast, horizon: int) -> tuple[str, ...]:
    notes: list[str] = []
    finite = series.values[series.known]
    if float(finite.max() - finite.min()) == 0.0:
        notes.append("the history is constant")
    if forecast.calibrated_hours < horizon * series.slot_seconds / SECONDS_PER_HOUR:
        notes.append(
            f"bands beyond {forecast.calibrated_hours:g} h are extended from shorter leads"
            if forecast.calibrated_hours
            else "bands come from changes between neighbouring slots only"
        )
    return tuple(notes)
