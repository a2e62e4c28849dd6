"""Prophet itself, run on one series of a batch, and its objective written out once more.

The objective here is evaluated on the design's columns and the data in plain NumPy, not from the
Gram matrix that the solver uses.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks._prophet_design import ProphetDesign, design_of, parameters
from forecasting.prophet.batch import ProphetFits

Floats = npt.NDArray[np.float64]
MONDAY = 1_699_833_600
HOUR = 3600


def quiet_prophet(**options: Any) -> Any:
    """Return a Prophet without its log lines; its loggers get their handlers at import."""
    from prophet import Prophet

    for name in ("cmdstanpy", "prophet", "prophet.plot", "prophet.models"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
    return Prophet(**options)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """One series of a batch as Prophet sees it: known points only."""

    design: ProphetDesign
    times: npt.NDArray[np.int64]
    y: Floats
    scale: float
    columns: Floats

    @classmethod
    def of(cls, fits: ProphetFits, series: int) -> "History":
        """Take it from the batch."""
        slots = np.flatnonzero(np.isfinite(fits.values[series]))
        times = fits.first_slot[series] + slots * fits.slot_seconds
        design = design_of(fits, series)
        return cls(
            design=design,
            times=times,
            y=fits.values[series, slots],
            scale=float(fits.scale[series]),
            columns=design.columns(times),
        )

    def frame(self) -> pd.DataFrame:
        """Return the frame that Prophet is fitted to; its times are naive."""
        return pd.DataFrame({"ds": pd.to_datetime(self.times, unit="s"), "y": self.y})

    def terms(self, params: dict[str, Any]) -> tuple[Floats, float]:
        """Return the terms in the order of the design's columns, and sigma, of Prophet's params."""
        flat = {name: np.asarray(value, dtype=float).reshape(-1) for name, value in params.items()}
        smooth = len(self.design.precision) - 2
        delta = flat["delta"][: len(self.design.changepoints)]
        return np.concatenate([flat["k"], flat["m"], flat["beta"][:smooth], delta]), float(
            flat["sigma_obs"][0]
        )

    def yhat(self, params: dict[str, Any]) -> Floats:
        """Return the fitted values at the known points."""
        return self.scale * (self.columns @ self.terms(params)[0])

    def objective(self, params: dict[str, Any]) -> float:
        """Return f at these params."""
        theta, sigma = self.terms(params)
        normal = len(self.design.precision)
        rss = np.sum((self.y / self.scale - self.columns @ theta) ** 2)
        prior = 0.5 * np.sum(self.design.precision * theta[:normal] ** 2)
        prior += np.abs(theta[normal:]).sum() / self.design.tau
        return float(len(self.y) * np.log(sigma) + rss / (2 * sigma**2) + 2 * sigma**2 + prior)

    def kkt_residual(self, params: dict[str, Any]) -> float:
        """Return the largest violation of the optimality conditions of f, in natural terms."""
        theta, sigma = self.terms(params)
        normal = len(self.design.precision)
        rest = self.y / self.scale - self.columns @ theta
        fall = self.columns.T @ rest / sigma**2
        smooth = fall[:normal] - self.design.precision * theta[:normal]
        delta, pull = theta[normal:], fall[normal:]
        weight = 1 / self.design.tau
        kinks = np.where(
            delta == 0, np.maximum(np.abs(pull) - weight, 0), pull - np.sign(delta) * weight
        )
        noise = len(rest) / 2 - rest @ rest / (2 * sigma**2) + 2 * sigma**2
        return float(np.abs(np.concatenate([smooth, kinks, [noise]])).max())


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How one fit of ours compares with Prophet's, differences of yhat in sd(y).

    `gap`: f of Prophet's own fit less f of ours. `moved`: how far Prophet's yhat goes from ours
    when it starts there, `gained` by how much it lowers f.
    """

    gap: float
    moved: float
    gained: float
    kkt_residual: float


def compare(fits: ProphetFits, series: int) -> Verdict:
    """Run Prophet from its own start and from our answer."""
    history, ours = History.of(fits, series), parameters(fits, series)
    own = quiet_prophet(uncertainty_samples=0).fit(history.frame())
    again = quiet_prophet(uncertainty_samples=0).fit(history.frame(), init=ours)
    best = history.objective(ours)
    apart = np.abs(history.yhat(again.params) - history.yhat(ours)).max()
    return Verdict(
        gap=history.objective(own.params) - best,
        moved=float(apart / history.y.std()),
        gained=best - history.objective(again.params),
        kkt_residual=history.kkt_residual(ours),
    )


Shape = Callable[[Floats, np.random.Generator], Floats]


def _wave(hours: Floats, rng: np.random.Generator) -> Floats:
    """Return a daily wave with noise; hours since Monday 0:00."""
    wave = 8 * rng.uniform(0.2, 1) * np.sin(2 * np.pi * hours / 24 + rng.uniform(0, 6))
    return 30 + wave + rng.normal(0, rng.uniform(0.5, 4), len(hours))


def _gaps(hours: Floats, rng: np.random.Generator) -> Floats:
    """Return a wave with single slots and one whole day unknown."""
    values = _wave(hours, rng)
    values[rng.uniform(size=len(hours)) < 0.1] = np.nan
    begin = rng.uniform(0, hours[-1] - 24)
    values[(hours >= begin) & (hours < begin + 24)] = np.nan
    return values


def _weekend_drop(hours: Floats, rng: np.random.Generator) -> Floats:
    return _wave(hours, rng) * np.where(hours // 24 % 7 >= 5, rng.uniform(0.3, 0.7), 1.0)


def _level_shift(hours: Floats, rng: np.random.Generator) -> Floats:
    return _wave(hours, rng) + rng.uniform(-20, 20) * (hours > rng.uniform(0, hours[-1]))


def _spikes(hours: Floats, rng: np.random.Generator) -> Floats:
    return _wave(hours, rng) + 100 * (rng.uniform(size=len(hours)) < 0.02)


def _flow(hours: Floats, rng: np.random.Generator) -> Floats:
    return np.exp(_wave(hours, rng) / 10)


def _decline(hours: Floats, rng: np.random.Generator) -> Floats:
    return 3 + 57 * np.exp(-3 * hours / hours[-1]) + rng.normal(0, rng.uniform(0.2, 2), len(hours))


def _sparse(hours: Floats, rng: np.random.Generator) -> Floats:
    return np.where(rng.uniform(size=len(hours)) < 0.1, rng.lognormal(2, 1, len(hours)), 0.0)


def _doubling(hours: Floats, rng: np.random.Generator) -> Floats:
    return _wave(hours, rng) * np.where(hours > hours[-1] - 48, 2.0, 1.0)


def _walk(hours: Floats, rng: np.random.Generator) -> Floats:
    return np.cumsum(rng.normal(0, 1, len(hours)))


SHAPES: dict[str, Shape] = {
    "wave": _wave,
    "gaps": _gaps,
    "weekend drop": _weekend_drop,
    "level shift": _level_shift,
    "spikes": _spikes,
    "log-normal flow": _flow,
    "decline": _decline,
    "sparse": _sparse,
    "doubling": _doubling,
    "random walk": _walk,
}


def simulated(shape: str, series: int, slots: int, slot_seconds: int, *, seed: int = 0) -> Floats:
    """Return simulated series of one shape that start on a Monday: [series, slots]."""
    rng = np.random.default_rng([seed, sorted(SHAPES).index(shape)])
    hours = np.arange(slots) * slot_seconds / 3600
    return np.stack([SHAPES[shape](hours, rng) for _ in range(series)])
