"""Prophet itself, run on one series of a batch, and its objective written out once more.

The objective here is evaluated on the design's columns and the data in plain NumPy, not from the
Gram matrix that the solver uses.
"""

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from forecasting.prophet_fits import ProphetFits
from forecasting.prophet_terms import ProphetDesign

Floats = npt.NDArray[np.float64]


def quiet_prophet(**options: Any) -> Any:
    """Give a Prophet without its log lines; its loggers get their handlers at import."""
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
        own = fits.regressors[series if len(fits.regressors) > 1 else 0][slots]
        design = fits.design(series)
        return cls(
            design=design,
            times=times,
            y=fits.values[series, slots],
            scale=float(fits.scale[series]),
            columns=design.columns(times, own),
        )

    def frame(self) -> pd.DataFrame:
        """Give the frame that Prophet is fitted to; its times are naive."""
        return pd.DataFrame({"ds": pd.to_datetime(self.times, unit="s"), "y": self.y})

    def terms(self, params: dict[str, Any]) -> tuple[Floats, float]:
        """Give the terms in the order of the design's columns, and sigma, of Prophet's params."""
        flat = {name: np.asarray(value, dtype=float).reshape(-1) for name, value in params.items()}
        trend = [flat["k"]] if self.design.growth == "linear" else []
        smooth = len(self.design.precision) - len(trend) - 1
        delta = flat["delta"][: len(self.design.changepoints)]
        return np.concatenate([*trend, flat["m"], flat["beta"][:smooth], delta]), float(
            flat["sigma_obs"][0]
        )

    def yhat(self, params: dict[str, Any]) -> Floats:
        """Give the fitted values at the known points."""
        return self.scale * (self.columns @ self.terms(params)[0])

    def objective(self, params: dict[str, Any]) -> float:
        """Give f at these params."""
        theta, sigma = self.terms(params)
        normal = len(self.design.precision)
        rss = np.sum((self.y / self.scale - self.columns @ theta) ** 2)
        prior = 0.5 * np.sum(self.design.precision * theta[:normal] ** 2)
        prior += np.abs(theta[normal:]).sum() / self.design.tau
        return float(len(self.y) * np.log(sigma) + rss / (2 * sigma**2) + 2 * sigma**2 + prior)

    def kkt_residual(self, params: dict[str, Any]) -> float:
        """Give the largest violation of the optimality conditions of f, in natural terms."""
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
