"""The history of one quantity of a job or group on a regular grid of slots; gaps stay unknown."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from data.records.forecasts import Quantity

Values = npt.NDArray[np.float64]
_OUTLIER_FACTOR = 5.0
_MAX_OUTLIER_SHARE = 0.01
_SATURATION = 0.98


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandSeries:
    """`values[i]` belongs to the slot starting at `first_slot + i * slot_seconds` (s, epoch).

    NaN is unknown. `lower` and `upper` bound what the quantity can be. `winsorised` counts slots
    cut down as outliers; `censored` those at 98 % of `upper` or more: wanted may have been more.
    """

    quantity: Quantity
    first_slot: int
    slot_seconds: int
    values: Values
    lower: float
    upper: float
    winsorised: int = 0
    censored: int = 0

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """A mask of the slots with a value."""
        return np.asarray(np.isfinite(self.values))

    @property
    def slots_per_day(self) -> int:
        """Slots in 24 h."""
        return 86_400 // self.slot_seconds

    def head(self, length: int) -> "DemandSeries":
        """Return the first slots only."""
        return replace(self, values=self.values[:length])


def regular_series(
    starts: npt.NDArray[np.int64],
    amounts: Values,
    quantity: Quantity,
    *,
    slot_seconds: int,
    upper: float,
) -> DemandSeries:
    """Return the series of amounts of the slots that start then (s, epoch), from first to last.

    Values outside 0..upper are clipped; not-finite ones are unknown. Where nothing bounds the
    quantity, lone outliers are cut down, see `winsorised`.
    """
    first = int(starts.min())
    values = np.full((int(starts.max()) - first) // slot_seconds + 1, np.nan)
    values[(starts - first) // slot_seconds] = amounts
    values = np.where(np.isfinite(values), values, np.nan)
    values = np.clip(values, 0.0, upper)
    cut = 0
    if not np.isfinite(upper):
        values, cut = winsorised(values)
    return DemandSeries(
        quantity=quantity,
        first_slot=first,
        slot_seconds=slot_seconds,
        values=values,
        lower=0.0,
        upper=upper,
        winsorised=cut,
        censored=int((values >= _SATURATION * upper).sum()) if np.isfinite(upper) else 0,
    )


def winsorised(values: Values) -> tuple[Values, int]:
    """Cut values above five times the 99th percentile down to it; return them and their number.

    When more than 1 % of the known slots lie above, they are no outliers and stay.
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return values, 0
    limit = _OUTLIER_FACTOR * float(np.quantile(finite, 1 - _MAX_OUTLIER_SHARE, method="lower"))
    above = np.asarray(values > limit)
    if limit <= 0 or not above.any():
        return values, 0
    return np.where(above, limit, values), int(above.sum())
