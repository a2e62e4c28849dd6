"""Readings that a power model is fitted on, and its result."""

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PowerSamples:
    """Readings of boards of one GPU model, one row each, NaN where unknown, shape (n,) all.

    `utilization` 0..1 is one signal throughout (SM activity, or GPU_UTIL); `allocated` 1 where
    somebody's memory lies on the board, else 0; `cap_watts` the limit in force. `group` names what
    belongs together, a job or a board: errors are measured on groups left out.
    """

    power_watts: Values
    utilization: Values
    allocated: Values | None = None
    cap_watts: Values | None = None
    group: npt.NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        rows = len(self.power_watts)
        for field in fields(self):
            column = getattr(self, field.name)
            if column is not None and len(column) != rows:
                raise ValueError(f"{field.name} has {len(column)} rows, power_watts {rows}")

    def column(self, name: str) -> Values:
        """Return a column by name, unknown throughout where it was not measured."""
        values = getattr(self, name)
        if values is None:
            return np.full(len(self.power_watts), np.nan)
        return np.asarray(values, dtype=np.float64)

    @property
    def usable(self) -> Flags:
        """A mask of rows with a power of 0 W or more and a utilization in 0..1.001."""
        power, utilization = self.column("power_watts"), self.column("utilization")
        return np.asarray(
            np.isfinite(power)
            & (power >= 0)
            & np.isfinite(utilization)
            & (utilization >= 0)
            & (utilization <= 1.001)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerError:
    """The cross-validated error of a fit on groups outside its training data."""

    mae_watts: float
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Watts:
    """Board power in W, q10, central and q90, one value per value asked for.

    NaN where the utilization asked for is unknown.
    """

    low: Values
    central: Values
    high: Values
