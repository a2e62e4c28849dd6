"""Board power of one GPU model by the board's activity, learned from a fleet's readings.

    models = fit_power_models({"H100-SXM5-80GB": samples}, load_gpu_catalogue(), signal="sm_active")
    watts = models["H100-SXM5-80GB"].predict(utilization, allocated=1.0, power_cap_watts=500)

Terms: `forecasting.power.terms`; caps: `forecasting.power.cap`; `fit_power_models` is in
`forecasting.power.estimated`.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forecasting.power.cap import power_under_cap
from forecasting.power.records import PowerError, Watts
from forecasting.power.terms import columns_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerFit:
    """The fit to the utilization alone, or with whether boards are held.

    `coefficients` are shares of TDP - idle; `error` is None without readings to test on.
    `spread_watts` is (q10, q90) of the left-out residuals in three thirds of predicted power that
    meet at `third_watts`, leaning on ±12, 25 and 30 % of TDP - idle.
    """

    with_held: bool
    coefficients: tuple[float, ...]
    error: PowerError | None
    third_watts: tuple[float, float]
    spread_watts: tuple[tuple[float, float], tuple[float, float], tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerModel:
    """Board power of one GPU model; `fits` without and with whether boards are held.

    `floor_watts` is the least that a board draws, the lower end of every range.
    `cap_reach` is the share of the limit in force that the busiest boards come up to, measured
    where at least twenty readings lie near it, else that of the Zeus traces. `lowered_cap_reach` is
    the same of caps below the TDP alone, None where fewer readings lie near one: a board that draws
    nearly its TDP is hardly ever held by it, its work draws that.
    """

    gpu_model: str
    signal: str
    floor_watts: float
    idle_watts: float
    tdp_watts: float
    cap_reach: float
    lowered_cap_reach: float | None
    fits: tuple[PowerFit, ...]

    def best_fit(self, *, knows_held: bool) -> PowerFit:
        """Return the fit that errs least; without any error to compare, that of utilization."""
        usable = [fit for fit in self.fits if knows_held or not fit.with_held]
        return min(usable, key=lambda entry: entry.error.mae_watts if entry.error else np.inf)

    def predict(
        self,
        utilization: npt.ArrayLike,
        *,
        allocated: npt.ArrayLike | None = None,
        power_cap_watts: npt.ArrayLike | None = None,
    ) -> Watts:
        """Return board power in W, low, central and high; inputs as in PowerSamples.

        A number stands for one value; shorter inputs are repeated by the rules of broadcasting. No
        cap, or an unknown one, is the TDP.
        """
        best = self.best_fit(knows_held=allocated is not None)
        used, holds, caps = np.broadcast_arrays(
            np.atleast_1d(np.asarray(utilization, dtype=np.float64)),
            np.asarray(0.0 if allocated is None else allocated, dtype=np.float64),
            np.asarray(self.tdp_watts if power_cap_watts is None else power_cap_watts),
        )
        caps = np.where(np.isfinite(caps) & (caps > 0), caps, self.tdp_watts)
        columns = columns_of(used, holds if best.with_held else None)
        demand = self.idle_watts + columns @ np.array(best.coefficients) * (
            self.tdp_watts - self.idle_watts
        )
        central = power_under_cap(demand, caps, reach=self.cap_reach)
        spread = np.array(best.spread_watts)[np.searchsorted(best.third_watts, central)]
        low = np.clip(central + spread[:, 0], np.minimum(self.floor_watts, central), central)
        high = np.clip(central + spread[:, 1], central, np.maximum(caps, central))
        return Watts(low=low, central=central, high=high)
