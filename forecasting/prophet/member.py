"""Prophet as a member of the mix: its exact optimum on the logarithm of hourly means.

On log1p Prophet's linear trend is a rate, its seasons are factors, and bursts weigh little; on the
plain values default Prophet loses to one-line rules on every set. Windows end at each origin and
span 2, 4, 7, 14, 21 or 28 d, the longest that its past fills, so that most share one Gram matrix.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data.units import SECONDS_PER_HOUR
from forecasting.demand_series import Values
from forecasting.prophet.batch import fit_batch

_WINDOW_DAYS = (2, 4, 7, 14, 21, 28)
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
    found = [np.full((len(moment.origins), moment.horizon), np.nan) for moment in moments]
    hourly = {
        index: _by_hour(moment)
        for index, moment in enumerate(moments)
        if moment.slot_seconds <= SECONDS_PER_HOUR and len(moment.origins)
    }
    for days in _WINDOW_DAYS:
        chosen = {
            index: origins
            for index, entry in hourly.items()
            if len(origins := np.flatnonzero(entry.windows == 24 * days))
        }
        if chosen:
            _fill(found, hourly, chosen, 24 * days)
    return found


def _fill(
    found: list[Values],
    hourly: Mapping[int, _Hourly],
    chosen: Mapping[int, npt.NDArray[np.intp]],
    length: int,
) -> None:
    """Fit the windows of `length` hours at the chosen origins at once and write their points."""
    begins = {index: hourly[index].ends[origins] - length for index, origins in chosen.items()}
    windows = np.concatenate(
        [
            np.lib.stride_tricks.sliding_window_view(hourly[index].rows, length)[begin]
            for index, begin in begins.items()
        ]
    )
    starts = np.concatenate([hourly[index].base + begin for index, begin in begins.items()])
    reach = max(int(hourly[index].ahead[origins].max()) for index, origins in chosen.items()) + 1
    fits = fit_batch(windows, SECONDS_PER_HOUR, starts * SECONDS_PER_HOUR)
    points = fits.predict(reach)
    logarithm = np.repeat(
        [hourly[index].logarithm for index in chosen], [len(entry) for entry in chosen.values()]
    )
    limits = np.log1p(_MAX_RISE * np.expm1(fits.survey.high[logarithm]))
    points[logarithm] = np.expm1(np.clip(points[logarithm], 0.0, limits[:, None]))
    row = 0
    for index, origins in chosen.items():
        own = points[row : row + len(origins)]
        found[index][origins] = np.take_along_axis(own, hourly[index].ahead[origins], axis=1)
        row += len(origins)


def _by_hour(moments: Moments) -> _Hourly:
    slots = np.arange(len(moments.y))
    base = moments.first_slot // SECONDS_PER_HOUR
    hours = (moments.first_slot + slots * moments.slot_seconds) // SECONDS_PER_HOUR - base
    means = _hourly_means(moments.y, hours)
    logarithm = not (moments.y < 0).any()
    ends = (moments.first_slot + moments.origins * moments.slot_seconds) // SECONDS_PER_HOUR - base
    targets = moments.origins[:, None] + np.arange(moments.horizon)[None, :]
    hours_of = (moments.first_slot + targets * moments.slot_seconds) // SECONDS_PER_HOUR - base
    return _Hourly(
        rows=np.log1p(means) if logarithm else means,
        logarithm=logarithm,
        base=base,
        ends=ends,
        windows=_windows(means, ends),
        ahead=np.maximum(hours_of - ends[:, None], 0),
    )


def _windows(rows: Values, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return longest window in hours that fits before each end, 0 when half of it is unknown."""
    lengths = np.array([0, *(24 * days for days in _WINDOW_DAYS)])
    longest = lengths[np.searchsorted(lengths, ends, side="right") - 1]
    known = np.concatenate([[0], np.cumsum(np.isfinite(rows))])
    inside = known[ends] - known[ends - longest]
    return np.asarray(np.where(inside >= _MIN_KNOWN_SHARE * longest, longest, 0))


def _hourly_means(y: Values, hours: npt.NDArray[np.int64]) -> Values:
    known = np.isfinite(y)
    size = int(hours[-1]) + 1
    count = np.bincount(hours, weights=known, minlength=size)
    total = np.bincount(hours, weights=np.where(known, y, 0.0), minlength=size)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))
