"""What holding a limit costs: rent, electricity, demand above it, and every change."""

from dataclasses import dataclass

import numpy as np

from planner.cost import CHANGE_HOURS, SHORTFALL_WEIGHT
from planner.rightsizing.past import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Charges:
    """Money per unit-hour of limit; power of a held unit at rest and at work, kW.

    Demand above the limit costs `shortfall_weight` rents; a change costs `change_hours` of rent of
    the new limit.
    """

    unit_hour: float
    idle_kw: float = 0.0
    busy_kw: float = 0.0
    energy_price: float = 0.0
    pue: float = 1.0
    shortfall_weight: float = SHORTFALL_WEIGHT
    change_hours: float = CHANGE_HOURS

    def energy_kwh(self, limits: Values, used: Values, hours: float) -> Values:
        """Give the energy of units held for so long, of which so many worked."""
        busy = np.minimum(used, limits)
        power = self.idle_kw * limits + (self.busy_kw - self.idle_kw) * busy
        return np.asarray(self.pue * hours * power)

    def step_cost(self, samples: Values, levels: Values, hours: float) -> Values:
        """Give the cost [jobs, K] of levels [jobs, K] under samples [jobs, n] of so many hours.

        An unknown sample costs nothing: neither rent nor shortfall, for any rule.
        """
        cost = np.zeros(levels.shape)
        for column in samples.T:
            known = np.isfinite(column)[:, None]
            demand = np.where(known, column[:, None], 0.0)
            missing = np.maximum(demand - levels, 0.0)
            held = levels + self.shortfall_weight * missing
            energy = self.energy_kwh(levels, np.broadcast_to(demand, levels.shape), hours)
            cost += known * (held * hours * self.unit_hour + energy * self.energy_price)
        return cost

    def change_cost(self, levels: Values) -> Values:
        """Give the cost of a change to each level."""
        return np.asarray(levels * self.change_hours * self.unit_hour)
