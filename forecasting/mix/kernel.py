"""The mix of members of one series, compiled: weights, bands and backtest, all from the past only.

At moments ("origins") a stride apart the members are asked what they would have said. Per bucket of
lead times the weights come from their recent losses there, and the band from the residuals of the
weighted sum. The same is replayed at earlier origins: what those bands missed widens today's, and
is the backtest.
"""

from typing import Any

import numpy as np

from data.base.compiled import copy_into, inner, outer
from forecasting.mix.members_kernel import (
    BASELINE,
    MEMBERS,
    PROFILES,
    SEASONAL_NAIVE,
    member_points,
    places_of,
    select,
    sort,
    update_profiles,
)

LEVELS = np.array([0.05, 0.10, 0.50, 0.90, 0.95])
_ALL = np.array([2, 3, 4, 1, 0])
_BAND_LEVELS = np.array([2, 3, 1])
"""Places among LEVELS: of a band, and of what is judged of it."""
_WEIGHT_SHARPNESS = 15.0
"""Sharpness of the weights: loss one tenth of naive's worse costs a factor exp(-1.5)."""
_NAIVE_SHARE = 0.1
_DISCOUNT_PER_DAY = 0.95
_WEIGHT_DAYS = 28.0
_BAND_DAYS = 60.0
_MIN_ORIGINS = 4
_TARGET = 0.80
"""Share that q10..q90 steers for."""
_GAIN_PER_DAY = 0.3
_KEEP_PER_DAY = 0.98
_NARROWEST, _WIDEST = -0.5, 1.4
"""Limits of the log of the width factor."""
_EDGE = 1e-9
_ZERO: Any = np.int64(0)
"""A number that is written in a call is a type of its own to numba, compiled for it."""
MEASURES = 5
"""Per bucket of the backtest: pinball of the mix, of naive, of seasonal naive; share inside
q10..q90; origins tested."""


@inner
def _quantiles(values: Any, count: int, levels: Any, out: Any) -> None:
    """Write those quantiles of LEVELS of the first `count` values, linear between ranks.

    Each splits the values, and the next one lies in the smaller part: the median is first.
    """
    below, above = 0, count
    for k in levels:
        place = LEVELS[k] * (count - 1)
        rank = int(place)
        first, end = (below, count) if LEVELS[k] >= 0.5 else (0, above)
        low = select(values, first, end, rank)
        if LEVELS[k] >= 0.5:
            below = rank
        if LEVELS[k] <= 0.5:
            above = rank + 1
        if place > rank:
            end = end if rank + 1 < end else count
            following = values[rank + 1]  # none of these is below the one at the rank
            for i in range(rank + 2, end):
                following = min(following, values[i])
            low += (place - rank) * (following - low)
        out[k] = low


@inner
def _weigh(losses: Any, first: int, last: int, by_age: Any, out: Any) -> None:
    """Write the members' weights from `losses` [origins, members] of origins first..last - 1.

    `by_age` is what an origin counts so many origins later.

    Softmax of the discounted mean loss in units of naive's, then a share to naive (Hedge: Cesa-
    Bianchi and Lugosi 2006, with a fixed share). Origins without a loss are left out, and members
    that said nothing at one of the others.
    """
    members = len(MEMBERS)
    total = np.zeros(members)
    weights = 0.0
    for origin in range(first, last):
        if np.isnan(losses[origin, BASELINE]):
            continue
        weight = by_age[last - 1 - origin]
        weights += weight
        for member in range(members):
            total[member] += weight * losses[origin, member]
    out[:] = 0.0
    if weights == 0.0:
        out[BASELINE] = 1.0
        return
    scale = max(total[BASELINE], 1e-12)
    best = np.nanmin(total)
    for member in range(members):
        if not np.isnan(total[member]):
            out[member] = np.exp(-_WEIGHT_SHARPNESS * (total[member] - best) / scale)
    out *= (1.0 - _NAIVE_SHARE) / out.sum()
    out[BASELINE] += _NAIVE_SHARE


@inner
def _residuals(truth: Any, points: Any, weights: Any, first: int, last: int, work: Any) -> int:
    """Write truth minus weighted points of those origins into `work`; return their number.

    truth [origins, probes], points [rows, origins, probes]; unknown truths are left out.
    """
    begin, size = first * truth.shape[1], (last - first) * truth.shape[1]
    truths = truth.reshape(-1)[begin : begin + size]
    for i in range(size):
        work[i] = truths[i]
    for row in np.flatnonzero(weights):
        share, forecast = weights[row], points[row].reshape(-1)[begin : begin + size]
        for i in range(size):
            work[i] -= share * forecast[i]
    count = 0
    for i in range(size):
        work[count] = work[i]
        count += not np.isnan(truths[i])
    return count


@inner
def _merge(values: Any, count: int, ascending: Any, size: int) -> int:
    """Merge the first `count` values, which it sorts, into `size` ascending ones; the new size."""
    sort(values, count)
    place, last = size + count, size - 1
    for i in range(count - 1, -1, -1):
        while last >= 0 and ascending[last] > values[i]:
            place -= 1
            ascending[place] = ascending[last]
            last -= 1
        place -= 1
        ascending[place] = values[i]
    return size + count


@inner
def _at_ranks(ascending: Any, count: int, out: Any) -> None:
    """Write the judged quantiles of `count` ascending values, linear between ranks."""
    for k in _BAND_LEVELS:
        place = LEVELS[k] * (count - 1)
        rank = int(place)
        out[k] = ascending[rank]
        if place > rank:
            out[k] += (place - rank) * (ascending[rank + 1] - ascending[rank])


@inner
def _pinball(truth: float, low: float, middle: float, high: float) -> float:
    """Return the mean pinball loss over q10, q50, q90."""
    total = 0.0
    for level, value in ((0.1, low), (0.5, middle), (0.9, high)):
        error = truth - value
        total += max(level * error, (level - 1.0) * error)
    return total / 3.0


@inner
def _judge(truth: Any, points: Any, weights: Any, origin: int, band: Any, wide: float) -> Any:
    """Return (pinball, share inside, known) of one origin: band [5] around the weighted points."""
    loss, inside, count = 0.0, 0, 0
    for probe in range(truth.shape[1]):
        value = truth[origin, probe]
        if np.isnan(value):
            continue
        point = 0.0
        for row in range(len(weights)):
            if weights[row]:  # a row without weight may be unknown
                point += weights[row] * points[row, origin, probe]
        middle = point + band[2]
        low = middle + wide * (band[1] - band[2])
        high = middle + wide * (band[3] - band[2])
        loss += _pinball(value, low, middle, high)
        edge = _EDGE * max(1.0, abs(value))
        inside += low - edge <= value <= high + edge
        count += 1
    return (loss / count, inside / count, count) if count else (np.nan, np.nan, 0)


@outer
def collect_points(
    y: Any, floor: float, origins: Any, probes: Any, season: int, hour: float
) -> Any:
    """Return (truth [origins, probes], points [members + 1, origins, probes]) of the past.

    origins: ascending numbers of slots already known at each moment; probes: leads in slots.
    """
    rows = SEASONAL_NAIVE + 1
    points = np.empty((rows, len(origins), len(probes)))
    truth = np.full((len(origins), len(probes)), np.nan)
    profiles = np.full((PROFILES, season), np.nan)
    out = np.empty((rows, len(probes)))
    places = places_of(probes, hour)
    done, last = _ZERO, _ZERO
    for k in range(len(origins)):
        origin = origins[k]
        update_profiles(y, origin, season, done, profiles)
        for t in range(done, origin):
            if not np.isnan(y[t]):
                last = t
        done = origin
        member_points(y, floor, last, origin, profiles, probes, hour, places, out)
        copy_into(points[:, k], out)
        for i in range(len(probes)):
            slot = origin + probes[i] - 1
            if slot < len(y):
                truth[k, i] = y[slot]
    return truth, points


@outer
def latest_points(y: Any, floor: float, season: int, hour: float, ahead: Any) -> Any:
    """Return points [members + 1, leads] after the last slot, for leads `ahead` in slots."""
    profiles = np.full((PROFILES, season), np.nan)
    update_profiles(y, len(y), season, _ZERO, profiles)
    last = len(y) - 1
    while np.isnan(y[last]):
        last -= 1
    out = np.empty((SEASONAL_NAIVE + 1, len(ahead)))
    places = places_of(ahead, hour)
    member_points(y, floor, last, len(y), profiles, ahead, hour, places, out)
    return out


@inner
def _mean_losses(truth: Any, points: Any) -> Any:
    """Return mean absolute error [origins, members] over the probes, NaN when unknown."""
    members = len(MEMBERS)
    losses = np.full((truth.shape[0], members), np.nan)
    for origin in range(truth.shape[0]):
        count = 0
        for probe in range(truth.shape[1]):
            if np.isnan(truth[origin, probe]):
                continue
            if count == 0:
                losses[origin] = 0.0
            count += 1
            for member in range(members):
                losses[origin, member] += abs(truth[origin, probe] - points[member, origin, probe])
        for member in range(members):
            if count:
                losses[origin, member] /= count
    return losses


@inner
def _fit(
    truth: Any,
    points: Any,
    losses: Any,
    until: int,
    per_day: float,
    by_age: Any,
    levels: Any,
    weights: Any,
    band: Any,
    work: Any,
) -> bool:
    """Write weights [rows] and those levels of the band [5] of a bucket; False: too few.

    From origins before `until`.
    """
    weights[:] = 0.0
    first = max(0, until - int(_BAND_DAYS * per_day))
    judged = 0
    for origin in range(first, until):
        judged += not np.isnan(losses[origin, BASELINE])
    if judged < _MIN_ORIGINS:
        weights[BASELINE] = 1.0
        return False
    recent = max(0, until - int(_WEIGHT_DAYS * per_day))
    _weigh(losses, recent, until, by_age, weights[: len(MEMBERS)])
    count = _residuals(truth, points, weights, first, until, work)
    _quantiles(work, count, levels, band)
    return True


@outer
def mix_bucket(
    truth: Any,
    points: Any,
    probes: Any,
    complete: int,
    per_day: float,
    replays: int,
    judged: bool,
) -> Any:
    """Return (weights [rows], band [5], backtest [MEASURES], enough) of one bucket of lead times.

    `probes` is the bucket's range of columns; `complete` is the number of leading origins whose
    truths of this bucket are past; an origin k of a replay may use those before
    k - (origins - complete) only. `replays` earlier moments are replayed, spread evenly. Not
    `judged`: without the backtest, which nothing else follows from.
    """
    rows = points.shape[0]
    truth = truth[:, probes[0] : probes[1]].copy()
    points = points[:, :, probes[0] : probes[1]].copy()
    losses = _mean_losses(truth, points)
    weights, band = np.zeros(rows), np.zeros(len(LEVELS))
    work = np.empty(truth.size + 1)
    # Naive and seasonal naive do not change with what is learned, so that what they missed is kept
    # sorted from one replay to the next. Their past is at most `_BAND_DAYS` long as it is.
    baselines = np.zeros((2, rows))
    baselines[0, BASELINE], baselines[1, SEASONAL_NAIVE] = 1.0, 1.0
    ascending, sizes, since = np.empty((2, truth.size + 1)), np.zeros(2, np.int64), _ZERO
    by_age = np.empty(truth.shape[0])
    for age in range(len(by_age)):
        by_age[age] = _DISCOUNT_PER_DAY ** (age / per_day)
    delay = truth.shape[0] - complete
    backtest = np.zeros(MEASURES)
    other = np.zeros(len(LEVELS))
    log_width = 0.0
    step = max(1, int(np.ceil((complete - delay - _MIN_ORIGINS) / max(1, replays))))
    step_days = step / per_day
    gain = _GAIN_PER_DAY * min(1.0, step_days) / max(1.0, delay / per_day)
    keep = _KEEP_PER_DAY ** min(1.0, step_days)
    first = complete - 1 - ((complete - 1 - delay - _MIN_ORIGINS) // step) * step
    for origin in range(max(first, delay + _MIN_ORIGINS), complete, step):
        past = origin - delay
        if np.isnan(losses[origin, BASELINE]):
            continue
        if not _fit(
            truth, points, losses, past, per_day, by_age, _BAND_LEVELS, weights, band, work
        ):
            continue
        wide = np.exp(log_width)
        loss, inside, _known = _judge(truth, points, weights, origin, band, wide)
        log_width = keep * log_width + gain * (_TARGET - inside)
        log_width = min(_WIDEST, max(_NARROWEST, log_width))
        if not judged:
            continue
        backtest[0] += loss
        backtest[3] += inside
        for baseline in range(2):
            weight = baselines[baseline]
            count = _residuals(truth, points, weight, since, past, work)
            sizes[baseline] = _merge(work, count, ascending[baseline], sizes[baseline])
            _at_ranks(ascending[baseline], sizes[baseline], other)
            backtest[1 + baseline] += _judge(truth, points, weight, origin, other, 1.0)[0]
        since = past
        backtest[4] += 1.0
    if backtest[4] > 0:
        backtest[:4] /= backtest[4]
    enough = _fit(truth, points, losses, complete, per_day, by_age, _ALL, weights, band, work)
    wide = np.exp(log_width)
    for level in (0, 1, 3, 4):
        band[level] = band[2] + wide * (band[level] - band[2])
    return weights, band, backtest, enough
