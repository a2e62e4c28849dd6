"""Prophet as a member of the mix: its exact optimum on the logarithm of hourly means.

On log1p Prophet's linear trend is a rate, its seasons are factors, and bursts weigh little; on the
plain values default Prophet loses to one-line rules on every set. Windows end at each origin and
span 2, 4, 7, 14, 21 or 28 d, the longest that its past fills, so that most share one Gram matrix.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data.base.units import SECONDS_PER_HOUR
from forecasting.prophet.batch import fit_batch
from forecasting.prophet.windows_kernel import by_hour, cut_windows, longest_windows, put_points
from forecasting.series.demand_series import Values

_WINDOW_HOURS = 24 * np.array([2, 4, 7, 14, 21, 28])
_MAX_RISE = 2.0
"""Points are cut at twice the largest value of their window: a rate of growth has no end."""
_MIN_KNOWN_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """A series and the moments at which Prophet is asked for its next `horizon` slots.

    y: values from `first_slot` (s, epoch) on, NaN unknown; origins: slots known at each moment.
    """

    y: Values
    first_slot: int
    slot_seconds: int
    origins: npt.NDArray[np.int64]
    horizon: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hourly:
    """Moments by the hour: `rows` are fitted, each window ends before its entry of `ends`.

    `windows` is its length in hours, 0 where too little is known; `ahead` [origins, horizon] is
    which hour after the window a slot lies in; `base` the hour of the epoch at which rows begin.
    """

    rows: Values
    logarithm: bool
    base: int
    ends: npt.NDArray[np.int64]
    windows: npt.NDArray[np.int64]
    ahead: npt.NDArray[np.int64]


def prophet_points(moments: Sequence[Moments]) -> list[Values]:
    """Return per series what Prophet would have said [origins, horizon]; NaN if data are too few.

    All windows of one length are fitted in one batch, whichever series they are of. Series below
    zero are fitted as they are. Slots longer than an hour are not forecast: the daily course,
    Prophet's strength here, is gone.
    """
    points = [np.full((len(moment.origins), moment.horizon), np.nan) for moment in moments]
    hourly = {
        index: _by_hour(moment)
        for index, moment in enumerate(moments)
        if moment.slot_seconds <= SECONDS_PER_HOUR and len(moment.origins)
    }
    for length in _WINDOW_HOURS.tolist():
        places = {
            index: origins
            for index, entry in hourly.items()
            if len(origins := np.flatnonzero(entry.windows == length))
        }
        if places:
            _fill(points, hourly, places, length)
    return points


def _fill(
    out: list[Values],
    hourly: Mapping[int, _Hourly],
    places: Mapping[int, npt.NDArray[np.intp]],
    length: int,
) -> None:
    """Fit the windows of `length` hours at the chosen origins at once and write their points."""
    begins = {index: hourly[index].ends[origins] - length for index, origins in places.items()}
    windows = np.empty((sum(map(len, begins.values())), length))
    row = 0
    for index, begin in begins.items():
        cut_windows(hourly[index].rows, begin, windows[row : row + len(begin)])
        row += len(begin)
    starts = np.concatenate([hourly[index].base + begin for index, begin in begins.items()])
    reach = max(int(hourly[index].ahead[origins].max()) for index, origins in places.items()) + 1
    fits = fit_batch(windows, SECONDS_PER_HOUR, starts * SECONDS_PER_HOUR)
    points = fits.predict(reach)
    logarithm = np.repeat(
        [hourly[index].logarithm for index in places], [len(entry) for entry in places.values()]
    )
    limits = np.log1p(_MAX_RISE * np.expm1(fits.survey.high[logarithm]))
    points[logarithm] = np.expm1(np.clip(points[logarithm], 0.0, limits[:, None]))
    row = 0
    for index, origins in places.items():
        part = points[row : row + len(origins)]
        put_points(part, origins, hourly[index].ahead, out[index])
        row += len(origins)


def _by_hour(moments: Moments) -> _Hourly:
    base = moments.first_slot // SECONDS_PER_HOUR
    begin = moments.first_slot - base * SECONDS_PER_HOUR
    means, ends, ahead = by_hour(
        moments.y, moments.origins, moments.horizon, begin, moments.slot_seconds
    )
    logarithm = not (moments.y < 0).any()
    return _Hourly(
        rows=np.log1p(means) if logarithm else means,
        logarithm=logarithm,
        base=base,
        ends=ends,
        windows=longest_windows(means, ends, _WINDOW_HOURS, _MIN_KNOWN_SHARE),
        ahead=ahead,
    )
