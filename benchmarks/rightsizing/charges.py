"""What holding a limit costs: rent, electricity, demand above it, and every change."""

from dataclasses import dataclass

import numpy as np

from benchmarks.rightsizing.past import Values

_SHORTFALL_WEIGHT = 20.0
"""Rents that a missing unit costs: what plans count by default (`planning.shortfall_weight`)."""
_CHANGE_HOURS = 1 / 6
"""Lost time of a checkpoint and restart: above the 15-250 s that Sia (SOSP 2023) measured."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnitCharges:
    """Money per unit-hour of limit; power of a held unit at rest and at work, kW.

    These three are numbers, or arrays [jobs] where jobs hold different boards. Demand above the
    limit costs `shortfall_weight` rents; a change costs `change_hours` of rent of the new limit.
    """

    unit_hour: float | Values
    idle_kw: float | Values = 0.0
    busy_kw: float | Values = 0.0
    energy_price: float = 0.0
    pue: float = 1.0
    shortfall_weight: float = _SHORTFALL_WEIGHT
    change_hours: float = _CHANGE_HOURS

    def energy_kwh(self, limits: Values, used: Values, hours: float) -> Values:
        """Return the energy [jobs, n] of units held for so long, of which so many worked."""
        idle, work = _column(self.idle_kw), _column(self.busy_kw)
        power = idle * limits + (work - idle) * np.minimum(used, limits)
        return np.asarray(self.pue * hours * power)

    def step_cost(self, samples: Values, levels: Values, hours: float) -> Values:
        """Return the cost [jobs, K] of levels [jobs, K] under samples [jobs, n] of so many hours.

        An unknown sample costs nothing: neither rent nor shortfall, for any rule.
        """
        cost = np.zeros(levels.shape)
        for column in samples.T:
            known = np.isfinite(column)[:, None]
            demand = np.where(known, column[:, None], 0.0)
            missing = np.maximum(demand - levels, 0.0)
            held = levels + self.shortfall_weight * missing
            energy = self.energy_kwh(levels, np.broadcast_to(demand, levels.shape), hours)
            cost += known * (held * hours * _column(self.unit_hour) + energy * self.energy_price)
        return cost

    def change_cost(self, levels: Values) -> Values:
        """Return the cost of a change to each level [jobs, n]."""
        return np.asarray(levels * self.change_hours * _column(self.unit_hour))


def _column(value: float | Values) -> Values:
    """Return a number or one per job as a column that meets [jobs, n]."""
    return np.reshape(np.asarray(value, dtype=np.float64), (-1, 1))
