"""The path of one series: the model in use, cut to the horizon, with its evidence."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from data.errors import ForecastError
from data.records.forecasts import QuantilePath
from data.units import SECONDS_PER_HOUR
from forecasting.backtest import held_out, summarised
from forecasting.demand_model import DemandModel, Quantiles
from forecasting.demand_series import DemandSeries, Values
from forecasting.mix_model import MixForecast, MixModel, mix, mix_many
from forecasting.prophet_model import ProphetModel
from forecasting.seasonal_naive_model import SeasonalNaiveModel

MODELS: tuple[DemandModel, ...] = (MixModel(), ProphetModel(), SeasonalNaiveModel())
"""By name, as planning.model chooses; the mix is the default."""
MIX = MODELS[0].name
_DIGITS = 6
_FALLBACK = SeasonalNaiveModel()
_UNEXPECTED = (ForecastError, ArithmeticError, ValueError, RuntimeError, OSError)
"""What numerical libraries raise on series they cannot fit (np.linalg.LinAlgError is a
ValueError, Stan fails with RuntimeError or OSError)."""


def model_named(name: str) -> DemandModel:
    """Give the model of that name. Errors: KeyError; settings have checked the name."""
    return {one.name: one for one in MODELS}[name]


def forecast_path(
    series: DemandSeries, *, first_slot: int, horizon: int, model: str
) -> QuantilePath:
    """Give the path for `horizon` slots from `first_slot` (s, epoch) on; it never fails.

    A series that the model cannot fit is forecast by seasonal naive, and the path says why.
    Errors: NotEnoughHistoryError when not one slot is known.
    """
    ahead = _ahead(series, first_slot)
    try:
        return _path(series, ahead, horizon, model)
    except _UNEXPECTED as error:
        reason = f"{model} could not fit it: {error}"
        return replace(_single(series, _FALLBACK, ahead, horizon), notes=(reason,))


def mixed_paths(
    series: Sequence[DemandSeries], *, first_slots: Sequence[int], horizons: Sequence[int]
) -> list[QuantilePath]:
    """Give the paths of many series by the mix, each as `forecast_path` gives it alone.

    Errors: NotEnoughHistoryError when not one slot of a series is known.
    """
    aheads = [_ahead(one, first) for one, first in zip(series, first_slots, strict=True)]
    try:
        found = mix_many(
            series, [ahead + horizon for ahead, horizon in zip(aheads, horizons, strict=True)]
        )
    except _UNEXPECTED:
        return [
            forecast_path(one, first_slot=first, horizon=horizon, model=MIX)
            for one, first, horizon in zip(series, first_slots, horizons, strict=True)
        ]
    return [
        _mixed_path(one, forecast, ahead)
        for one, forecast, ahead in zip(series, found, aheads, strict=True)
    ]


def _ahead(series: DemandSeries, first_slot: int) -> int:
    """Give the slots between the newest and `first_slot`, which may lie after it.

    The newest slot may lie before the one that holds `as_of`: forecasts go across, then are cut.
    """
    after = series.first_slot + len(series.values) * series.slot_seconds
    return max(0, (first_slot - after) // series.slot_seconds)


def _path(series: DemandSeries, ahead: int, horizon: int, model: str) -> QuantilePath:
    if model != MIX:
        return _single(series, model_named(model), ahead, horizon)
    return _mixed_path(series, mix(series, ahead + horizon), ahead)


def _mixed_path(series: DemandSeries, found: MixForecast, ahead: int) -> QuantilePath:
    return replace(
        path_of(series, found.quantiles, MIX, ahead=ahead),
        backtest=summarised(MIX, found.backtest, SECONDS_PER_HOUR / series.slot_seconds),
        weights=found.weights,
        notes=_notes(series, found, len(found.quantiles.q50)),
    )


def _single(series: DemandSeries, model: DemandModel, ahead: int, horizon: int) -> QuantilePath:
    path = path_of(series, model.forecast(series, ahead + horizon), model.name, ahead=ahead)
    return replace(path, backtest=held_out(series, model, horizon))


def path_of(
    series: DemandSeries, quantiles: Quantiles, model: str, *, ahead: int = 0
) -> QuantilePath:
    """Give quantiles from slot `ahead` on as the path of a series, without a backtest yet.

    Six significant digits are kept: a path is stored as text at every cycle.
    """
    rows = np.stack([quantiles.q05, quantiles.q10, quantiles.q50, quantiles.q90, quantiles.q95])
    kept = _rounded(rows[:, ahead:]).clip(series.lower, series.upper)
    # Rounding to binary fractions of a unit may reverse two that were equal.
    q05, q10, q50, q90, q95 = (tuple(row) for row in np.maximum.accumulate(kept, axis=0).tolist())
    return QuantilePath(
        quantity=series.quantity,
        model=model,
        q05=q05,
        q10=q10,
        q50=q50,
        q90=q90,
        q95=q95,
        backtest=None,
        winsorised_slots=series.winsorised,
        censored_slots=series.censored,
    )


def _rounded(values: Values) -> Values:
    magnitude = np.floor(np.log10(np.maximum(np.abs(values), 1e-12)))
    unit = 10.0 ** (magnitude - _DIGITS + 1)
    return np.asarray(np.round(values / unit) * unit)


def _notes(series: DemandSeries, found: MixForecast, horizon: int) -> tuple[str, ...]:
    notes: list[str] = []
    known = series.values[series.known]
    if float(known.max() - known.min()) == 0.0:
        notes.append("the history is constant")
    if found.calibrated_hours < horizon * series.slot_seconds / SECONDS_PER_HOUR:
        notes.append(
            f"bands beyond {found.calibrated_hours:g} h are extended from shorter leads"
            if found.calibrated_hours
            else "bands come from changes between neighbouring slots only"
        )
    return tuple(notes)
