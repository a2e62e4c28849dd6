"""Prophet's uncertainty bands in closed form.

Prophet draws future changes of slope: at every future step, with probability q = S dt, one from a
Laplace of scale L = mean |delta| + 1e-8, which is half felt at its own step. So h steps ahead the
trend is off by U = dt sum_m e_m (h - m + 1/2), and noise of variance s comes on top:

    V  = s + dt^2 2 q L^2 sum_m (m - 1/2)^2
    k4 = dt^4 (24 q - 3 (2 q)^2) L^4 sum_m (m - 1/2)^4        m = 1 .. h

The quantile is yhat + sqrt(V) (z + k4 / V^2 (z^3 - 3 z) / 24): Cornish and Fisher (1938) up to the
fourth cumulant; the odd ones vanish.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_MAX_KURTOSIS = 6.0
"""Of the correction; from 8 it would put quantiles out of order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendNoise:
    """What decides the spread of each series: [series] each, of y / y_scale.

    `variance` is that of the noise, `change` Prophet's L, `rate` its q, `step` its dt.
    """

    variance: Floats
    change: Floats
    rate: Floats
    step: Floats


def deviations(noise: TrendNoise, horizon: int, quantiles: tuple[float, ...]) -> Floats:
    """Return each quantile less yhat: [quantiles, series, horizon], of y / y_scale."""
    middles = np.arange(horizon) + 0.5
    second, fourth = np.cumsum(middles**2), np.cumsum(middles**4)
    rate = np.minimum(noise.rate, 1.0)
    change = noise.step * noise.change
    variance = noise.variance[:, None] + np.outer(2 * rate * change**2, second)
    cumulant = np.outer((24 * rate - 12 * rate**2) * change**4, fourth)
    kurtosis = np.minimum(cumulant / variance**2, _MAX_KURTOSIS)
    spread = np.sqrt(variance)
    normal = [NormalDist().inv_cdf(quantile) for quantile in quantiles]
    return np.stack([spread * (z + kurtosis * ((z**3 - 3 * z) / 24)) for z in normal])
