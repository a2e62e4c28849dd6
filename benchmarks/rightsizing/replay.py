"""What-if: recorded usage replayed under right-sizing rules, charged on what came.

At every step a rule is shown the past alone and its limits hold for the step. Limits are charged
whole; used, missing and over-limit are counted on the samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.rightsizing.charges import UnitCharges
from benchmarks.rightsizing.level_paths import level_of
from benchmarks.rightsizing.past import Indices, LimitRule, Past, StepForecast, Values
from data.base.errors import ImpossibleProblemError

_SAME = 0.02
"""A limit that is not bound to levels and moves by less than this share has not changed."""
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recorded:
    """Usage [jobs, samples] on one grid, NaN unknown, and the levels [jobs, K] that limits take.

    Steps of `samples_per_step` samples; judged from `first_step` on, a job once it has shown
    `warm_up_samples`. `exact` rounds limits up to a level; else levels only serve those who search.
    `cohorts` [jobs] has the same number for jobs that do the same; None: each is one of its own.
    """

    usage: Values
    levels: Values
    sample_hours: float
    samples_per_step: int
    first_step: int
    warm_up_samples: int
    exact: bool = True
    cohorts: Indices | None = None

    def __post_init__(self) -> None:
        """Refuse usage below zero, levels that do not ascend, and a replay without a step."""
        if np.nanmin(self.usage, initial=0.0) < 0:
            job = int(np.argwhere(self.usage < 0)[0, 0])
            raise ImpossibleProblemError(
                f"the recorded usage of job {job} is below zero", "Leave wrong readings unknown"
            )
        if len(self.levels) != len(self.usage) or (np.diff(self.levels, axis=1) <= 0).any():
            raise ImpossibleProblemError(
                "the levels of a replay do not ascend for every job", "Give ascending levels"
            )
        if self.first_step < 1 or self.first_step >= self.steps:
            raise ImpossibleProblemError(
                f"a replay from step {self.first_step} of {self.steps} has nothing to replay",
                "Give a longer history, a shorter step, or an earlier first step (at least 1)",
            )

    @property
    def steps(self) -> int:
        """The whole steps of the recording."""
        return int(self.usage.shape[1] // self.samples_per_step)

    def known(self, step: int) -> Mask:
        """Return the jobs that have shown enough before a step to be judged."""
        counts = np.isfinite(self.usage[:, : step * self.samples_per_step]).sum(axis=1)
        return np.asarray(counts >= self.warm_up_samples)

    def came(self, step: int) -> Values:
        """Return the samples [jobs, n] of a step."""
        return self.usage[:, step * self.samples_per_step : (step + 1) * self.samples_per_step]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobTotals:
    """Sums per job [jobs] over the judged samples, in unit-hours, hours, kWh and money."""

    held: Values
    used: Values
    missing: Values
    samples: Values
    over: Values
    changes: Values
    later_changes: Values
    days: Values
    later_days: Values
    energy_kwh: Values
    cost: Values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replayed:
    """One rule's limits [jobs, steps] (NaN: not judged) and what they came to."""

    name: str
    limits: Values
    totals: JobTotals

    def figures(self, jobs: Mask | None = None) -> "ReplayFigures":
        """Return the figures of all or of chosen jobs."""
        chosen = np.ones(len(self.limits), dtype=np.bool_) if jobs is None else jobs
        totals = self.totals

        def total(values: Values) -> float:
            return float(values[chosen].sum())

        judged = totals.samples[chosen] > 0
        return ReplayFigures(
            name=self.name,
            jobs=int(judged.sum()),
            slack_ratio=_share(total(totals.held) - total(totals.used), total(totals.held)),
            over_samples_ratio=_share(total(totals.over), total(totals.samples)),
            over_jobs_ratio=_share(float((totals.over[chosen] > 0).sum()), float(judged.sum())),
            changes_per_job_day=_share(total(totals.changes), total(totals.days)),
            later_changes_per_job_day=_share(total(totals.later_changes), total(totals.later_days)),
            held_hours=total(totals.held),
            missing_hours=total(totals.missing),
            energy_kwh=total(totals.energy_kwh),
            cost=total(totals.cost),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFigures:
    """A rule's figures; `held_hours` and `missing_hours` in unit-hours, cost in money.

    `later_changes_per_job_day` leaves out each job's first judged day. A ratio of nothing is None.
    """

    name: str
    jobs: int
    slack_ratio: float | None
    over_samples_ratio: float | None
    over_jobs_ratio: float | None
    changes_per_job_day: float | None
    later_changes_per_job_day: float | None
    held_hours: float
    missing_hours: float
    energy_kwh: float
    cost: float


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def replay(
    recorded: Recorded,
    policy: LimitRule,
    *,
    charges: UnitCharges,
    forecasts: Sequence[StepForecast | None] = (),
) -> Replayed:
    """Return what a rule would have done; `forecasts` by step, from step 0, where there are any."""
    limits = np.full((len(recorded.usage), recorded.steps), np.nan)
    in_force = np.full(len(recorded.usage), np.nan)
    alone = np.arange(len(recorded.usage))
    for step in range(recorded.first_step, recorded.steps):
        known = recorded.known(step)
        upto = recorded.usage[:, : step * recorded.samples_per_step]
        past = Past(
            usage=np.where(known[:, None], upto, np.nan),
            limits=in_force,
            levels=recorded.levels,
            sample_hours=recorded.sample_hours,
            samples_per_step=recorded.samples_per_step,
            cohorts=alone if recorded.cohorts is None else recorded.cohorts,
            forecast=forecasts[step] if step < len(forecasts) else None,
        )
        wish = np.where(known, policy.recommend(past), np.nan)
        in_force = _granted(np.maximum(wish, 0.0), recorded) if recorded.exact else wish
        limits[:, step] = in_force
    return Replayed(name=policy.name, limits=limits, totals=charged(recorded, limits, charges))


def _granted(wish: Values, recorded: Recorded) -> Values:
    level = level_of(wish, recorded.levels)
    granted = recorded.levels[np.arange(len(wish)), level]
    return np.where(level >= 0, granted, np.nan)


def charged(recorded: Recorded, limits: Values, charges: UnitCharges) -> JobTotals:
    """Return the totals of limits [jobs, steps] on what came; a step without a limit is not judged.

    A change costs as the charges say; the first limit of a job is no change.
    """
    jobs, steps = limits.shape
    used, missing, samples, over = (np.zeros(jobs) for _ in range(4))
    held, cost, energy = np.zeros(jobs), np.zeros(jobs), np.zeros(jobs)
    hours = recorded.sample_hours
    for step in range(recorded.first_step, steps):
        came = recorded.came(step)
        limit = limits[:, step]
        judged = np.isfinite(came) & np.isfinite(limit)[:, None]
        demand = np.where(judged, came, 0.0)
        level = np.where(np.isfinite(limit), limit, 0.0)
        short = np.maximum(demand - level[:, None], 0.0) * judged
        held += judged.sum(axis=1) * level * hours
        used += (demand - short).sum(axis=1) * hours
        missing += short.sum(axis=1) * hours
        samples += judged.sum(axis=1)
        over += (short > 1e-9 * np.maximum(level[:, None], 1e-3)).sum(axis=1)
        cost += charges.step_cost(np.where(judged, came, np.nan), level[:, None], hours)[:, 0]
        wide = np.broadcast_to(level[:, None], demand.shape)
        energy += (charges.energy_kwh(wide, demand, hours) * judged).sum(axis=1)
    changed = _changed(limits, 0.0 if recorded.exact else _SAME)
    cost += (charges.change_cost(np.nan_to_num(limits[:, 1:])) * changed).sum(axis=1)
    days, later, late_changes = _days(limits, changed, recorded)
    return JobTotals(
        held=held,
        used=used,
        missing=missing,
        samples=samples,
        over=over,
        changes=changed.sum(axis=1).astype(np.float64),
        later_changes=late_changes,
        days=days,
        later_days=later,
        energy_kwh=energy,
        cost=cost,
    )


def _changed(limits: Values, same: float) -> Mask:
    """Return where a limit [jobs, steps - 1] differs from the step before by more than a share."""
    before, after = limits[:, :-1], limits[:, 1:]
    return np.asarray(np.abs(after - before) > np.maximum(same * before, 1e-12))


def _days(limits: Values, changed: Mask, recorded: Recorded) -> tuple[Values, Values, Values]:
    """Return judged days, those after each job's first, and the changes in these."""
    step_days = recorded.sample_hours * recorded.samples_per_step / 24
    age = np.cumsum(np.isfinite(limits), axis=1) * step_days
    later = np.isfinite(limits) & (age > 1 + 1e-9)
    return (
        np.isfinite(limits).sum(axis=1) * step_days,
        later.sum(axis=1) * step_days,
        (changed & later[:, 1:]).sum(axis=1).astype(np.float64),
    )
