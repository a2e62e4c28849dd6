"""Board power of one GPU model from what the board does, as a fleet's readings have taught it.

    models = fit_power_models({"H100-SXM5-80GB": samples}, load_gpu_catalogue(), signal="sm_active")
    watts = models["H100-SXM5-80GB"].predict(utilization, power_cap_watts=500)

Terms: `forecasting.power.terms`; caps: `forecasting.power.cap`; `fit_power_models` is in
`forecasting.power.training`.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forecasting.power.cap import power_under_cap
from forecasting.power.records import Flags, PowerError, Values, Watts
from forecasting.power.terms import columns_of

_RANGE_SLACK = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerFit:
    """The fit for one set of known inputs beside the utilization.

    `coefficients` are shares of TDP - idle, named by `terms`; `error` None without readings to
    test on. `spread_watts` is (q10, q90) of the left-out residuals in three thirds of predicted
    power that meet at `third_watts`, leaning on ±12, 25 and 30 % of TDP - idle. `ranges` has the
    smallest and largest known value of the utilization and of each input.
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
    notes: tuple[str, ...]

    def best_fit(self, known: tuple[str, ...]) -> PowerFit:
        """Return the fit that errs least among those whose inputs are all known.

        Without any error to compare, the one with the fewest inputs.
        """
        usable = [fit for fit in self.fits if set(fit.inputs) <= set(known)]
        return min(usable, key=lambda entry: entry.error.mae_watts if entry.error else np.inf)

    def predict(
        self,
        utilization: npt.ArrayLike,
        *,
        memory_activity: npt.ArrayLike | None = None,
        clock_ratio: npt.ArrayLike | None = None,
        held: npt.ArrayLike | None = None,
        power_cap_watts: npt.ArrayLike | None = None,
    ) -> Watts:
        """Return board power in W, low, central and high; inputs as in PowerSamples, NaN unknown.

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
        """Return watts (3, n), which are extrapolated, which capped."""
        span = self.tdp_watts - self.idle_watts
        shares = columns_of(rows, chosen.inputs) @ np.array(chosen.coefficients)
        demand = self.idle_watts + span * shares
        central = power_under_cap(demand, caps, reach=self.cap_reach)
        third = np.searchsorted(chosen.third_watts, central)
        spread = np.array(chosen.spread_watts)[third]
        low = np.clip(central + spread[:, 0], np.minimum(self.floor_watts, central), central)
        high = np.clip(central + spread[:, 1], central, np.maximum(caps, central))
        beyond = np.full(len(demand), chosen.error is None)
        for (smallest, largest), value in zip(chosen.ranges, rows.values(), strict=True):
            beyond |= (value < smallest - _RANGE_SLACK) | (value > largest + _RANGE_SLACK)
        return np.stack([low, central, high]), beyond, central < 0.99 * demand


def _by_known(
    values: dict[str, Values], asked: Flags, names: tuple[str, ...]
) -> list[tuple[tuple[str, ...], Flags]]:
    """Return each set of known inputs with the places where exactly those are known."""
    code = np.zeros(asked.shape, dtype=int)
    for bit, name in enumerate(names):
        code += np.isfinite(values[name]).astype(int) << bit
    return [
        (tuple(name for bit, name in enumerate(names) if number >> bit & 1), where)
        for number in range(1 << len(names))
        if (where := asked & (code == number)).any()
    ]
