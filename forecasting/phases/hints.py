"""Tell evaluation from checkpoint where other series give a hint; power alone cannot.

A checkpoint writes. An evaluation writes nothing and changes the memory in use. The rule has not
been measured: no public trace labels its dips. Without both hints a dip keeps its ambiguous name.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forecasting.phases.change_points import noise_scale
from forecasting.phases.labels import Label
from forecasting.phases.records import PhaseKind

Values = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

_WRITES_RISE = 3.0
_MEMORY_NOISES = 6.0
_MEMORY_SHARE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hints:
    """Other series of the job on the same grid, None when not measured; NaN is unknown.

    `writes` is what the job writes to storage (any unit per second), `memory_mib` its GPU memory.
    """

    writes: Values | None = None
    memory_mib: Values | None = None


def told_apart(labels: list[Label], positions: Positions, hints: Hints) -> list[Label]:
    """Return the labels with each dip named where the hints allow it.

    Labels count known samples; `positions` are their places in the series of the hints.
    """
    steady = np.concatenate(
        [np.zeros(0, np.int64)]
        + [positions[start:end] for start, end, kind in labels if kind is PhaseKind.STEADY]
    )
    writes, memory = _at(hints.writes, steady), _at(hints.memory_mib, steady)
    if not len(writes):
        return labels
    many = max(_WRITES_RISE * float(np.median(writes)), float(np.quantile(writes, 0.95)))

    def kind_of(dip: Positions) -> PhaseKind:
        written = _at(hints.writes, dip)
        if not len(written):
            return PhaseKind.DIP
        if float(written.mean()) > many:
            return PhaseKind.CHECKPOINT
        held = _at(hints.memory_mib, dip)
        if not len(held) or not len(memory):
            return PhaseKind.DIP
        usual = float(np.median(memory))
        moved = abs(float(np.median(held)) - usual)
        enough = max(_MEMORY_NOISES * noise_scale(memory), _MEMORY_SHARE * usual)
        return PhaseKind.EVALUATION if moved > enough else PhaseKind.DIP

    return [
        (start, end, kind_of(positions[start:end]) if kind is PhaseKind.DIP else kind)
        for start, end, kind in labels
    ]


def _at(series: Values | None, places: Positions) -> Values:
    """Return the known values of a series at the places; none where it is missing or shorter."""
    if series is None:
        return np.zeros(0)
    found = np.asarray(series, dtype=np.float64)[places[places < len(series)]]
    return np.asarray(found[np.isfinite(found)])
