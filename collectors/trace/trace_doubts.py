"""Doubts about a trace and its map: the units of values, and the names of boards."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from collectors.trace.cells import Floats
from collectors.trace.column_map import FACTORS, MappedColumn, TraceMap
from data.base.errors import SettingsError, scrub

_USUAL = {
    "memory_used_mib": (300.0, 1e6),
    "memory_total_mib": (2_000.0, 1e6),
    "power_watts": (3.0, 3_000.0),
    "power_limit_watts": (30.0, 3_000.0),
    "energy_joules": (3.0, 3_000.0),
}
"""Bounds of most values above 0 in our units; of counters, of their growth in W."""
_USUAL_RAW = {"ratio": (0.0, 1.005), "percent": (1.005, 100.5)}
"""Of utilization, in the unit itself: what is at most 1 is a ratio."""
_FEW, _MOST = 0.05, 0.5
_NEARLY_ALL = 0.9


@dataclass(slots=True)
class UnitTally:
    """The number of usual values above 0 of a column in each unit that it could have."""

    target: str
    mapped: MappedColumn
    positive: int = 0
    usual: dict[str, int] = field(default_factory=dict)

    def add(self, raw: Floats) -> None:
        """Count values as the file has them."""
        values = raw[np.isfinite(raw) & (raw > 0)]
        self.positive += len(values)
        for unit, factor in FACTORS[self.target].items():
            low, high = _USUAL_RAW.get(unit) or _USUAL[self.target]
            scaled = values if unit in _USUAL_RAW else values * factor
            inside = (scaled > low) & (scaled <= high)
            self.usual[unit] = self.usual.get(unit, 0) + int(inside.sum())

    def require_fit(self) -> None:
        """Refuse a unit that hardly any value fits, where another fits. Errors: SettingsError."""
        stated = self.mapped.unit
        if self.mapped.confirmed or not self.positive or not self._doubtful(stated):
            return
        least = _FEW if stated == "ratio" else _MOST
        others = {unit: n for unit, n in self.usual.items() if unit != stated}
        best = max(others, key=lambda unit: others[unit])
        if others[best] < least * self.positive:
            return
        low, high = _USUAL_RAW.get(best, (0.0, 0.0))
        share = others[best] / self.positive
        text = f"lie in {low:.0f}..{high:.0f}" if high else f"are usual ones in {best}"
        raise SettingsError(
            f"the column {self.mapped.column!r} ({self.target}): {100 * share:.1f} % of its values "
            f"above 0 {text}, and the map says {stated}",
            f'Write unit = "{best}", or, where {stated} is right, confirmed = true under '
            f"[columns.{self.target}].",
        )

    def _doubtful(self, stated: str) -> bool:
        needed = _NEARLY_ALL if stated == "ratio" else _FEW
        return self.usual[stated] < needed * self.positive


_READINGS = ["utilization_ratio", "power_watts", "memory_used_mib"]


@dataclass(slots=True)
class BoardTally:
    """At how many times a name of a board stands beside several indices or sets of readings.

    Then it names more than one board, and all but one would be lost without a word.
    """

    mapping: TraceMap
    moments: int = 0
    several: int = 0
    example: str = ""

    def add(self, frame: pd.DataFrame) -> None:
        """Count the times of a piece."""
        by = frame.groupby(["gpu_uuid", "node", "mig_instance", "sampled_at"], sort=False)
        if "gpu_index" in self.mapping.columns:
            several = by["gpu_index"].min() != by["gpu_index"].max()
        elif "gpu_uuid" in self.mapping.constants:
            several = (by[_READINGS].max() > by[_READINGS].min()).any(axis=1)
        else:
            return
        self.moments += len(several)
        self.several += int(several.sum())
        if several.any() and not self.example:
            self.example = str(several[several].index[0][0])

    def require_one(self) -> None:
        """Refuse names that stand for several boards. Errors: SettingsError."""
        if not self.several or self.several < _FEW * self.moments:
            return
        mapped = self.mapping.columns.get("gpu_uuid")
        what = f"the column {mapped.column!r}" if mapped else "the constant"
        counterpart = "gpu_index" if "gpu_index" in self.mapping.columns else "readings"
        raise SettingsError(
            f"{what} (gpu_uuid) names one board, {scrub(self.example, limit=60)!r}, where "
            f"{counterpart} differ at the same time, {self.several} of {self.moments} times",
            "Map gpu_uuid to the column that tells boards apart; or leave it out and map "
            "gpu_index: boards are then told apart by node and index.",
        )
