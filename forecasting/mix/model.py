"""The forecast in use: a soft mix of cheap members with bands calibrated on its own past.

Per bucket of lead times (up to 1, 3, 6, 12, 24 h, 2, 4, 7, 14, 30 d) the members are weighted by
their recent losses, shrunk towards naive; the band is the spread of the mix's own residuals there,
widened where it lately missed. The next hours are anchored on the newest reading.
Method: docs/internals/forecasting.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from data.base.errors import NotEnoughHistoryError
from data.base.units import SECONDS_PER_HOUR
from data.records.forecasts import LeadAccuracy, LeadWeights
from forecasting.mix.anchor_kernel import LEVELS, anchored
from forecasting.mix.bands_kernel import add_prophet_points, all_quantiles, banded
from forecasting.mix.kernel import collect_points, latest_points, mix_bucket
from forecasting.mix.members_kernel import MEMBERS
from forecasting.models.demand_model import Quantiles
from forecasting.prophet.member import Moments, prophet_points
from forecasting.series.demand_series import DemandSeries, Values

MIN_KNOWN = 4
_BUCKET_ENDS_HOURS = (1, 3, 6, 12, 24, 48, 96, 168, 336, 720)
_LAST_BUCKET_SHARE = 0.75
"""A bucket that ends beyond this share of the horizon is one with the last."""
_MAX_PROBES = 6
_STRIDE_HOURS = 6.0
_MIN_STRIDES = 64
_MAX_ORIGIN_DAYS = 60.0
_REPLAYS = 28
_MIN_PROPHET_SHARE = 0.125
"""Prophet counts from when it had a word at more than this share of the moments: before, it would
take naive's weight without having been judged."""
_NAMES = tuple(f"q{round(100 * level):02d}" for level in LEVELS)
_FITTED_HOURS = 3.0
_UNTIL_HOURS = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MixForecast:
    """Quantiles of the next slots and their origin.

    `calibrated_hours` is the lead up to which bands rest on residuals of that lead; beyond they
    grow as a random walk's.
    """

    quantiles: Quantiles
    weights: tuple[LeadWeights, ...]
    backtest: tuple[LeadAccuracy, ...]
    calibrated_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bucket:
    """Leads first..last in slots, and its range of columns among the probes."""

    first: int
    last: int
    columns: tuple[int, int]

    @property
    def middle(self) -> float:
        return 0.5 * (self.first + self.last)


@dataclass(frozen=True, slots=True)
class MixModel:
    """The mix as a model among others; see DemandModel."""

    name: str = "mix"

    def forecast(self, series: DemandSeries, horizon: int) -> Quantiles:
        """Return the quantiles; see DemandModel. Errors: NotEnoughHistoryError below four slots."""
        return mix(series, horizon).quantiles


def mix(series: DemandSeries, horizon: int) -> MixForecast:
    """Return the mixed forecast of the next `horizon` slots and its evidence.

    Errors: NotEnoughHistoryError with fewer than MIN_KNOWN known slots.
    """
    return mix_many([series], [horizon])[0]


def mix_many(
    series: Sequence[DemandSeries], horizons: Sequence[int], *, judged: bool = True
) -> list[MixForecast]:
    """Return the mixed forecasts of many series, each the same as alone; one batch for Prophet.

    Not `judged`: without a backtest, where nobody asks for it.
    Errors: NotEnoughHistoryError when one has fewer than MIN_KNOWN known slots.
    """
    ready = [_ready(entry, horizon) for entry, horizon in zip(series, horizons, strict=True)]
    forecasts = prophet_points(
        [
            Moments(
                y=flag.y,
                first_slot=flag.first_slot,
                slot_seconds=flag.series.slot_seconds,
                origins=np.append(flag.origins, len(flag.y)),
                horizon=flag.horizon,
            )
            for flag in ready
        ]
    )
    return [_mixed(flag, points, judged) for flag, points in zip(ready, forecasts, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PreparedSeries:
    """A series from its first known slot on, with the past moments of its backtest."""

    series: DemandSeries
    y: Values
    first_slot: int
    horizon: int
    hour: float
    stride: int
    per_day: float
    origins: npt.NDArray[np.int64]


def _ready(series: DemandSeries, horizon: int) -> _PreparedSeries:
    slots = np.flatnonzero(series.known)
    if len(slots) < MIN_KNOWN:
        raise NotEnoughHistoryError(
            f"the mix needs {MIN_KNOWN} known slots, the series has {len(slots)}"
        )
    start = int(slots[0])
    y = np.ascontiguousarray(series.values[start:])
    hour = SECONDS_PER_HOUR / series.slot_seconds
    stride = max(1, min(round(_STRIDE_HOURS * hour), len(y) // _MIN_STRIDES))
    per_day = max(1, series.slots_per_day) / stride
    return _PreparedSeries(
        series=series,
        y=y,
        first_slot=series.first_slot + start * series.slot_seconds,
        horizon=horizon,
        hour=hour,
        stride=stride,
        per_day=per_day,
        origins=_origins(len(y), stride, round(per_day * _MAX_ORIGIN_DAYS)),
    )


def _mixed(ready: _PreparedSeries, forecasts: Values, judged: bool) -> MixForecast:
    """Return the mix; `forecasts` are Prophet's at each origin and now [origins + 1, horizon]."""
    y, hour = ready.y, ready.hour
    length, season = len(y), max(1, ready.series.slots_per_day)
    floor = -np.inf if (y < 0).any() else 0.0
    buckets, probes = _buckets(ready.horizon, hour, ready.stride)
    truth, points = collect_points(y, floor, ready.origins, probes, season, hour)
    now = latest_points(y, floor, season, hour, np.arange(1, ready.horizon + 1))
    add_prophet_points(forecasts, probes, _MIN_PROPHET_SHARE, points, now)
    members = len(MEMBERS)
    said_now = np.nan_to_num(now[:members])
    point = np.empty(ready.horizon)
    bands, weights, tested = [], [], []
    calibrated = 0.0
    previous: tuple[Values, Values, float] | None = None
    for bucket in buckets:
        complete = int(ready.origins.searchsorted(length - bucket.last, side="right"))
        share, band, figures, enough = mix_bucket(
            truth, points, np.array(bucket.columns), complete, ready.per_day, _REPLAYS, judged
        )
        if enough:
            calibrated = bucket.last / hour
            previous = (share, band, bucket.middle)
        elif previous is not None:
            share, spread, reach = previous
            band = spread[2] + (spread - spread[2]) * np.sqrt(bucket.middle / reach)
        else:
            band = _first_band(y, bucket.middle)
        bands.append(band)
        shares = zip(MEMBERS, share[:members].tolist(), strict=True)
        weights.append(LeadWeights(until_hours=bucket.last / hour, weights=tuple(shares)))
        inside = slice(bucket.first - 1, bucket.last)
        point[inside] = share[:members] @ said_now[:, inside]
        if figures[4] > 0:
            loss, naive, seasonal, inside_ratio, origins = figures.tolist()
            tested.append(
                LeadAccuracy(
                    until_hours=bucket.last / hour,
                    loss=loss,
                    naive_loss=naive,
                    seasonal_naive_loss=seasonal,
                    coverage_ratio=inside_ratio,
                    origins=int(origins),
                )
            )
    middles, series = np.array([bucket.middle for bucket in buckets]), ready.series
    mixed = banded(point, middles, np.array(bands), series.lower, series.upper)
    return MixForecast(
        quantiles=with_short_leads(series, y, mixed),
        weights=tuple(weights),
        backtest=tuple(tested),
        calibrated_hours=calibrated,
    )


@lru_cache(maxsize=64)
def _buckets(
    horizon: int, hour: float, stride: int
) -> tuple[tuple[_Bucket, ...], npt.NDArray[np.int64]]:
    """Return the buckets up to the horizon and the leads (slots) at which they are judged."""
    ends = {max(1, round(end * hour)) for end in _BUCKET_ENDS_HOURS}
    ends = {end for end in ends if end <= _LAST_BUCKET_SHARE * horizon} | {horizon}
    buckets: list[_Bucket] = []
    probes: list[int] = []
    first = 1
    for last in sorted(ends):
        count = min(_MAX_PROBES, last - first + 1)
        edges = np.linspace(first - 1, last, count + 1).round().astype(np.int64)
        leads = _spread(edges, stride)
        columns = (len(probes), len(probes) + len(leads))
        probes.extend(leads)
        buckets.append(_Bucket(first=first, last=last, columns=columns))
        first = last + 1
    return tuple(buckets), np.array(probes, dtype=np.int64)


def _spread(edges: npt.NDArray[np.int64], stride: int) -> list[int]:
    """Return a lead of each range (edge, next edge], at all times of the day.

    Origins lie `stride` slots apart, so leads that are alike modulo the stride look at the same
    times of every day: a job of other hours would never be seen. Each lead is the one furthest from
    those before it modulo the stride, the longest of several.
    """
    chosen_leads: list[int] = []
    for first, last in pairwise(edges):
        leads = np.arange(last, first, -1)
        apart = np.abs(leads[:, None] - np.array(chosen_leads)) % stride
        nearest = np.minimum(apart, stride - apart).min(axis=1, initial=stride)
        chosen_leads.append(int(leads[np.argmax(nearest)]))
    return chosen_leads


def _origins(length: int, stride: int, most: int) -> npt.NDArray[np.int64]:
    """Return past moments as numbers of slots known then, the newest one stride ago, ascending."""
    origins = np.arange(length - stride, max(0, length - stride * (most + 1)), -stride)
    return np.ascontiguousarray(origins[::-1]).astype(np.int64)


def _first_band(y: Values, lead: float) -> Values:
    """Return a band from changes between neighbouring slots, grown as a random walk's."""
    changes = np.diff(y[np.isfinite(y)])
    low, high = np.quantile(changes, [0.1, 0.9]) if len(changes) else (0.0, 0.0)
    low, high = min(low, 0.0), max(high, 0.0)
    return np.asarray(lead**0.5 * np.array([1.28 * low, low, 0.0, high, 1.28 * high]))


def with_short_leads(series: DemandSeries, y: Values, mixed: Values) -> Quantiles:
    """Return the mix with quartiles, and its first hours from `y`, the series from its first slot.

    `mixed` are q05, q10, q50, q90 and q95 by slot [5, slots]. Up to 3 h the short leads hold, up to
    6 h they fade into the mix. Where little is known or the newest slot is not, the mix stands.
    Lines of every quantile are fitted at one slot, 1 h and 3 h and are straight between.
    """
    hour = SECONDS_PER_HOUR / series.slot_seconds
    leads = _leads(hour)
    short = anchored(y, leads, max(1, series.slots_per_day))
    if not (finite := np.isfinite(short[0])).all():
        leads, short = leads[finite], short[:, finite]
    until, fades = _UNTIL_HOURS * hour, (_UNTIL_HOURS - _FITTED_HOURS) * hour
    rows = all_quantiles(mixed, leads, short, until, fades, series.lower, series.upper)
    return Quantiles(**dict(zip(_NAMES, rows, strict=True)))


@lru_cache(maxsize=64)
def _leads(hour: float) -> npt.NDArray[np.int64]:
    """Return the leads in slots at which lines are fitted."""
    return np.array(sorted({1, max(1, round(hour)), max(1, round(_FITTED_HOURS * hour))}))
