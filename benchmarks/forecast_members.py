"""What each member of the mix is worth: the mix with and without it, on five sources.

Helios and Philly were looked at when the mix was made; `facility` and `recommenders` were not. The
better of naive and seasonal naive is chosen by series on the earlier half of the moments, and the
mix is held against it on the later half.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from tqdm import tqdm

from benchmarks._naive_model import NaiveModel
from benchmarks.demand_sets import (
    DemandSet,
    Values,
    facility,
    helios,
    philly,
    recommenders,
    simulated_jobs,
)
from benchmarks.forecast_judging import DAY, HISTORY_DAYS, as_series
from forecasting.mix.bands_kernel import add_prophet_points
from forecasting.mix.members_kernel import BASELINE, MEMBERS
from forecasting.mix.model import MIN_KNOWN, MixForecast, mix_many
from forecasting.models.backtest import inside_band, pinball_losses
from forecasting.models.demand_model import Quantiles
from forecasting.models.seasonal_naive_model import SeasonalNaiveModel
from forecasting.series.demand_series import DemandSeries

_WEEK = 7 * DAY
_MOMENTS = 8
_MIN_SHARE = 0.75
_WORSE = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A series at some past moments, and what came after each [moments, horizon]."""

    pasts: tuple[DemandSeries, ...]
    truths: tuple[Values, ...]


def asked(series: DemandSeries, horizon: int, first: int, days: int) -> Asked:
    """Return up to eight moments from slot `first` on, with at most so many `days` of past."""
    moments = np.linspace(first, len(series.values) - horizon, _MOMENTS).round().astype(int)
    pasts, truths = [], []
    for moment in np.unique(moments[moments >= first]).tolist():
        begin = max(0, moment - days * series.slots_per_day)
        past = replace(
            series,
            first_slot=series.first_slot + begin * series.slot_seconds,
            values=series.values[begin:moment],
        )
        truth = series.values[moment : moment + horizon]
        known = min(past.known.mean(), np.isfinite(truth).mean())
        if known >= _MIN_SHARE and past.known.sum() >= MIN_KNOWN and past.known[-1]:
            pasts.append(past)
            truths.append(truth)
    return Asked(pasts=tuple(pasts), truths=tuple(truths))


def hours_of(demand: DemandSet, first_days: int) -> list[Asked]:
    """Return the moments of a set by the hour, a week ahead, from that day on."""
    moments = []
    for values in demand.series.values():
        lower = 0.0 if np.nanmin(values) >= 0 else -np.inf
        series = replace(as_series(values, 3600), lower=lower)
        moments.append(asked(series, _WEEK, first_days * DAY, HISTORY_DAYS))
    return [entry for entry in moments if entry.pasts]


def demo() -> list[Asked]:
    """Return the moments of a third of the simulated jobs, a day ahead, from half of each on."""
    jobs = simulated_jobs()[::3]
    moments = [asked(job, job.slots_per_day, len(job.values) // 2, 14) for job in jobs]
    return [entry for entry in moments if entry.pasts]


@contextmanager
def silent(member: int) -> Iterator[None]:
    """Let a member say nothing, so that the mix goes on without it."""

    def heard(forecasts: Any, probes: Any, least: float, points: Any, now: Any) -> None:
        add_prophet_points(forecasts, probes, least, points, now)
        points[member] = now[member] = np.nan

    with patch("forecasting.mix.model.add_prophet_points", heard):
        yield


def mixes(series: Sequence[Asked]) -> list[list[MixForecast]]:
    """Return the mix of every series at its moments."""
    return [
        mix_many(entry.pasts, [len(truth) for truth in entry.truths], judged=False)
        for entry in series
    ]


def judged(
    series: Sequence[Asked], quantiles: Sequence[Sequence[Quantiles]], slots: int
) -> tuple[list[Values], list[float]]:
    """Return by series the mean losses of its moments, and the share inside q10..q90."""
    losses, inside = [], []
    for entry, rows in zip(series, quantiles, strict=True):
        pairs = list(zip(entry.truths, rows, strict=True))
        losses.append(
            np.array([np.nanmean(pinball_losses(truth, row)[:slots]) for truth, row in pairs])
        )
        held = [inside_band(truth, row)[:slots][np.isfinite(truth[:slots])] for truth, row in pairs]
        inside.append(float(np.concatenate(held).mean()))
    return losses, inside


def ratio(losses: Sequence[Values], others: Sequence[Values]) -> float:
    """Return the mean over series of a loss over another's, of those that have one."""
    pairs = zip(losses, others, strict=True)
    return float(np.mean([one.mean() / other.mean() for one, other in pairs if other.mean() > 0]))


def against_better(
    losses: Sequence[Values], naive: Sequence[Values], seasonal: Sequence[Values]
) -> list[float]:
    """Return by series the later half's loss over that of what was better in the earlier half."""
    ratios = []
    for rows in zip(losses, naive, seasonal, strict=True):
        half = len(rows[0]) // 2
        better = min(rows[1:], key=lambda row: float(row[:half].mean()) if half else 0.0)
        if better[half:].mean() > 0:
            ratios.append(float(rows[0][half:].mean() / better[half:].mean()))
    return ratios


def member_lines(data: Path) -> list[str]:
    """Return the tables of every source: how good the mix is, and what its members are worth."""
    sources: dict[str, Callable[[], list[Asked]]] = {
        "Helios (looked at)": lambda: hours_of(helios(data), 42),
        "Philly (looked at)": lambda: hours_of(philly(data), 28),
        "facility (not looked at)": lambda: hours_of(facility(data), 42),
        "recommenders (not looked at)": lambda: hours_of(recommenders(data), 10),
        "simulated fleet": demo,
    }
    others = [member for member in range(len(MEMBERS)) if member != BASELINE]
    worth = [
        f"| source | ahead | naive's weight | {' | '.join(MEMBERS[member] for member in others)} |",
        "|---|---|---:|" + "---:|" * len(others),
    ]
    quality = [
        (
            "| source | ahead | series | forecasts | mix / better baseline | worse by > 5 % "
            "| inside q10–q90 | by series |"
        ),
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, load in sources.items():
        series = load()
        found: dict[int | None, list[list[MixForecast]]] = {}
        for member in (None, *others):
            with nullcontext() if member is None else silent(member):
                found[member] = mixes(series)
        said = {key: [[one.quantiles for one in row] for row in found[key]] for key in found}
        weights = np.mean(
            [
                np.mean([[share for _, share in lead.weights] for lead in one.weights], axis=0)
                for row in found[None]
                for one in row
            ],
            axis=0,
        )
        plain = [
            [
                [model.forecast(past, len(entry.truths[0])) for past in entry.pasts]
                for entry in series
            ]
            for model in (NaiveModel(), SeasonalNaiveModel())
        ]
        day = series[0].pasts[0].slots_per_day
        for ahead, slots in {"24 h": day, "7 d": len(series[0].truths[0])}.items():
            if slots == day and ahead == "7 d":
                continue
            losses, inside = judged(series, said[None], slots)
            naive, seasonal = (judged(series, rows, slots)[0] for rows in plain)
            ratios = against_better(losses, naive, seasonal)
            quality.append(
                f"| {name} | {ahead} | {len(series)} | {sum(map(len, losses))} | "
                f"{np.mean(ratios):.3f} | {np.mean(np.array(ratios) > _WORSE):.0%} | "
                f"{np.mean(inside):.3f} | {min(inside):.2f}–{max(inside):.2f} |"
            )
            cells = [
                f"{ratio(judged(series, said[member], slots)[0], losses) - 1:+.1%} "
                f"(weight {weights[member]:.2f})"
                for member in others
            ]
            worth.append(f"| {name} | {ahead} | {weights[BASELINE]:.2f} | {' | '.join(cells)} |")
            tqdm.write(f"{quality[-1]}\n{worth[-1]}")
    return [
        "The mix on five sources, at up to eight moments of a series. Baselines: naive and",
        "seasonal naive with the bands that Trimtab gives them.",
        "",
        *quality,
        "",
        "**What a member is worth**: how much larger the loss is without it (mean over series),",
        "and its mean weight.",
        "",
        *worth,
    ]
