"""One job's history of one quantity on a regular grid of slots, gaps kept as unknown."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from data.records.forecasts import Quantity

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandSeries:
    """`values[i]` belongs to the slot starting at `first_slot + i * slot_seconds` (s, epoch).

    NaN is unknown. `lower` and `upper` bound what the quantity can be.
    """

    quantity: Quantity
    first_slot: int
    slot_seconds: int
    values: Values
    lower: float
    upper: float

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Which slots have a value."""
        return np.asarray(np.isfinite(self.values))

    @property
    def slots_per_day(self) -> int:
        """Slots in 24 h."""
        return 86_400 // self.slot_seconds

    def head(self, length: int) -> "DemandSeries":
        """Give the first slots only."""
        return DemandSeries(
            quantity=self.quantity,
            first_slot=self.first_slot,
            slot_seconds=self.slot_seconds,
            values=self.values[:length],
            lower=self.lower,
            upper=self.upper,
        )


def regular_series(
    rows: pd.DataFrame, quantity: Quantity, *, slot_seconds: int, upper: float
) -> DemandSeries:
    """Give the series of one job's history rows, from its first to its last slot.

    Values below 0 or above `upper` are clipped; not-finite ones are unknown.
    """
    starts = (
        rows["slot_start"].astype("datetime64[us, UTC]").astype("int64").to_numpy() // 1_000_000
    )
    first = int(starts.min())
    values = np.full((int(starts.max()) - first) // slot_seconds + 1, np.nan)
    values[(starts - first) // slot_seconds] = rows[str(quantity)].to_numpy(dtype=float)
    values = np.where(np.isfinite(values), values, np.nan)
    return DemandSeries(
        quantity=quantity,
        first_slot=first,
        slot_seconds=slot_seconds,
        values=np.clip(values, 0.0, upper),
        lower=0.0,
        upper=upper,
    )
