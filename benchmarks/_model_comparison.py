"""All models side by side on the same series, asked at the same past moments."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data.base.errors import ForecastError
from forecasting.models.backtest import inside_band, pinball_losses
from forecasting.models.demand_model import DemandModel
from forecasting.series.demand_series import DemandSeries, Values


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelScore:
    """One model over many series, each series counting the same.

    mase: mean absolute error of q50 over that of yesterday's same slot inside the series (Hyndman
    and Koehler 2006, seasonal scale). pinball_to_naive: mean pinball loss over naive's.
    coverage_ratio: share inside q10..q90. `failures` counts moments without an answer.
    """

    model: str
    series: int
    origins: int
    mase: float
    pinball_to_naive: float
    coverage_ratio: float
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingBacktest:
    """One model asked at many past moments of one series; arrays are [origins, horizon].

    pinball is NaN where the truth is unknown; `failures` counts moments at which it gave no answer.
    """

    model: str
    pinball: Values
    absolute_error: Values
    inside: npt.NDArray[np.bool_]
    failures: int


def rolling_backtest(
    series: DemandSeries, model: DemandModel, *, origins: Sequence[int], horizon: int
) -> RollingBacktest:
    """Return the errors of a model over `horizon` slots from each origin (count of known slots)."""
    rows, failures = [], 0
    for origin in origins:
        truth = np.full(horizon, np.nan)
        came = series.values[origin : origin + horizon]
        truth[: len(came)] = came
        try:
            quantiles = model.forecast(series.head(origin), horizon)
        except ForecastError:
            failures += 1
            continue
        pinball = pinball_losses(truth, quantiles)
        rows.append((pinball, np.abs(truth - quantiles.q50), inside_band(truth, quantiles)))
    empty = np.zeros((0, horizon))
    pinball, error, inside = (
        (np.stack(parts) for parts in zip(*rows, strict=True)) if rows else (empty, empty, empty)
    )
    return RollingBacktest(
        model=model.name,
        pinball=pinball,
        absolute_error=error,
        inside=inside.astype(bool),
        failures=failures,
    )


def compare_models(
    series: Sequence[DemandSeries],
    models: Sequence[DemandModel],
    *,
    horizon: int,
    origins: int,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[ModelScore, ...]:
    """Return a score per model; the first model is what `pinball_to_naive` is relative to.

    Each series is asked at up to `origins` moments spread over its later half. Series that are too
    short for one, or never change, are left out.
    """
    rows_by_name: dict[str, list[tuple[RollingBacktest, float, float]]] = {
        model.name: [] for model in models
    }
    usable = [
        demand_series
        for demand_series in series
        if scale_of(demand_series) > 0 and origins_of(demand_series, horizon, origins)
    ]
    for done, demand_series in enumerate(usable):
        if progress is not None:
            progress(done, len(usable))
        moments = origins_of(demand_series, horizon, origins)
        results = [
            rolling_backtest(demand_series, model, origins=moments, horizon=horizon)
            for model in models
        ]
        baseline = _mean(results[0].pinball)
        for result in results:
            rows_by_name[result.model].append((result, scale_of(demand_series), baseline))
    if progress is not None:
        progress(len(usable), len(usable))
    return tuple(_score(name, rows) for name, rows in rows_by_name.items())


def origins_of(series: DemandSeries, horizon: int, most: int) -> list[int]:
    """Return up to `most` moments of a series' later half that leave `horizon` to judge."""
    first, last = len(series.values) // 2, len(series.values) - horizon
    if last <= first:
        return []
    return sorted({int(entry) for entry in np.linspace(first, last, most).round()})


def scale_of(series: DemandSeries) -> float:
    """Return mean absolute error of yesterday's same slot, of the slot before below two days."""
    lag = series.slots_per_day if len(series.values) >= 2 * series.slots_per_day else 1
    changes = np.abs(series.values[lag:] - series.values[:-lag])
    return float(np.nanmean(changes)) if np.isfinite(changes).any() else 0.0


def _mean(values: Values) -> float:
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


def _score(name: str, rows: Sequence[tuple[RollingBacktest, float, float]]) -> ModelScore:
    answered = [row for row in rows if len(row[0].pinball)]

    def mean(values: Sequence[float]) -> float:
        finite = [value for value in values if np.isfinite(value)]
        return float(np.mean(finite)) if finite else float("nan")

    return ModelScore(
        model=name,
        series=len(answered),
        origins=sum(len(result.pinball) for result, *_ in answered),
        mase=mean([_mean(result.absolute_error) / scale for result, scale, _ in answered]),
        pinball_to_naive=mean(
            [_mean(result.pinball) / base for result, _, base in answered if base > 0]
        ),
        coverage_ratio=mean(
            [
                float(result.inside[np.isfinite(result.pinball)].mean())
                for result, *_ in answered
                if np.isfinite(result.pinball).any()
            ]
        ),
        failures=sum(result.failures for result, *_ in rows),
    )
