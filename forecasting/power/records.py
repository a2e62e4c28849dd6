"""Readings that a power model is fitted on, and what it gives."""

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

OPTIONAL_INPUTS = ("memory_activity", "clock_ratio", "held")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PowerSamples:
    """Readings of boards of one GPU model, one row each, NaN where unknown, shape (n,) all.

    `utilization` 0..1 is one signal throughout (SM activity, or GPU_UTIL); `memory_activity` 0..1
    the share of time that memory is moved; `clock_ratio` the SM clock over its maximum; `held` 1
    where somebody's memory lies on the board, else 0; `cap_watts` the limit in force. `group`
    names what belongs together, a job or a board: errors are measured on groups left out.
    """

    power_watts: Values
    utilization: Values
    memory_activity: Values | None = None
    clock_ratio: Values | None = None
    held: Values | None = None
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
        found = getattr(self, name)
        if found is None:
            return np.full(len(self.power_watts), np.nan)
        return np.asarray(found, dtype=np.float64)

    @property
    def usable(self) -> Flags:
        """Which rows have a power of 0 W or more and a utilization in 0..1.001."""
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
    """How wrong a fit is on groups it has not seen, with cross-validation."""

    mae_watts: float
    median_relative_error: float
    samples: int
    groups: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Watts:
    """Board power in W, q10, central and q90, one value per value asked for.

    NaN where the utilization asked for is unknown. `extrapolated` marks what lies outside of all
    that was measured, or rests on the catalogue alone; `capped` what the cap holds down by 1 % or
    more. `inputs` names the inputs used, with the number of values they were used for.
    """

    low: Values
    central: Values
    high: Values
    extrapolated: Flags
    capped: Flags
    inputs: tuple[tuple[tuple[str, ...], int], ...]
