"""Board power of one GPU model from what the board does, fitted on what a fleet has measured.

    models = fit_power_models({"H100-SXM5-80GB": samples}, load_gpu_catalogue(), signal="sm_active")
    watts = models["H100-SXM5-80GB"].predict(utilization, power_cap_watts=500)

Every model of the catalogue has an answer: without readings of its own it takes the shape that the
fleet's other models have, without any the catalogue's idle and TDP; both are marked as
extrapolation. Terms: `forecasting.power_terms`; caps: `forecasting.power_cap`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from data.catalogue.gpu_catalogue import GpuCatalogue, GpuModel
from forecasting.power_cap import REACH, power_under_cap
from forecasting.power_fit import Design, error_of, fit, left_out_predictions
from forecasting.power_records import (
    OPTIONAL_INPUTS,
    Flags,
    PowerError,
    PowerSamples,
    Values,
    Watts,
)
from forecasting.power_terms import columns_of, prior_of, term_names

__all__ = [
    "OPTIONAL_INPUTS",
    "PowerError",
    "PowerFit",
    "PowerModel",
    "PowerSamples",
    "Watts",
    "fit_power_models",
]

FEWEST_SAMPLES = 8
MOST_SAMPLES = 5_000
"""More readings than this are thinned evenly: five coefficients need no more."""
IDLE_BELOW = 0.01
_FEWEST_IDLE = 10
_NEAR_CAP = 0.9
_FEWEST_NEAR_CAP = 20
_PRIOR_SPREAD = 0.25
_PRIOR_RESIDUALS = 10.0
_LOW, _HIGH = 0.1, 0.9
_RANGE_SLACK = 0.02
INPUT_SETS = tuple(
    chosen
    for size in range(len(OPTIONAL_INPUTS) + 1)
    for chosen in combinations(OPTIONAL_INPUTS, size)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerFit:
    """The fit for one set of known inputs beside the utilization.

    `coefficients` are shares of TDP - idle, named by `terms`; `error` None without readings to
    test on. `spread_watts` is (q10, q90) of the left-out residuals in three thirds of predicted
    power that meet at `third_watts`, leaning on ±25 % of TDP - idle. `ranges` has the smallest and
    largest known value of the utilization and of each input.
    """

    inputs: tuple[str, ...]
    terms: tuple[str, ...]
    coefficients: tuple[float, ...]
    error: PowerError | None
    third_watts: tuple[float, float]
    spread_watts: tuple[tuple[float, float], tuple[float, float], tuple[float, float]]
    ranges: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerModel:
    """Board power of one GPU model; `fits` has one entry per set of inputs that may be known.

    `cap_reach` is the share of a cap that the board settles at under load, measured where at least
    twenty readings lie near their cap, else that of the Zeus traces.
    """

    gpu_model: str
    signal: str
    idle_watts: float
    tdp_watts: float
    cap_reach: float
    fits: tuple[PowerFit, ...]
    notes: tuple[str, ...]

    def best_fit(self, known: tuple[str, ...]) -> PowerFit:
        """Give the fit that errs least among those whose inputs are all known.

        Without any error to compare, the one with the fewest inputs.
        """
        usable = [one for one in self.fits if set(one.inputs) <= set(known)]
        return min(usable, key=lambda one: one.error.mae_watts if one.error else np.inf)

    def predict(
        self,
        utilization: npt.ArrayLike,
        *,
        memory_activity: npt.ArrayLike | None = None,
        clock_ratio: npt.ArrayLike | None = None,
        held: npt.ArrayLike | None = None,
        power_cap_watts: npt.ArrayLike | None = None,
    ) -> Watts:
        """Give board power in W, low, central and high; inputs as in PowerSamples, NaN unknown.

        A number stands for one value; shorter inputs are repeated by the rules of broadcasting. No
        cap, or an unknown one, is the TDP.
        """
        given = {"memory_activity": memory_activity, "clock_ratio": clock_ratio, "held": held}
        names = [name for name, value in given.items() if value is not None]
        cap = self.tdp_watts if power_cap_watts is None else power_cap_watts
        arrays = np.broadcast_arrays(
            np.atleast_1d(np.asarray(utilization, dtype=np.float64)),
            *(np.asarray(given[name], dtype=np.float64) for name in names),
            np.asarray(cap, dtype=np.float64),
        )
        values = dict(zip(("utilization", *names), arrays[:-1], strict=True))
        caps = np.where(np.isfinite(arrays[-1]) & (arrays[-1] > 0), arrays[-1], self.tdp_watts)
        asked = np.isfinite(values["utilization"])
        watts = np.full((3, *asked.shape), np.nan)
        beyond, capped = np.zeros(asked.shape, dtype=bool), np.zeros(asked.shape, dtype=bool)
        used: dict[tuple[str, ...], int] = {}
        for known, where in _by_known(values, asked, tuple(names)):
            chosen = self.best_fit(known)
            rows = {name: values[name][where] for name in ("utilization", *chosen.inputs)}
            watts[:, where], beyond[where], capped[where] = self._rows(chosen, rows, caps[where])
            used[chosen.inputs] = used.get(chosen.inputs, 0) + int(where.sum())
        low, central, high = watts
        return Watts(
            low=low,
            central=central,
            high=high,
            extrapolated=beyond,
            capped=capped,
            inputs=tuple(used.items()),
        )

    def _rows(
        self, chosen: PowerFit, rows: dict[str, Values], caps: Values
    ) -> tuple[Values, Flags, Flags]:
        """Give watts (3, n), which are extrapolated, which capped."""
        span = self.tdp_watts - self.idle_watts
        shares = columns_of(rows, chosen.inputs) @ np.array(chosen.coefficients)
        demand = self.idle_watts + span * shares
        central = power_under_cap(demand, caps, reach=self.cap_reach)
        third = np.searchsorted(chosen.third_watts, central)
        spread = np.array(chosen.spread_watts)[third]
        low = np.clip(central + spread[:, 0], 0.0, central)
        high = np.clip(central + spread[:, 1], central, np.maximum(caps, central))
        beyond = np.full(len(demand), chosen.error is None)
        for (smallest, largest), value in zip(chosen.ranges, rows.values(), strict=True):
            beyond |= (value < smallest - _RANGE_SLACK) | (value > largest + _RANGE_SLACK)
        return np.stack([low, central, high]), beyond, central < 0.99 * demand


def fit_power_models(
    samples: Mapping[str, PowerSamples], catalogue: GpuCatalogue, *, signal: str
) -> dict[str, PowerModel]:
    """Give a power model for every GPU model of the catalogue and of the samples.

    `samples` by GPU model, all with the same utilization signal. A model that the catalogue does
    not know takes its idle power and TDP from its own readings; with fewer than eight it is left
    out, for nothing is known of it.
    """
    thinned = {name: _thinned(one) for name, one in samples.items()}
    boards = {model.name: _board_of(model, thinned.get(model.name)) for model in catalogue}
    for name, one in thinned.items():
        if name not in boards and len(one.power_watts) >= FEWEST_SAMPLES:
            boards[name] = _unlisted_board(name, one)
    pooled = {
        inputs: _pooled(
            inputs, {name: one for name, one in thinned.items() if name in boards}, boards
        )
        for inputs in INPUT_SETS
    }
    return {
        name: PowerModel(
            gpu_model=name,
            signal=signal,
            idle_watts=board.idle_watts,
            tdp_watts=board.tdp_watts,
            cap_reach=board.cap_reach,
            fits=tuple(
                _fit(inputs, thinned.get(name), board, pooled[inputs]) for inputs in INPUT_SETS
            ),
            notes=board.notes,
        )
        for name, board in boards.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Board:
    """What a board draws when idle and at most."""

    idle_watts: float
    tdp_watts: float
    cap_reach: float
    notes: tuple[str, ...]


def _by_known(
    values: dict[str, Values], asked: Flags, names: tuple[str, ...]
) -> list[tuple[tuple[str, ...], Flags]]:
    """Give each set of known inputs with the places where exactly those are known."""
    code = np.zeros(asked.shape, dtype=int)
    for bit, name in enumerate(names):
        code += np.isfinite(values[name]).astype(int) << bit
    return [
        (tuple(name for bit, name in enumerate(names) if number >> bit & 1), where)
        for number in range(1 << len(names))
        if (where := asked & (code == number)).any()
    ]


def _thinned(samples: PowerSamples) -> PowerSamples:
    """Give the usable rows, at most 5,000, evenly chosen."""
    rows = np.flatnonzero(samples.usable)
    if len(rows) > MOST_SAMPLES:
        rows = rows[np.linspace(0, len(rows) - 1, MOST_SAMPLES).astype(int)]
    names = ("memory_activity", "clock_ratio", "held", "cap_watts")
    optional = {
        name: None if getattr(samples, name) is None else samples.column(name)[rows]
        for name in names
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
    """Give a listed board, its idle power from readings at rest where there are enough."""
    idle, notes = model.idle_watts, (f"idle and TDP: catalogue ({model.source})",)
    if samples is not None:
        quiet = samples.power_watts[np.flatnonzero(samples.utilization <= IDLE_BELOW)]
        if len(quiet) >= _FEWEST_IDLE:
            idle = float(np.quantile(quiet, 0.25))
            notes = (f"idle: lower quartile of {len(quiet)} readings at rest; TDP: catalogue",)
    return _Board(
        idle_watts=min(idle, 0.9 * model.tdp_watts),
        tdp_watts=model.tdp_watts,
        cap_reach=REACH if samples is None else _reach(samples, model.tdp_watts),
        notes=notes,
    )


def _reach(samples: PowerSamples, tdp_watts: float) -> float:
    """Give the share of their cap that the busiest readings reach: the 95th percentile near it."""
    caps = samples.column("cap_watts")
    share = samples.power_watts / np.where(np.isfinite(caps) & (caps > 0), caps, tdp_watts)
    near = share[np.flatnonzero(share > _NEAR_CAP)]
    if len(near) < _FEWEST_NEAR_CAP:
        return REACH
    return float(np.clip(np.quantile(near, 0.95), REACH - 0.06, 1.02))


def _unlisted_board(name: str, samples: PowerSamples) -> _Board:
    """Give a board that the catalogue lacks, from its readings alone."""
    caps = samples.column("cap_watts")
    known = caps[np.isfinite(caps)]
    largest = float(known.max()) if len(known) else float(samples.power_watts.max())
    idle = float(np.quantile(samples.power_watts, 0.02))
    return _Board(
        idle_watts=min(idle, 0.9 * largest),
        tdp_watts=max(largest, 1.0),
        cap_reach=_reach(samples, max(largest, 1.0)),
        notes=(f"{name} is not in the catalogue: idle and TDP are the extremes of its readings",),
    )


def _design(inputs: tuple[str, ...], samples: PowerSamples, board: _Board) -> tuple[Design, Values]:
    """Give the rows whose inputs are all known, and those inputs, shape (rows, 1 + inputs)."""
    names = ("utilization", *inputs)
    values = {name: samples.column(name) for name in names}
    known = np.asarray(np.isfinite(np.column_stack(list(values.values()))).all(axis=1))
    caps = samples.column("cap_watts")
    caps = np.where(np.isfinite(caps) & (caps > 0), caps, board.tdp_watts)
    rows = {name: value[known] for name, value in values.items()}
    group = np.zeros(len(known), dtype=np.int64) if samples.group is None else samples.group
    design = Design(
        columns=columns_of(rows, inputs) * (board.tdp_watts - board.idle_watts),
        idle_watts=board.idle_watts,
        power_watts=samples.power_watts[known],
        cap_watts=caps[known],
        reach=board.cap_reach,
        group=group[known],
    )
    return design, np.column_stack(list(rows.values()))


def _pooled(
    inputs: tuple[str, ...], samples: Mapping[str, PowerSamples], boards: Mapping[str, _Board]
) -> Values:
    """Give the coefficients of all models together: each model's own fit, averaged with the prior.

    A model counts by its readings, at most as the prior does: none rules the others.
    """
    total, weight = prior_of(inputs), 1.0
    for name, one in samples.items():
        design, _ = _design(inputs, one, boards[name])
        if len(design.power_watts) >= FEWEST_SAMPLES:
            share = min(1.0, len(design.power_watts) / 100)
            total = total + share * fit(design, prior_of(inputs))
            weight += share
    return np.asarray(total / weight)


def _fit(
    inputs: tuple[str, ...], samples: PowerSamples | None, board: _Board, pooled: Values
) -> PowerFit:
    """Give the fit of one model for one set of inputs."""
    wide = _PRIOR_SPREAD * (board.tdp_watts - board.idle_watts)
    prior_only = PowerFit(
        inputs=inputs,
        terms=term_names(inputs),
        coefficients=tuple(pooled.tolist()),
        error=None,
        third_watts=(board.tdp_watts, board.tdp_watts),
        spread_watts=((-wide, wide),) * 3,
        ranges=((0.0, 1.0),) * (1 + len(inputs)),
    )
    if samples is None:
        return prior_only
    design, values = _design(inputs, samples, board)
    if len(design.power_watts) < FEWEST_SAMPLES:
        return prior_only
    predicted = left_out_predictions(design, pooled)
    thirds, spread = _spread(design.power_watts, predicted, wide)
    return PowerFit(
        inputs=inputs,
        terms=term_names(inputs),
        coefficients=tuple(fit(design, pooled).tolist()),
        error=error_of(design, predicted),
        third_watts=thirds,
        spread_watts=spread,
        ranges=tuple((float(one.min()), float(one.max())) for one in values.T),
    )


def _spread(
    power: Values, predicted: Values, wide: float
) -> tuple[
    tuple[float, float], tuple[tuple[float, float], tuple[float, float], tuple[float, float]]
]:
    """Give where the thirds of predicted power meet, and q10 and q90 of the residuals in each."""
    seen = np.isfinite(predicted)
    residual, level = (power - predicted)[seen], predicted[seen]
    if not len(level):
        return (np.inf, np.inf), ((-wide, wide),) * 3
    first, second = (float(edge) for edge in np.quantile(level, [1 / 3, 2 / 3]))
    third = np.searchsorted((first, second), level)

    def limits(part: Values) -> tuple[float, float]:
        share = len(part) / (len(part) + _PRIOR_RESIDUALS)
        low, high = np.quantile(part, [_LOW, _HIGH]) if len(part) else (0.0, 0.0)
        return (
            float(share * min(low, 0.0) - (1 - share) * wide),
            float(share * max(high, 0.0) + (1 - share) * wide),
        )

    low, middle, high = (limits(residual[third == number]) for number in range(3))
    return (first, second), (low, middle, high)
