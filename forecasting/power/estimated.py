"""Power of jobs without readings: from their utilization, by the fleet's own law.

Their source never reported it, or too little on as many boards as now. An estimate, named as one in
the forecast with the error that the power model had on boards it had not seen; `missing` still says
why none is known.

The power models of a fleet are fitted here: thin, pool, fit, test on groups left out. Every model
of the catalogue has an answer: without readings of its own it takes the shape that the fleet's
other models have, without any the catalogue's idle and TDP. The fit is a robust, non-negative
least squares that leans on a prior.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from data.catalogue.gpu_catalogue import GpuCatalogue, GpuModel
from data.facts.jobs import Job
from data.records.forecasts import DemandForecast, ForecastSkipped, QuantilePath, Quantity
from forecasting.power.cap import REACH, power_under_cap
from forecasting.power.model import PowerFit, PowerModel
from forecasting.power.records import PowerError, PowerSamples
from forecasting.power.terms import columns_of, prior_of
from forecasting.series.demand_series import Values

PRIOR_WEIGHT = 10.0
"""The prior counts as much as ten readings."""
FOLDS = 5
_HUBER = 1.345
_ROUNDS = 15
_MIN_SIZE_RATIO = 0.01
_CONVERGENCE = 1e-5
_AT_CAP = 0.93
_MIN_SPREAD_WATTS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Design:
    """Rows to fit: columns, power and caps in W (columns already times TDP - idle)."""

    columns: Values
    idle_watts: float
    power_watts: Values
    cap_watts: Values
    reach: float
    group: npt.NDArray[np.int64]

    def rows(self, keep: npt.NDArray[np.bool_]) -> "Design":
        """Return some of the rows."""
        return Design(
            columns=self.columns[keep],
            idle_watts=self.idle_watts,
            power_watts=self.power_watts[keep],
            cap_watts=self.cap_watts[keep],
            reach=self.reach,
            group=self.group[keep],
        )


def fit(design: Design, prior: Values, *, prior_weight: float = PRIOR_WEIGHT) -> Values:
    """Return the coefficients, each 0 or more, shape (terms,).

    Huber's weights at 1.345 robust deviations, refitted until they settle; the prior adds
    `prior_weight` readings' worth of pull to each coefficient. A reading at its cap says only that
    the work would draw at least that much: it counts only while the fit gives less.
    """
    target = design.power_watts - design.idle_watts
    at_cap = design.power_watts >= _AT_CAP * design.reach * design.cap_watts
    coefficients = prior
    weights = np.ones(len(target))
    size = (design.columns**2).mean(axis=0) if len(target) else np.ones(len(prior))
    if not size.any():
        return prior  # boards that stood idle at every reading say nothing of work
    # A term that no reading moves still leans on its prior, firmly enough for the fit to see it.
    pull = prior_weight * np.maximum(size, _MIN_SIZE_RATIO * size.max())
    for _ in range(_ROUNDS):
        residual = target - design.columns @ coefficients
        weights = _weights(residual)
        weights[at_cap & (residual < 0)] = 0.0
        weighted = design.columns * weights[:, None]
        normal = weighted.T @ design.columns + np.diag(pull)
        solution = _not_negative(normal, weighted.T @ target + pull * prior)
        settled = np.abs(solution - coefficients).max() <= _CONVERGENCE
        coefficients = solution
        if settled:
            break
    return coefficients


def _not_negative(normal: Values, right_side: Values) -> Values:
    """Return the least squares of normal equations with no coefficient below 0."""
    solution = np.asarray(np.linalg.solve(normal, right_side), dtype=np.float64)
    if (solution >= 0).all():
        return solution
    # Deferred: it takes as long to load as many fits, and few of them need it.
    from scipy.optimize import nnls  # type: ignore[import-untyped]

    factor = np.linalg.cholesky(normal).T
    return np.asarray(nnls(factor, np.linalg.solve(factor.T, right_side))[0])


def _weights(residual: Values) -> Values:
    """Return Huber's weights for residuals in W."""
    if not len(residual):
        return np.ones(0)
    spread = max(1.4826 * float(np.median(np.abs(residual))), _MIN_SPREAD_WATTS)
    return np.asarray(np.minimum(1.0, _HUBER * spread / np.maximum(np.abs(residual), 1e-9)))


def predict(design: Design, coefficients: Values) -> Values:
    """Return the board power in W under the caps."""
    demand = design.idle_watts + design.columns @ coefficients
    return power_under_cap(demand, design.cap_watts, reach=design.reach)


def left_out_predictions(design: Design, prior: Values) -> Values:
    """Return the prediction of every row from a fit without its group's fold.

    NaN with one group.
    """
    names, number = np.unique(design.group, return_inverse=True)
    folds = min(FOLDS, len(names))
    predicted = np.full(len(design.power_watts), np.nan)
    if folds < 2:
        return predicted
    for fold in range(folds):
        out = number % folds == fold
        predicted[out] = predict(design.rows(out), fit(design.rows(~out), prior))
    return predicted


def error_of(design: Design, predicted: Values) -> PowerError | None:
    """Return the error of left-out predictions, None where there are none."""
    finite = np.isfinite(predicted)
    if not finite.any():
        return None
    missed = np.abs(predicted[finite] - design.power_watts[finite])
    return PowerError(
        mae_watts=float(missed.mean()),
        samples=int(finite.sum()),
    )


MIN_SAMPLES = 8
MAX_SAMPLES = 5_000
"""More readings than this are thinned evenly: eight coefficients need no more."""
IDLE_BELOW = 0.01
_MIN_IDLE = 10
_NEAR_CAP = 0.9
_LOWER_LIMIT_RATIO = 0.95
_MIN_NEAR_CAP = 20
_PRIOR_SPREADS = (0.12, 0.25, 0.3)
"""Spread before anything was measured, as shares of TDP - idle, in thirds of the power range."""
_PRIOR_RESIDUALS = 10.0
_UPPER_QUANTILE = 0.9


def fit_power_models(
    samples: Mapping[str, PowerSamples], catalogue: GpuCatalogue, *, signal: str
) -> dict[str, PowerModel]:
    """Return a power model for every GPU model of the catalogue and of the samples.

    `samples` by GPU model, all with the same utilization signal. A model that the catalogue does
    not know takes its idle power and TDP from its own readings; with fewer than eight it is left
    out, for nothing is known of it.
    """
    thinned = {name: _thinned(sample) for name, sample in samples.items()}
    boards = {model.name: _board_of(model, thinned.get(model.name)) for model in catalogue}
    for name, entry in thinned.items():
        if name not in boards and len(entry.power_watts) >= MIN_SAMPLES:
            boards[name] = _unlisted_board(entry)
    listed = {name: entry for name, entry in thinned.items() if name in boards}
    pooled = {flag: _pooled(listed, boards, with_held=flag) for flag in (False, True)}
    return {
        name: PowerModel(
            gpu_model=name,
            signal=signal,
            floor_watts=board.floor_watts,
            idle_watts=board.idle_watts,
            tdp_watts=board.tdp_watts,
            cap_reach=board.cap_reach,
            lowered_cap_reach=board.lowered_cap_reach,
            fits=tuple(
                _fit(thinned.get(name), board, shape, with_held=flag)
                for flag, shape in pooled.items()
            ),
        )
        for name, board in boards.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Board:
    """The least, idle and largest power of a board."""

    floor_watts: float
    idle_watts: float
    tdp_watts: float
    cap_reach: float
    lowered_cap_reach: float | None


def _thinned(samples: PowerSamples) -> PowerSamples:
    """Return the usable rows, at most 5,000, evenly chosen."""
    rows = np.flatnonzero(samples.usable)
    if len(rows) > MAX_SAMPLES:
        rows = rows[np.linspace(0, len(rows) - 1, MAX_SAMPLES).astype(int)]
    optional = {
        name: None if getattr(samples, name) is None else samples.column(name)[rows]
        for name in ("allocated", "cap_watts")
    }
    # Without groups, blocks of time stand for them: neighbours in time are no independent test.
    blocks = np.arange(len(rows)) * 20 // max(1, len(rows))
    return PowerSamples(
        power_watts=samples.column("power_watts")[rows],
        utilization=samples.column("utilization")[rows],
        group=blocks if samples.group is None else np.asarray(samples.group)[rows],
        **optional,
    )


def _board_of(model: GpuModel, samples: PowerSamples | None) -> _Board:
    """Return a listed board, its idle power from readings at rest where there are enough."""
    idle = model.idle_watts
    if samples is not None:
        quiet = samples.power_watts[np.flatnonzero(samples.utilization <= IDLE_BELOW)]
        if len(quiet) >= _MIN_IDLE:
            idle = float(np.quantile(quiet, 0.25))
    return _Board(
        floor_watts=min(idle, model.idle_watts_low),
        idle_watts=min(idle, 0.9 * model.tdp_watts),
        tdp_watts=model.tdp_watts,
        cap_reach=_cap_reach(samples, model.tdp_watts) or REACH,
        lowered_cap_reach=_cap_reach(samples, model.tdp_watts, below=_LOWER_LIMIT_RATIO),
    )


def _cap_reach(
    samples: PowerSamples | None, tdp_watts: float, *, below: float = np.inf
) -> float | None:
    """Return share of their cap that the busiest readings reach: the 95th percentile near it.

    Of caps `below` a share of the TDP; None with fewer than twenty readings near one.
    """
    if samples is None:
        return None
    caps = samples.column("cap_watts")
    caps = np.where(np.isfinite(caps) & (caps > 0), caps, tdp_watts)
    share = samples.power_watts / caps
    shares = share[np.flatnonzero((share > _NEAR_CAP) & (caps < below * tdp_watts))]
    if len(shares) < _MIN_NEAR_CAP:
        return None
    return float(np.clip(np.quantile(shares, 0.95), REACH - 0.06, 1.02))


def _unlisted_board(samples: PowerSamples) -> _Board:
    """Return a board that the catalogue lacks, from its readings alone."""
    caps = samples.column("cap_watts")
    finite = caps[np.isfinite(caps)]
    largest = float(finite.max()) if len(finite) else float(samples.power_watts.max())
    idle = float(np.quantile(samples.power_watts, 0.02))
    return _Board(
        floor_watts=0.9 * idle,
        idle_watts=min(idle, 0.9 * largest),
        tdp_watts=max(largest, 1.0),
        cap_reach=_cap_reach(samples, max(largest, 1.0)) or REACH,
        lowered_cap_reach=_cap_reach(samples, max(largest, 1.0), below=_LOWER_LIMIT_RATIO),
    )


def _design(samples: PowerSamples, board: _Board, *, with_held: bool) -> Design:
    """Return the rows whose inputs are all known."""
    allocated = samples.column("allocated")
    finite = np.isfinite(allocated) if with_held else np.ones(len(allocated), dtype=bool)
    caps = samples.column("cap_watts")
    caps = np.where(np.isfinite(caps) & (caps > 0), caps, board.tdp_watts)
    group = np.zeros(len(finite), dtype=np.int64) if samples.group is None else samples.group
    columns = columns_of(samples.utilization[finite], allocated[finite] if with_held else None)
    return Design(
        columns=columns * (board.tdp_watts - board.idle_watts),
        idle_watts=board.idle_watts,
        power_watts=samples.power_watts[finite],
        cap_watts=caps[finite],
        reach=board.cap_reach,
        group=group[finite],
    )


def _pooled(
    samples: Mapping[str, PowerSamples], boards: Mapping[str, _Board], *, with_held: bool
) -> Values:
    """Return coefficients of all models together: each model's own fit, averaged with the prior.

    A model counts by its readings, at most as the prior does: none rules the others.
    """
    prior = prior_of(with_held=with_held)
    total, weight = prior, 1.0
    for name, sample in samples.items():
        design = _design(sample, boards[name], with_held=with_held)
        if len(design.power_watts) >= MIN_SAMPLES:
            share = min(1.0, len(design.power_watts) / 100)
            total = total + share * fit(design, prior)
            weight += share
    return np.asarray(total / weight)


def _fit(
    samples: PowerSamples | None, board: _Board, pooled: Values, *, with_held: bool
) -> PowerFit:
    """Return the fit of one model."""
    span = board.tdp_watts - board.idle_watts
    wide = tuple(share * span for share in _PRIOR_SPREADS)
    prior_only = PowerFit(
        with_held=with_held,
        coefficients=tuple(pooled.tolist()),
        error=None,
        third_watts=(board.idle_watts + span / 3, board.idle_watts + 2 * span / 3),
        spread_watts=((-wide[0], wide[0]), (-wide[1], wide[1]), (-wide[2], wide[2])),
    )
    if samples is None:
        return prior_only
    design = _design(samples, board, with_held=with_held)
    if len(design.power_watts) < MIN_SAMPLES:
        return prior_only
    predicted = left_out_predictions(design, pooled)
    return replace(
        _spread(design.power_watts, predicted, prior_only, len(np.unique(design.group))),
        coefficients=tuple(fit(design, pooled).tolist()),
        error=error_of(design, predicted),
    )


def _spread(power: Values, predicted: Values, prior: PowerFit, groups: int) -> PowerFit:
    """Return the prior with its spread moved to q10 and q90 of the residuals in each third.

    The quantiles are those that split-conformal prediction takes for a new group when so many were
    seen: 0.9 (1 + 1 / groups). Without it the range of 15 groups holds 70 % instead of 80 %.
    """
    finite = np.isfinite(predicted)
    residual, level = (power - predicted)[finite], predicted[finite]
    if not len(level):
        return prior
    first, second = (float(edge) for edge in np.quantile(level, [1 / 3, 2 / 3]))
    third = np.searchsorted((first, second), level)
    quantile = min(_UPPER_QUANTILE * (1 + 1 / groups), 1.0)

    def limits(number: int) -> tuple[float, float]:
        part = residual[third == number]
        wide = prior.spread_watts[number][1]
        share = len(part) / (len(part) + _PRIOR_RESIDUALS)
        low, high = np.quantile(part, [1 - quantile, quantile]) if len(part) else (0.0, 0.0)
        return (
            float(share * min(low, 0.0) - (1 - share) * wide),
            float(share * max(high, 0.0) + (1 - share) * wide),
        )

    return replace(
        prior, third_watts=(first, second), spread_watts=(limits(0), limits(1), limits(2))
    )


HOLDS_MEMORY_RATIO = 0.05
"""A board with more of its memory in use is held, whoever holds it."""


def readings_by_model(samples: pd.DataFrame) -> dict[tuple[str, str], PowerSamples]:
    """Return the readings of whole boards by GPU model and utilization signal.

    `samples` has the columns of data.facts.columns.SAMPLES. MIG instances are left out: their
    board's power is not theirs. Readings of one job, or of one free board, belong together.
    """
    full_boards = samples[(samples["mig_instance"] == "") & (samples["utilization_signal"] != "")]
    readings = {}
    for (model, signal), rows in full_boards.groupby(["gpu_model", "utilization_signal"]):
        share = rows["memory_used_mib"] / rows["memory_total_mib"].where(
            rows["memory_total_mib"] > 0
        )
        in_use = (rows["job_id"] != "") | (share > HOLDS_MEMORY_RATIO)
        holder = rows["job_id"].where(rows["job_id"] != "", rows["gpu_uuid"])
        readings[(str(model), str(signal))] = PowerSamples(
            power_watts=rows["power_watts"].to_numpy(dtype="float64"),
            utilization=rows["utilization_ratio"].to_numpy(dtype="float64"),
            allocated=np.asarray(in_use, dtype=np.float64),
            cap_watts=rows["power_limit_watts"].to_numpy(dtype="float64"),
            group=pd.factorize(holder)[0].astype("int64"),
        )
    return readings


MODEL = "power-model"
Forecast = DemandForecast | ForecastSkipped
PowerModels = Mapping[tuple[str, str], PowerModel]
"""By GPU model and utilization signal."""


def power_models(readings: pd.DataFrame, catalogue: GpuCatalogue) -> PowerModels:
    """Return models learned from a fleet's readings (columns SAMPLES), else the catalogue's law."""
    samples = readings_by_model(readings)
    signals = {signal for _model, signal in samples} | set(readings["utilization_signal"]) - {""}
    return {
        (name, signal): model
        for signal in signals
        for name, model in fit_power_models(
            {model: sample for (model, of), sample in samples.items() if of == signal},
            catalogue,
            signal=signal,
        ).items()
    }


def with_estimated_power(
    forecasts: Sequence[Forecast],
    *,
    jobs: Sequence[Job],
    models: PowerModels,
    signals: Mapping[str, str],
) -> tuple[Forecast, ...]:
    """Return the forecasts, with a power path where power is not known but can be estimated.

    `signals` maps a job to its utilization signal. MIG slices and jobs that share their boards have
    no board to estimate.
    """
    by_id = {job.job_id: job for job in jobs}
    return tuple(
        _estimated(forecast, by_id[forecast.job_id], models, signals)
        if isinstance(forecast, DemandForecast)
        else forecast
        for forecast in forecasts
    )


def _estimated(
    forecast: DemandForecast, job: Job, models: PowerModels, signals: Mapping[str, str]
) -> DemandForecast:
    demand = forecast.path(Quantity.EFFECTIVE_GPUS)
    model = models.get((job.gpu_model, signals.get(job.job_id, "")))
    if forecast.path(Quantity.POWER) is not None or demand is None or model is None:
        return forecast
    if job.mig_profile:
        return forecast
    path = _path(demand, model, job.gpu_count)
    return replace(forecast, paths=(*forecast.paths, path))


def _path(demand: QuantilePath, model: PowerModel, boards: int) -> QuantilePath:
    """Return the boards' power: low at the low demand, central at the middle, high at the high."""

    def watts(path: Sequence[float], level: str) -> Values:
        range_watts = model.predict(np.asarray(path) / boards, allocated=1.0)
        return np.asarray(boards * getattr(range_watts, level))

    middle = watts(demand.q50, "central")
    low = np.minimum(watts(demand.q10, "low"), middle)
    high = np.maximum(watts(demand.q90, "high"), middle)
    return QuantilePath(
        quantity=Quantity.POWER,
        model=MODEL,
        q10=tuple(low.tolist()),
        q50=tuple(middle.tolist()),
        q90=tuple(high.tolist()),
        backtest=None,
        notes=(_note(model),),
    )


def _note(model: PowerModel) -> str:
    error = model.best_fit(knows_held=True).error
    if error is None:
        return f"estimated from {model.signal} by the catalogue alone; never measured here"
    return (
        f"estimated from {model.signal}: {error.mae_watts:.0f} W mean absolute error per board on "
        f"{error.samples} readings of boards and jobs left out"
    )
