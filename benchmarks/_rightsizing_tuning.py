"""Random search of our rule's settings on half of the jobs, judged by resampling those jobs."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from benchmarks._rightsizing_sets import ReplaySet
from benchmarks.rightsizing.dead_band import DeadBand
from benchmarks.rightsizing.operating_points import FleetPooled
from benchmarks.rightsizing.past import Indices, Values, quantile
from benchmarks.rightsizing.replay import JobTotals, charged, replay

_OWN_LEVELS = (0.5, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 1.0)
_OWN_HOURS = (3.0, 6.0, 12.0, np.inf)
_FLEET_LEVELS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_BANDS = (
    DeadBand(lower_ratio=0.1),
    DeadBand(lower_ratio=0.3),
    DeadBand(raise_ratio=0.02, headroom_ratio=0.05, lower_ratio=0.5),
    DeadBand(raise_ratio=0.05, headroom_ratio=0.1, lower_ratio=0.5),
    DeadBand(raise_ratio=0.17, lower_ratio=0.5),
    DeadBand(raise_ratio=0.1, lower_ratio=0.3),
)
_DRAWS = 4_000
_RESAMPLES = 200
_CALM = 0.2


def _settings(seed: int) -> Iterator[FleetPooled]:
    rng = np.random.default_rng(seed)
    while True:
        yield FleetPooled(
            own_level=float(rng.choice(_OWN_LEVELS)),
            own_hours=float(rng.choice(_OWN_HOURS)),
            own_factor=float(rng.uniform(0.9, 1.4)),
            fleet_of=float(rng.choice(_OWN_LEVELS[2:])),
            fleet_level=float(rng.choice(_FLEET_LEVELS)),
            pull=float(rng.uniform(0, 0.6) * rng.integers(2)),
            floor_factor=float(rng.uniform(0.7, 1.1) * rng.integers(2)),
            band=_BANDS[int(rng.integers(len(_BANDS)))],
        )


class _Quantiles:
    """Own quantiles [jobs] by step, level and window, each found once."""

    def __init__(self, one: ReplaySet) -> None:
        self._one = one
        self._found: dict[tuple[int, float, float], Values] = {}

    def at(self, step: int, level: float, hours: float) -> Values:
        """Return the quantiles of the jobs that are judged at a step."""
        key = (step, level, hours)
        if key not in self._found:
            recorded = self._one.recorded
            end = step * recorded.samples_per_step
            begin = max(0, end - round(min(hours, 1e6) / recorded.sample_hours))
            own = quantile(recorded.usage[:, begin:end], level)
            if begin > 0:
                own = np.where(np.isnan(own), self.at(step, level, np.inf), own)
            self._found[key] = np.where(recorded.known(step), own, np.nan)
        return self._found[key]


def _limits(one: ReplaySet, rule: FleetPooled, quantiles: _Quantiles) -> Values:
    """Return the limits [jobs, steps] of a rule, as the replay would."""
    recorded = one.recorded
    limits = np.full((len(recorded.usage), recorded.steps), np.nan)
    held = np.full(len(recorded.usage), np.nan)
    for step in range(recorded.first_step, recorded.steps):
        own = quantiles.at(step, rule.own_level, rule.own_hours)
        everyones = quantiles.at(step, rule.fleet_of, np.inf)
        known = recorded.known(step)
        held = np.where(known, rule.band.held(rule.mixed(own, everyones), held), np.nan)
        limits[:, step] = held
    return limits


def _three(totals: JobTotals, jobs: Indices) -> Values:
    """Return slack, over-limit samples and over-limit jobs of chosen jobs, repeats counted."""
    samples = totals.samples[jobs]
    return np.array(
        [
            1 - totals.used[jobs].sum() / totals.held[jobs].sum(),
            totals.over[jobs].sum() / samples.sum(),
            (totals.over[jobs] > 0).sum() / (samples > 0).sum(),
        ]
    )


def tuned(one: ReplaySet) -> list[str]:
    """Give, per peer, the settings that beat it in most resamples, and the calmest of these."""
    quantiles, draws = _Quantiles(one), _settings(5)
    rules = [replace(next(draws), name=f"draw {number}") for number in range(_DRAWS)]
    totals = [charged(one.recorded, _limits(one, rule, quantiles), one.charges) for rule in rules]
    judged = np.flatnonzero(one.tuned_on & (totals[0].samples > 0))
    rng = np.random.default_rng(9)
    resamples = [rng.choice(judged, len(judged)) for _ in range(_RESAMPLES)]
    lines = []
    for peer in dict.fromkeys(name for name, _ in one.peers):
        policy = next(each for each in one.policies if each.name == peer)
        theirs = replay(one.recorded, policy, charges=one.charges).totals
        bars = [_three(theirs, chosen) for chosen in resamples]
        wins = np.array(
            [
                np.mean(
                    [
                        (_three(each, chosen) <= bar).all()
                        for chosen, bar in zip(resamples, bars, strict=True)
                    ]
                )
                for each in totals
            ]
        )
        changes = np.array(
            [each.changes[judged].sum() / each.days[judged].sum() for each in totals]
        )
        lines.append(f"{one.name} against {peer}: {_three(theirs, judged).round(4)}")
        order = np.argsort(-wins, kind="stable")
        calm = [at for at in order if changes[at] <= _CALM]
        lines += [
            f"  {wins[index]:.2f} of resamples, {changes[index]:.2f} changes, "
            f"{_three(totals[index], judged).round(4)}: {rules[index]}"
            for index in [*order[:3], *calm[:3]]
        ]
    return lines
