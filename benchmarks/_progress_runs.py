"""Drawn training runs with known ends, and how well their own progress tells them at half time."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from data.facts.progress import ProgressReport
from planner.jobs.job_end import ends_by_progress

Values = npt.NDArray[np.float64]

_START = datetime(2026, 1, 1, tzinfo=UTC)
_STEPS = 2_000
_EVERY_SECONDS = 300.0
_RUNS = 400
_HEAD = (
    "| drawn runs | runs | end told | error, % of the run | within 15 % | inside 80 % |",
    "|---|" + "---:|" * 5,
)


def progress_rows(seed: int) -> list[str]:
    """Return how well progress, reported every five minutes, tells the end at half of a run."""
    rows, pooled = list(_HEAD), list[tuple[float, bool]]()
    for number, (name, draw) in enumerate(_KINDS.items()):
        rng = np.random.default_rng([seed, number])
        runs = (_reported(*draw(rng), rng) for _run in range(_RUNS))
        told = [found for length, reports in runs if (found := _told(length, reports))]
        rows.append(_row(name, _RUNS, told))
        pooled += told if draw is not _stopped else []
    return [*rows, _row("**all that do all their steps**", _RUNS * (len(_KINDS) - 1), pooled)]


def _told(length: float, reports: list[ProgressReport]) -> tuple[float, bool] | None:
    """Return the error as a share of the run and whether its end lies inside; None if not told."""
    half = _START + timedelta(seconds=length / 2)
    ends = ends_by_progress(_as_read(reports, half), half)
    if not ends:
        return None
    seconds = [(end - _START).total_seconds() for end in ends]
    low, central, high = np.quantile(seconds, (0.1, 0.5, 0.9))
    return abs(float(central) / length - 1), bool(low <= length <= high)


def _as_read(reports: list[ProgressReport], at: datetime) -> list[ProgressReport]:
    """Return the reports that the store gives: of what is older than six hours one an hour."""
    kept = {
        report.reported_at
        if report.reported_at >= at - timedelta(hours=6)
        else (report.reported_at - _START) // timedelta(hours=1): report
        for report in reports
    }
    return list(kept.values())


def _row(name: str, runs: int, told: list[tuple[float, bool]]) -> str:
    errors, inside = np.array([pair[0] for pair in told]), np.array([pair[1] for pair in told])
    return (
        f"| {name} | {runs} | {len(told)} | {100 * errors.mean():.1f} | "
        f"{100 * (errors <= 0.15).mean():.0f} % | {100 * inside.mean():.0f} % |"
    )


def _reported(
    times: Values, done: Values, rng: np.random.Generator
) -> tuple[float, list[ProgressReport]]:
    """Return the length in s of a run and its reports, every second run's in whole per cent."""
    asked = np.arange(_EVERY_SECONDS, times[-1] / 2, _EVERY_SECONDS)
    ratios = done[np.searchsorted(times, asked, side="right") - 1]
    if rng.random() < 0.5:
        ratios = np.floor(100 * ratios) / 100
    return float(times[-1]), [
        ProgressReport(reported_at=_START + timedelta(seconds=float(at)), done_ratio=float(ratio))
        for at, ratio in zip(asked, ratios, strict=True)
    ]


def _paces(rng: np.random.Generator) -> Values:
    """Return seconds per step of an even run of 2 to 72 hours, with noise that lasts a while."""
    hours = np.exp(rng.uniform(np.log(2.0), np.log(72.0)))
    noise = rng.normal(0, 1, _STEPS)
    for step in range(1, _STEPS):
        noise[step] = 0.98 * noise[step - 1] + 0.2 * noise[step]
    return np.asarray(hours * 3600 / _STEPS * np.exp(0.03 * noise), dtype=np.float64)


def _run(paces: Values) -> tuple[Values, Values]:
    return np.cumsum(paces), np.arange(1, len(paces) + 1) / _STEPS


def _even(rng: np.random.Generator) -> tuple[Values, Values]:
    return _run(_paces(rng))


def _evaluated(rng: np.random.Generator) -> tuple[Values, Values]:
    """Return a run that stands still after each of 4 to 40 epochs, for 5 to 25 % of one."""
    paces, epochs = _paces(rng), int(rng.integers(4, 41))
    ends = (np.arange(1, epochs + 1) * _STEPS // epochs) - 1
    paces[ends] += rng.uniform(0.05, 0.25) * paces.sum() / epochs
    return _run(paces)


def _slowed(rng: np.random.Generator) -> tuple[Values, Values]:
    """Return a run of which 10 to 40 % of the steps take 1.3 to 2.5 times as long."""
    paces = _paces(rng)
    share = rng.uniform(0.1, 0.4)
    first = int(rng.uniform(0, 1 - share) * _STEPS)
    paces[first : first + int(share * _STEPS)] *= rng.uniform(1.3, 2.5)
    return _run(paces)


def _restarted(rng: np.random.Generator) -> tuple[Values, Values]:
    """Return a run that goes back to its last checkpoint one to three times."""
    paces = _paces(rng)
    every = int(rng.uniform(0.02, 0.1) * _STEPS)
    order = list(range(_STEPS))
    lost = np.zeros(_STEPS)
    for failed in sorted(rng.integers(every, _STEPS, int(rng.integers(1, 4))), reverse=True):
        saved = int(failed) // every * every
        order[failed:failed] = range(saved, int(failed))
        lost[saved] = rng.uniform(60, 1800)
    times = np.cumsum(paces[order] + lost[order])
    return times, (np.array(order) + 1) / _STEPS


def _stopped(rng: np.random.Generator) -> tuple[Values, Values]:
    """Return a run that stops at 50 to 100 % of its steps, because it is good enough."""
    times, done = _run(_paces(rng))
    last = int(rng.uniform(0.5, 1.0) * _STEPS)
    return times[:last], done[:last]


_KINDS: dict[str, Callable[[np.random.Generator], tuple[Values, Values]]] = {
    "even": _even,
    "stands still for evaluations": _evaluated,
    "a slow phase": _slowed,
    "goes back to a checkpoint": _restarted,
    "stops early": _stopped,
}
