"""Power of a board as Trimtab and its peers guess it from a training set."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data.catalogue.gpu_catalogue import load_gpu_catalogue
from forecasting.power.estimated import fit_power_models
from forecasting.power.records import PowerSamples

CATALOGUE = load_gpu_catalogue()

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """Predicted watts of held-out rows, with the interval where the method has one."""

    central: Floats
    low: Floats | None = None
    high: Floats | None = None


Method = Callable[[str, PowerSamples, PowerSamples], Guess]


def rows_of(samples: PowerSamples, keep: npt.NDArray[np.bool_]) -> PowerSamples:
    """Return some rows of the samples."""
    columns = {
        name: None if (column := getattr(samples, name)) is None else column[keep]
        for name in PowerSamples.__dataclass_fields__
    }
    return PowerSamples(**columns)


def ours(*, with_held: bool) -> Method:
    """Return Trimtab's model, with or without whether boards are held."""

    def guess(model: str, train: PowerSamples, test: PowerSamples) -> Guess:
        fitted = fit_power_models({model: train}, CATALOGUE, signal="benchmark")[model]
        held = test.allocated if with_held else None
        cap = None if test.cap_watts is None else test.cap_watts
        watts = fitted.predict(test.utilization, allocated=held, power_cap_watts=cap)
        return Guess(central=watts.central, low=watts.low, high=watts.high)

    return guess


def catalogue_only(model: str, _train: PowerSamples, test: PowerSamples) -> Guess:
    """Return Trimtab's model before anything was measured."""
    watts = fit_power_models({}, CATALOGUE, signal="benchmark")[model].predict(test.utilization)
    return Guess(central=watts.central, low=watts.low, high=watts.high)


def tdp_times_utilization(model: str, _train: PowerSamples, test: PowerSamples) -> Guess:
    """Return TDP times utilization."""
    return Guess(central=CATALOGUE.get(model).tdp_watts * test.utilization)


def between_idle_and_tdp(model: str, _train: PowerSamples, test: PowerSamples) -> Guess:
    """Return the straight line from idle power to TDP."""
    board = CATALOGUE.get(model)
    return Guess(central=board.idle_watts + (board.tdp_watts - board.idle_watts) * test.utilization)


def fitted_line(_model: str, train: PowerSamples, test: PowerSamples) -> Guess:
    """Return the least-squares line of power on utilization."""
    slope, floor = np.polyfit(train.utilization, train.power_watts, 1)
    return Guess(central=floor + slope * test.utilization)


def mean_power(_model: str, train: PowerSamples, test: PowerSamples) -> Guess:
    """Return the mean power of the training rows."""
    return Guess(central=np.full(len(test.power_watts), train.power_watts.mean()))


PEERS: dict[str, Method] = {
    "catalogue only (nothing fitted)": catalogue_only,
    "fitted line": fitted_line,
    "idle to TDP, straight": between_idle_and_tdp,
    "TDP × utilization": tdp_times_utilization,
    "mean power": mean_power,
}
