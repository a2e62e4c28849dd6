"""The members of the mix, compiled: the forecast of each at one moment of a series.

A profile is the day's course (one value per slot of the day); "level plus damped seasonal" adds to
it today's departure from it, damped by how such departures have lasted.
"""

from typing import Any

import numpy as np

from data.base.compiled import inner, reordering

MEMBERS = ("naive", "half", "lds-median", "same-hour", "prophet-exact")
"""Last value; half of it and half level plus damped seasonal with a mean profile of 28 d; the same
with a median profile of 14 d; the median of the same slot of the day, 28 d; Prophet's optimum."""
BASELINE = 0
PROPHET = 4
"""Row that `forecasting.prophet.member` fills; this module leaves it unknown: a member that says
nothing has no weight."""
SEASONAL_NAIVE = len(MEMBERS)
"""Row of the same slot of the day before: a yardstick, never part of the mix."""
PROFILES = 3
_LAGS_H = np.array([1.0, 3.0, 6.0, 12.0, 24.0])
_LONG_DAYS = 28
_SHORT_DAYS = 14
_MIN_DAYS = 2


@inner
def sort(values: Any, count: int) -> None:
    """Sort the first `count` values in place (Shell 1959); none is NaN.

    numba's own `np.sort` and `np.median` take two CPU s each to compile.
    """
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, count):
            value, j = values[i], i - gap
            while j >= 0 and values[j] > value:
                values[j + gap] = values[j]
                j -= gap
            values[j + gap] = value
        gap //= 3


@inner
def select(values: Any, first: int, end: int, rank: int) -> Any:
    """Return the value at `rank` of sorted values[first:end]; smaller ones go before it.

    Hoare's selection by partitions of Lomuto's kind, in which no jump depends on a value: a
    processor guesses half of those wrong.
    """
    while end - first > 1:
        low, middle, high = values[first], values[(first + end) // 2], values[end - 1]
        pivot = max(min(low, middle), min(max(low, middle), high))
        begin = first
        for i in range(first, end):
            value = values[i]
            values[i] = values[begin]
            values[begin] = value
            begin += value < pivot
        if rank < begin:
            end = begin
        elif begin > first:
            first = begin
        else:  # none is smaller: those that are equal go first
            for i in range(first, end):
                value = values[i]
                values[i] = values[begin]
                values[begin] = value
                begin += value == pivot
            if rank < begin:
                break
            first = begin
    return values[rank]


@inner
def _median(values: Any, count: int) -> Any:
    """Return the median of the first `count` values, which it reorders."""
    middle = count // 2
    upper = select(values, 0, count, middle)
    return upper if count % 2 else 0.5 * (select(values, 0, middle, middle - 1) + upper)


@inner
def update_profiles(y: Any, origin: int, season: int, first: int, profiles: Any) -> None:
    """Bring `profiles` [PROFILES, season] up to `origin`: mean 28 d, median 28 d and 14 d.

    Only slots of the day in [first, origin) have new values; a slot seen on fewer than two days is
    NaN: one day has no daily course.
    """
    values, short = np.empty(_LONG_DAYS), np.empty(_LONG_DAYS)
    for slot in range(max(first, origin - season), origin):
        clock = slot % season
        count, recent, total = 0, 0, 0.0
        day = 0
        index = slot
        while index >= 0 and day < _LONG_DAYS:
            if not np.isnan(y[index]):
                values[count] = short[count] = y[index]
                total += y[index]
                count += 1
                if day < _SHORT_DAYS:
                    recent += 1
            index -= season
            day += 1
        if count >= _MIN_DAYS:
            profiles[0, clock] = total / count
            profiles[1, clock] = _median(values, count)
            if recent == count:
                profiles[2, clock] = profiles[1, clock]
            elif recent >= _MIN_DAYS:
                profiles[2, clock] = _median(short, recent)
            else:
                profiles[2, clock] = np.nan
        else:
            profiles[:, clock] = np.nan


@inner
def _smooth(profile: Any, filler: float, reach: int, out: Any) -> None:
    """Smooth the day's course by a triangle of `reach` slots to each side; unknown is `filler`."""
    season = len(profile)
    around = np.empty(season + 2 * reach - 2)
    clock = (1 - reach) % season
    for place in range(len(around)):
        around[place] = filler if np.isnan(profile[clock]) else profile[clock]
        clock = clock + 1 if clock + 1 < season else 0
    out[:] = 0.0
    weights = 0.0
    for step in range(2 * reach - 1):
        weight = float(reach - abs(step + 1 - reach))
        weights += weight
        shifted = around[step : step + season]  # so that the compiler sees no index below 0
        for slot in range(season):
            out[slot] += weight * shifted[slot]
    for slot in range(season):
        out[slot] /= weights


@inner
def _departures(z: Any, profile: Any, start: int, origin: int, step: int) -> Any:
    """Return each `step`-th slot in [start, origin) less the profile, NaN if unknown."""
    departures = np.empty(max(0, origin - start + step - 1) // step)
    clock = start % len(profile)
    for place in range(len(departures)):
        departures[place] = z[start + place * step] - profile[clock]
        clock += step
        if clock >= len(profile):
            clock -= len(profile)
    return departures


@reordering
def _pairs(late: Any, early: Any) -> Any:
    """Return (sum of products, of squares of `early`, number) of the pairs of known ones.

    No jump depends on a value.
    """
    product, square, count = 0.0, 0.0, 0.0
    for i in range(len(late)):
        a, b = late[i], early[i]
        both = not np.isnan(a * b)
        product += a * b if both else 0.0
        square += b * b if both else 0.0
        count += 1.0 if both else 0.0
    return product, square, count


@inner
def _lasting(z: Any, profile: Any, start: int, origin: int, hour: float) -> Any:
    """Return the share of a departure that lasts 1, 3, 6, 12, 24 h, 0..0.999.

    Of departures since `start`, in pairs an hour apart. A lag with fewer than eight pairs goes on
    as the shorter fell.
    """
    step = max(1, round(hour))
    early = _departures(z, profile, start, origin, step)
    shares = np.empty(len(_LAGS_H))
    before, before_lag = 0.999, 1.0
    for k in range(len(_LAGS_H)):
        lag = max(1, round(_LAGS_H[k] * hour))
        late = early[min(lag // step, len(early)) :]
        if lag % step:
            late = _departures(z, profile, start + lag, origin, step)
        product, square, pairs = _pairs(late, early)
        if pairs < 8:
            share = before ** (max(_LAGS_H[k], 1.0) / before_lag)
        else:
            share = 0.0 if square <= 0 else min(0.999, max(0.0, product / square))
            before, before_lag = share, max(_LAGS_H[k], 1.0)
        shares[k] = share
    return shares


@inner
def places_of(leads: Any, hour: float) -> Any:
    """Return the place of each lead among the lags: the lag before it, and the part of the way."""
    after, part = np.zeros(len(leads), np.int64), np.zeros(len(leads))
    logs = np.log(_LAGS_H)
    for i in range(len(leads)):
        hours = leads[i] / hour
        if _LAGS_H[0] < hours <= _LAGS_H[-1]:
            while hours > _LAGS_H[after[i] + 1]:
                after[i] += 1
            low, high = logs[after[i]], logs[after[i] + 1]
            part[i] = (np.log(hours) - low) / (high - low)
    return after, part


@inner
def _share_at(shares: Any, hours: float, after: int, part: float) -> Any:
    """Return the lasting share at a lead of `hours`: linear in log time, falling beyond a day."""
    if hours <= _LAGS_H[0]:
        return shares[0] ** max(hours, 0.0)
    if hours > _LAGS_H[-1]:
        return shares[-1] * np.exp(-(hours - _LAGS_H[-1]) / 48.0)
    return shares[after] + part * (shares[after + 1] - shares[after])


@inner
def _recent_departure(departures: Any, slots: int, otherwise: float) -> Any:
    """Return the mean departure of the last `slots` slots; `otherwise` when none is known."""
    total, count = 0.0, 0
    for t in range(max(0, len(departures) - slots), len(departures)):
        if not np.isnan(departures[t]):
            total += departures[t]
            count += 1
    return otherwise if count == 0 else total / count


@inner
def _damped(
    z: Any, profile: Any, last: int, origin: int, leads: Any, hour: float, places: Any, out: Any
) -> None:
    """Level plus damped seasonal: profile + lasting share x recent departure, into `out`."""
    season = len(profile)
    start = max(0, origin - _SHORT_DAYS * season)
    shares = _lasting(z, profile, start, origin, hour)
    newest = _departures(z, profile, max(start, origin - season), origin, 1)
    now = z[last] - profile[last % season]
    six = _recent_departure(newest, max(1, round(6 * hour)), now)
    day = _recent_departure(newest, season, now)
    for i in range(len(leads)):
        hours = leads[i] / hour
        level = now
        if hours > 12:
            level = 0.3 * now + 0.3 * six + 0.4 * day
        elif hours > 3:
            level = 0.5 * now + 0.5 * six
        share = _share_at(shares, hours, places[0][i], places[1][i])
        out[i] = profile[(origin + leads[i] - 1) % season] + share * level


@inner
def _known_median(y: Any, origin: int, season: int) -> Any:
    """Return the median of the known values of the last 28 d, hour by hour when there are many."""
    start = max(0, origin - _LONG_DAYS * season)
    step = max(1, (origin - start) // 256)
    values = np.empty((origin - start) // step + 1)
    count = 0
    for t in range(origin - 1, start - 1, -step):
        if not np.isnan(y[t]):
            values[count] = y[t]
            count += 1
    return np.nan if count == 0 else _median(values, count)


@inner
def member_points(
    y: Any,
    floor: float,
    last: int,
    origin: int,
    profiles: Any,
    leads: Any,
    hour: float,
    places: Any,
    out: Any,
) -> None:
    """Write the members' and seasonal naive's points at `origin` to `out` [members + 1, leads].

    y: the series, NaN unknown; `floor`: the least of points. `last` is the last known slot before
    `origin`; leads are slots ahead of it, 1 the next; `hour` is slots per hour. profiles as
    `update_profiles` leaves them, places of the leads.
    """
    season = profiles.shape[1]
    reach = max(1, (2 * season) // 24)
    center = y[last]
    if np.isnan(profiles).any():
        center = _known_median(y, origin, season)
        if np.isnan(center):
            center = y[last]
    work = np.empty(season)
    _smooth(profiles[0], center, reach, work)
    _damped(y, work, last, origin, leads, hour, places, out[1])
    for i in range(len(leads)):
        slot = (origin + leads[i] - 1) % season
        out[0, i] = y[last]
        out[1, i] = 0.5 * y[last] + 0.5 * out[1, i]
        same = profiles[1, slot]
        out[3, i] = center if np.isnan(same) else same
        back = origin + leads[i] - 1
        while back >= origin or (back >= 0 and np.isnan(y[back])):
            back -= season
        out[PROPHET, i] = np.nan
        out[SEASONAL_NAIVE, i] = y[last] if back < 0 else y[back]
    _smooth(profiles[2], center, reach, work)
    _damped(y, work, last, origin, leads, hour, places, out[2])
    for member in range(out.shape[0]):
        for i in range(len(leads)):
            if out[member, i] < floor:
                out[member, i] = floor
