"""How forecasts were tested, without what they foresee: what a page of all jobs needs."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from data.records.forecasts import Backtest, LeadAccuracy, QuantilePath, Quantity

_ALIKE = 1.05
"""Leads that differ by no more are one: a horizon that begins a slot later ends a slot later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastTest:
    """One path of one job's forecast: its model, its test, and what it rests on."""

    job_id: str
    borrowed_from: str
    quantity: Quantity
    model: str
    backtest: Backtest | None
    notes: tuple[str, ...]
    winsorised_slots: int
    censored_slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadMeans:
    """The mean over series at lead times up to `until_hours`: losses as shares of naive's.

    Series whose naive loss is zero count for the coverage only; None where none is left.
    """

    until_hours: float
    loss_ratio: float | None
    seasonal_naive_ratio: float | None
    coverage_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSummary:
    """What all jobs' forecasts of a cycle come to: their sum, and how well their tests went.

    `demand` is the sum of the GPUs that jobs will use, with its slots, None without forecasts;
    `series` counts their paths that were tested.
    """

    demand: tuple[tuple[datetime, ...], QuantilePath] | None
    series: int
    leads: tuple[LeadMeans, ...]


def lead_means(tested: Iterable[LeadAccuracy]) -> tuple[LeadMeans, ...]:
    """Return the means of what was found, by lead time; leads that nothing was tested at lack."""
    import numpy as np

    found: dict[float, list[LeadAccuracy]] = {}
    # A stable order by lead keeps the order of the series within each.
    for accuracy in sorted(tested, key=lambda entry: entry.until_hours):
        first = next(reversed(found), 0.0)
        lead = accuracy.until_hours
        found.setdefault(lead if lead > _ALIKE * first else first, []).append(accuracy)

    def mean(values: list[float]) -> float | None:
        return float(np.mean(values)) if values else None

    means = []
    for lead, alike in found.items():
        judged = [accuracy for accuracy in alike if accuracy.naive_loss > 0]
        means.append(
            LeadMeans(
                until_hours=lead,
                loss_ratio=mean([entry.loss / entry.naive_loss for entry in judged]),
                seasonal_naive_ratio=mean(
                    [entry.seasonal_naive_loss / entry.naive_loss for entry in judged]
                ),
                coverage_ratio=mean([entry.coverage_ratio for entry in alike]),
            )
        )
    return tuple(means)
