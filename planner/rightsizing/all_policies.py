"""The rules that a replay sets side by side: the peers as published, then ours."""

from planner.rightsizing.charges import UnitCharges
from planner.rightsizing.decaying_histogram import DecayingHistogram
from planner.rightsizing.forecast_path import ForecastPath
from planner.rightsizing.operating_points import (
    MEMORY,
    MEMORY_TIGHT,
    UTILIZATION,
    UTILIZATION_CALM,
)
from planner.rightsizing.past import LimitRule
from planner.rightsizing.percentile_rules import KrrCpu, KrrMemory
from planner.rightsizing.published_recursion import PublishedRecursion
from planner.rightsizing.reactive import Reactive
from planner.rightsizing.repack import PerSlotRepack
from planner.rightsizing.reservations import StaticMean, StaticPeak
from planner.rightsizing.vertical_autoscaler import VpaPeaks, VpaSamples

CALM = 60.0
"""Makes a change look so many times dearer in the plan: few changes, at some cost."""

CARE = 3.0
"""Makes a shortfall look so many times dearer: fewer samples above the limit, more slack."""


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
