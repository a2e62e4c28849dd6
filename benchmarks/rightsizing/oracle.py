"""The oracle: the cheapest path of limits for somebody who knew all that came."""

from dataclasses import dataclass, field

import numpy as np

from benchmarks.rightsizing.charges import UnitCharges
from benchmarks.rightsizing.level_paths import cheapest_path
from benchmarks.rightsizing.past import Past, Values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Oracle:
    """Limits [jobs, steps] found by `oracle_of`; no rule that sees the past only can be cheaper."""

    limits: Values = field(repr=False)
    first_step: int
    name: str = "oracle (knew all)"

    def recommend(self, past: Past) -> Values:
        """Return the limits of the step that follows the past."""
        step = past.usage.shape[1] // past.samples_per_step - self.first_step
        return np.asarray(self.limits[:, step])


def oracle_of(
    usage: Values,
    levels: Values,
    *,
    charges: UnitCharges,
    sample_hours: float,
    samples_per_step: int,
    first_step: int,
) -> Oracle:
    """Return the oracle of usage [jobs, samples] from `first_step` on: exact, job by job.

    A step is judged once the job was seen in an earlier one; what came before costs nobody.
    """
    steps = usage.shape[1] // samples_per_step
    cost = np.stack(
        [
            charges.step_cost(
                usage[:, number * samples_per_step : (number + 1) * samples_per_step],
                levels,
                sample_hours,
            )
            for number in range(first_step, steps)
        ],
        axis=1,
    )
    known = np.isfinite(usage[:, : steps * samples_per_step])
    seen = known.reshape(len(usage), steps, samples_per_step).any(axis=2)
    judged = np.hstack([np.zeros((len(usage), 1), bool), np.cumsum(seen, axis=1)[:, :-1] > 0])
    cost *= judged[:, first_step:, None]
    start = np.full(len(usage), -1, dtype=np.int64)
    path = cheapest_path(cost, charges.change_cost(levels), start)
    return Oracle(limits=np.take_along_axis(levels, path, axis=1), first_step=first_step)
