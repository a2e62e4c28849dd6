"""The rules that a replay sets side by side: the peers as published, then ours."""

from dataclasses import dataclass

import numpy as np

from benchmarks.rightsizing.charges import UnitCharges
from benchmarks.rightsizing.decaying_histogram import DecayingHistogram
from benchmarks.rightsizing.forecast_path import ForecastPath
from benchmarks.rightsizing.level_paths import level_of
from benchmarks.rightsizing.operating_points import (
    MEMORY,
    MEMORY_TIGHT,
    UTILIZATION,
    UTILIZATION_CALM,
)
from benchmarks.rightsizing.past import QUANTILES, LimitRule, Past, Values, quantile
from benchmarks.rightsizing.vertical_autoscaler import VpaPeaks, VpaSamples

HISTORY_HOURS = 336.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KrrCpu:
    """KRR (Kubernetes Resource Recommender), `simple`: the 95th percentile of two weeks."""

    level: float = 0.95
    name: str = "KRR CPU (P95)"

    def recommend(self, past: Past) -> Values:
        """Return the percentile."""
        return quantile(past.recent(HISTORY_HOURS), self.level)


@dataclass(frozen=True, slots=True, kw_only=True)
class KrrMemory:
    """KRR (Kubernetes Resource Recommender), `simple`: the maximum of two weeks plus 15 %."""

    margin_ratio: float = 0.15
    name: str = "KRR memory (max + 15 %)"

    def recommend(self, past: Past) -> Values:
        """Return the maximum with its margin."""
        return quantile(past.recent(HISTORY_HOURS), 1.0) * (1 + self.margin_ratio)


CALM = 60.0
"""Makes a change look so many times dearer in the plan: few changes, at some cost."""

CARE = 3.0
"""Makes a shortfall look so many times dearer: fewer samples above the limit, more slack."""

_MEDIAN = QUANTILES.index(0.50)


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticPeak:
    """The largest sample seen before the first step."""

    name: str = "static peak"

    def recommend(self, past: Past) -> Values:
        """Return the limits in force, or the peak where there is none."""
        return past.kept()


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticMean:
    """The mean of the samples before the first step."""

    name: str = "static mean"

    def recommend(self, past: Past) -> Values:
        """Return the limits in force, or the mean where there is none."""
        counts = np.isfinite(past.usage).sum(axis=1)
        sums = np.nansum(past.usage, axis=1)
        mean = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
        return np.where(np.isnan(past.limits), mean, past.limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reactive:
    """Up above `high` of the limit in the last step, down below `low`: by `step_ratio`."""

    high: float = 0.9
    low: float = 0.5
    step_ratio: float = 0.5
    name: str = "reactive 0.9 / 0.5"

    def recommend(self, past: Past) -> Values:
        """Return the limits moved by a step; a new job gets the peak that it has shown."""
        load = quantile(past.usage[:, -past.samples_per_step :], 1.0)
        limits = past.limits
        moved = np.where(load > self.high * limits, limits * (1 + self.step_ratio), limits)
        moved = np.where(load < self.low * limits, limits * (1 - self.step_ratio), moved)
        return np.where(np.isnan(limits), quantile(past.usage, 1.0), moved)


@dataclass(frozen=True, slots=True, kw_only=True)
class PerSlotRepack:
    """Every job gets the smallest level above its last step's peak, the largest jobs first.

    From a pool of `capacity` units; what does not fit gets the largest level that does.
    """

    capacity: float = np.inf
    name: str = "per-slot first fit decreasing"

    def recommend(self, past: Past) -> Values:
        """Return the levels; a job that was not seen in the last step keeps its limit."""
        peak = quantile(past.usage[:, -past.samples_per_step :], 1.0)
        need = np.where(np.isnan(peak), past.limits, peak)
        wish = np.full(len(need), np.nan)
        left = self.capacity
        for job in np.argsort(-np.nan_to_num(need), kind="stable"):
            if np.isnan(need[job]):
                continue
            fitting = past.levels[job][past.levels[job] <= left]
            enough = fitting[fitting >= need[job]]
            wish[job] = enough[0] if len(enough) else (fitting[-1] if len(fitting) else 0.0)
            left -= wish[job]
        return wish


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRecursion:
    """A published forecast-driven recursion for one job alone (US 12,411,713, prior description).

    PPN_i units are provisioned at timepoint i, at least the forecast need U_i, at most M; with K
    units now and a rebalance factor 0 < RF < 1 (`rebalance_factor`) the path of least
    POC = sum of PPN_i + RF |PPN_i - PPN_{i-1}| is taken, PPN_0 = K, and its first step provisioned.
    The median forecast is the need; nothing is shared and nothing is uncertain in it.
    """

    rebalance_factor: float = 0.5
    name: str = "per-job DP alone (published)"

    def recommend(self, past: Past) -> Values:
        """Return the first step; without a forecast the last step's peak is the need."""
        if past.forecast is None:
            need = quantile(past.usage[:, -past.samples_per_step :], 1.0)[:, None]
        else:
            need = past.forecast.path[:, :, _MEDIAN]
        levels = past.levels
        between = np.abs(levels[:, :, None] - levels[:, None, :]) * self.rebalance_factor
        value = np.zeros_like(levels)
        for wanted in need.T[::-1]:
            top = np.minimum(np.nan_to_num(wanted), levels[:, -1])
            covered = np.where(levels >= top[:, None] * (1 - 1e-12), levels, np.inf)
            here = covered + value
            value = (between + here[:, None, :]).min(axis=2)
        rows = np.arange(len(levels))
        start = level_of(past.limits, levels)
        moving = np.where((start >= 0)[:, None], between[rows, np.maximum(start, 0)], 0.0)
        wish = levels[rows, (moving + here).argmin(axis=1)]
        return np.where(np.isfinite(need[:, 0]), wish, past.kept())


def peer_policies(first_bucket: float) -> list[LimitRule]:
    """Return the peers; `first_bucket` is the width of the autoscaler's first bucket."""
    histogram = DecayingHistogram(first=first_bucket)
    return [
        StaticPeak(),
        StaticMean(),
        Reactive(),
        PerSlotRepack(),
        PublishedRecursion(),
        VpaSamples(histogram=histogram),
        VpaPeaks(histogram=histogram),
        KrrCpu(),
        KrrMemory(),
    ]


def own_policies(charges: UnitCharges, *, memory: bool, forecasting: bool) -> list[LimitRule]:
    """Return ours for memory or for demand, those that plan on forecasts where there are any."""
    pooled: list[LimitRule] = [MEMORY, MEMORY_TIGHT] if memory else [UTILIZATION, UTILIZATION_CALM]
    if not forecasting:
        return pooled
    return [*pooled, *forecast_policies(charges)]


def forecast_policies(charges: UnitCharges) -> list[LimitRule]:
    """Return ours that plan on forecasts."""
    return [
        ForecastPath(charges=charges),
        ForecastPath(charges=charges, care=CARE, name="Trimtab, forecast path, careful"),
        ForecastPath(charges=charges, calm=CALM, name="Trimtab, forecast path, calm"),
    ]
