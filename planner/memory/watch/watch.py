"""Memory of running jobs against its limit: findings that it runs out or is free, and advice.

The forecast's quantiles give the chance, slot by slot; the calibrated peak of the coming window
the chance over all of it. Both are lower bounds of the chance of running out at any time, because
slots are not independent, so the larger of them is said, as `at least`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from data.base.units import BYTES_PER_MIB, gib
from data.records.forecasts import DemandForecast, QuantilePath, Quantity, WindowPeak
from data.records.memory import MemoryAdvice, MemoryFinding, MemoryOutlook, MemoryRemedy
from planner.memory.estimate.bounds import USABLE_RATIO
from planner.memory.estimate.predictor import predict_peak
from planner.memory.estimate.training_plans import GpuType
from planner.memory.step.training_job import Recompute, Sharding, TrainingJob
from planner.memory.watch.framework_flags import flag_of
from planner.memory.watch.growth import GROWTH_CHANCE, Growth, growth_towards

Floats = npt.NDArray[np.float64]

_MIN_CHANCE = 0.5
_ROOM_RATIO = 0.2
"""Room counts when a fifth of the memory stays free and was in use before."""
_RECENT_SLOTS = 8
_MARGIN = 1.1
REPORTED_FROM, OVER_BELOW = 0.1, 0.05
"""The chance from which running out is reported, and the one below which no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedJob:
    """One running job: its limit, the largest memory per slot so far [slots], and its forecast.

    Memory in MiB per GPU, NaN where a slot was not observed. `lately_mib` is that of the newest
    slots of 5 min up to `lately_until`. `recipe` is how it trains, where that is known, `gpu_types`
    what it could move to.
    """

    job_id: str
    gpu_model: str
    limit_mib: float
    used_mib: Floats
    forecast: DemandForecast
    recipe: TrainingJob | None = None
    gpu_types: tuple[GpuType, ...] = ()
    lately_mib: Floats = field(default_factory=lambda: np.empty(0))
    lately_until: datetime | None = None


def watch_memory(
    jobs: Sequence[WatchedJob], *, reported: Collection[str] = ()
) -> tuple[MemoryFinding, ...]:
    """Return the forecast findings, the likeliest to run out first, then the largest room.

    A job whose memory was never reported, or has no forecast, gives nothing. `reported` are jobs
    that were said to run out before: it takes a lower chance to say no more of them.
    """
    findings = []
    for job in jobs:
        from_chance = OVER_BELOW if job.job_id in reported else REPORTED_FROM
        if (entry := _finding(job, from_chance)) is not None:
            findings.append(entry)
    return tuple(
        sorted(findings, key=lambda finding: (-(finding.probability or 0.0), -finding.room_mib))
    )


def _finding(job: WatchedJob, from_chance: float) -> MemoryFinding | None:
    path = job.forecast.path(Quantity.MEMORY)
    finite = job.used_mib[np.isfinite(job.used_mib)]
    if path is None or not len(finite) or not path.q50:
        return None
    growth = growth_towards(job.lately_mib, USABLE_RATIO * job.limit_mib)
    outlook = _Outlook(job=job, path=path, finite=finite, growth=growth)
    if outlook.is_pool:
        return None
    probability, at = outlook.exceedance()
    if probability >= from_chance:
        return _runs_out(outlook, probability, at)
    return _room(outlook)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outlook:
    """A job with its known memory [slots with samples], its forecast path and its growth."""

    job: WatchedJob
    path: QuantilePath
    finite: Floats
    growth: Growth | None

    @property
    def limit(self) -> float:
        """The memory that a program can have, MiB."""
        return USABLE_RATIO * self.job.limit_mib

    @property
    def largest(self) -> float:
        """The largest memory seen, MiB."""
        return float(self.finite.max())

    @property
    def is_pool(self) -> bool:
        """Whether the job already took all there is and lives: a pool that it fills itself."""
        return self.largest >= self.limit

    @property
    def peak(self) -> WindowPeak | None:
        """The calibrated peak of the longest window ahead."""
        peaks = [peak for peak in self.job.forecast.peaks if peak.quantity is Quantity.MEMORY]
        return max(peaks, key=lambda finding: finding.window_hours, default=None)

    @property
    def peak_q50(self) -> float:
        """The largest median ahead, MiB, or what steady growth comes to."""
        growth = self.growth
        return max(*self.path.q50, 0.0 if growth is None else growth.expected_mib)

    @property
    def peak_q95(self) -> float:
        """The bound that memory stays under with 95 %, MiB."""
        outer = max(self.path.q95 or self.path.q90)
        return outer if self.peak is None else max(outer, self.peak.q95)

    @property
    def horizon_hours(self) -> float:
        """The length of the path."""
        starts = self.job.forecast.slot_starts
        step = (starts[1] - starts[0]) if len(starts) > 1 else None
        return len(starts) * step.total_seconds() / 3600 if step else 0.0

    def exceedance(self) -> tuple[float, datetime | None]:
        """Return the least chance of running out, and the first slot where it is likely.

        Where none is likely on its own, the slot of the largest chance. Steady growth in the last
        hour counts where the forecast sees less of a chance, or sees it later.
        """
        chances = exceedance_of(self.path, self.limit)
        best = float(chances.max())
        likely = np.flatnonzero(chances >= _MIN_CHANCE)
        slot = int(likely[0]) if len(likely) else int(chances.argmax())
        by_peak = 0.0 if self.peak is None else chance_above(self.peak, self.limit)
        at = self.job.forecast.slot_starts[slot] if best > 0 else None
        growth, until = self.growth, self.job.lately_until
        if growth is None or until is None:
            return max(best, by_peak), at
        full_at = until + timedelta(hours=growth.full_in_hours)
        sooner = at is None or best < GROWTH_CHANCE or full_at < at
        return max(best, by_peak, GROWTH_CHANCE), full_at if sooner else at


def _memory_finding(outlook: _Outlook, kind: MemoryOutlook, **values: Any) -> MemoryFinding:
    return MemoryFinding(
        job_id=outlook.job.job_id,
        outlook=kind,
        gpu_model=outlook.job.gpu_model,
        limit_mib=outlook.job.limit_mib,
        now_mib=float(outlook.finite[-1]),
        largest_mib=outlook.largest,
        peak_q50_mib=outlook.peak_q50,
        peak_q95_mib=outlook.peak_q95,
        horizon_hours=outlook.horizon_hours,
        evidence=_evidence(outlook),
        **values,
    )


def _runs_out(outlook: _Outlook, probability: float, at: datetime | None) -> MemoryFinding:
    job = outlook.job
    when = f", first likely at {at:%Y-%m-%d %H:%M} UTC" if at is not None else ""
    return _memory_finding(
        outlook,
        MemoryOutlook.RUNS_OUT,
        probability=probability,
        at=at,
        room_mib=0.0,
        why=(
            f"GPU memory runs out within {outlook.horizon_hours:.0f} h with a chance of at least "
            f"{100 * probability:.0f} %{when}: {gib(outlook.finite[-1])} of "
            f"{gib(job.limit_mib)} GiB now, {gib(outlook.peak_q50)} expected"
        ),
        advice=advice_for(job, needed_mib=max(outlook.peak_q95, outlook.peak_q50)),
    )


def _room(outlook: _Outlook) -> MemoryFinding | None:
    """Return the room after a phase that needed more: of late and for the horizon, with 95 %."""
    job = outlook.job
    recent = outlook.finite[-_RECENT_SLOTS:]
    before = outlook.finite[:-_RECENT_SLOTS]
    if len(recent) < _RECENT_SLOTS or not len(before):
        return None
    used_mib = max(float(recent.max()), outlook.peak_q95) * _MARGIN
    room = job.limit_mib - used_mib
    freed = float(before.max()) - used_mib
    if room < _ROOM_RATIO * job.limit_mib or freed < _ROOM_RATIO * job.limit_mib:
        return None
    return _memory_finding(
        outlook,
        MemoryOutlook.ROOM,
        probability=None,
        at=job.forecast.slot_starts[0],
        room_mib=room,
        why=(
            f"the phase that took {gib(float(before.max()))} GiB is over: "
            f"{gib(room)} of {gib(job.limit_mib)} GiB stay free for "
            f"{outlook.horizon_hours:.0f} h with 95 %, enough for a job beside it"
        ),
    )


def _evidence(outlook: _Outlook) -> tuple[str, ...]:
    forecast = outlook.job.forecast
    lines = [
        f"{len(outlook.finite)} slots with memory, forecast by {outlook.path.model}",
        f"usable is {100 * USABLE_RATIO:.1f} % of the board's {gib(outlook.job.limit_mib)} GiB",
    ]
    if (growth := outlook.growth) is not None:
        lines.append(
            f"grew by {gib(growth.mib_per_hour)} GiB an hour over the last "
            f"{60 * growth.seen_hours:.0f} min"
        )
    if outlook.peak is not None:
        lines.append(
            f"peak of the next {outlook.peak.window_hours:g} h from {outlook.peak.scores} past "
            f"windows of {outlook.peak.cohort}"
        )
    if forecast.borrowed_from:
        lines.append(f"history borrowed from {forecast.borrowed_from}")
    return tuple(lines)


def advice_for(job: WatchedJob, *, needed_mib: float) -> tuple[MemoryAdvice, ...]:
    """Return the remedies in the order in which they disturb a job least.

    Spread it, shard or recompute more, a larger GPU, a smaller micro-batch, move it. With a recipe
    each says the peak after it, scaled by what the job really needs over what was predicted.
    """
    if job.recipe is None:
        return tuple(_without_recipe(job, needed_mib))
    before = predict_peak(job.recipe).p50_bytes
    scale = needed_mib * BYTES_PER_MIB / before
    remedies = []
    for remedy, text, changed in _changes(job.recipe):
        after = predict_peak(changed).p50_bytes * scale / BYTES_PER_MIB
        flag = flag_of(remedy, changed)
        if after < needed_mib:
            remedies.append(
                MemoryAdvice(
                    remedy=remedy,
                    text=f"{text}{f' ({flag})' if flag else ''}: {gib(after)} GiB instead of "
                    f"{gib(needed_mib)}",
                    expected_mib=after,
                    fits=after <= USABLE_RATIO * job.limit_mib,
                )
            )
    remedies += _larger(job, needed_mib)
    remedies.append(_move(job))
    order = list(MemoryRemedy)
    return tuple(sorted(remedies, key=lambda advice: order.index(advice.remedy)))


def _changes(recipe: TrainingJob) -> list[tuple[MemoryRemedy, str, TrainingJob]]:
    """Return the possible changes of a recipe, each change alone."""
    spread = recipe.parallelism
    changes: list[tuple[MemoryRemedy, str, TrainingJob]] = []
    sharded = spread.sharding is not Sharding.NONE
    wider = replace(
        spread,
        data=2 * spread.data,
        sharding=spread.sharding if sharded else Sharding.ZERO1,
        shard_group=None,
    )
    changes.append(
        (
            MemoryRemedy.SPREAD,
            f"spread over {wider.gpus} GPUs with its states shared out",
            replace(recipe, parallelism=wider),
        )
    )
    if spread.data > 1 and spread.sharding is not Sharding.FSDP and spread.pipeline == 1:
        changes.append(
            (
                MemoryRemedy.SHARD,
                "shard weights and gradients as well (FSDP)",
                replace(recipe, parallelism=replace(spread, sharding=Sharding.FSDP)),
            )
        )
    if recipe.recompute is not Recompute.FULL:
        changes.append(
            (
                MemoryRemedy.RECOMPUTE,
                "recompute all activations in the backward pass",
                replace(recipe, recompute=Recompute.FULL),
            )
        )
    if (recipe.micro_batch or 1) > 1:
        half = (recipe.micro_batch or 2) // 2
        changes.append(
            (
                MemoryRemedy.SMALLER_MICRO_BATCH,
                f"a micro-batch of {half} with more accumulation",
                replace(recipe, micro_batch=half),
            )
        )
    return changes


def _without_recipe(job: WatchedJob, needed_mib: float) -> list[MemoryAdvice]:
    words = (
        (MemoryRemedy.SPREAD, "spread the job over more GPUs"),
        (MemoryRemedy.SHARD, "share out its optimiser states, gradients or weights"),
        (MemoryRemedy.RECOMPUTE, "recompute activations"),
    )
    rest = (
        MemoryAdvice(
            remedy=MemoryRemedy.SMALLER_MICRO_BATCH,
            text="a smaller micro-batch with more accumulation",
        ),
        _move(job),
    )
    first = [MemoryAdvice(remedy=remedy, text=text) for remedy, text in words]
    return [*first, *_larger(job, needed_mib), *rest]


def _larger(job: WatchedJob, needed_mib: float) -> list[MemoryAdvice]:
    """Return the smallest GPU type that holds what is needed."""
    needed_bytes = needed_mib * BYTES_PER_MIB / USABLE_RATIO
    fitting = [
        entry
        for entry in job.gpu_types
        if entry.memory_bytes >= needed_bytes and entry.memory_bytes > job.limit_mib * BYTES_PER_MIB
    ]
    if not fitting:
        return []
    best = min(fitting, key=lambda finding: (finding.memory_bytes, finding.price_per_hour))
    return [
        MemoryAdvice(
            remedy=MemoryRemedy.LARGER_GPU,
            text=f"{best.name} has {gib(best.memory_bytes / BYTES_PER_MIB)} GiB",
            expected_mib=needed_mib,
            fits=True,
        )
    ]


def _move(job: WatchedJob) -> MemoryAdvice:
    return MemoryAdvice(
        remedy=MemoryRemedy.MOVE,
        text=f"checkpoint and move it to a {job.gpu_model or 'GPU'} that nothing else shares",
    )


def exceedance_of(path: QuantilePath, limit: float) -> Floats:
    """Return the chance [slots] that a quantity lies above a limit.

    Linear between the quantiles that the path has; beyond the outermost the chance halves with
    every quarter of its distance to the median, as that of a normal variable does there.
    """
    levels = [0.1, 0.5, 0.9]
    rows = [path.q10, path.q50, path.q90]
    if path.q95:
        levels, rows = [0.05, *levels, 0.95], [path.q05, *rows, path.q95]
    quantiles = np.array(rows, dtype=np.float64)
    chances = np.empty(quantiles.shape[1])
    for slot, values in enumerate(quantiles.T):
        chances[slot] = _chance_in_slot(values, np.array(levels), limit)
    return chances


def _chance_in_slot(values: Floats, levels: Floats, limit: float) -> float:
    outermost = 1 - float(levels[-1])
    if limit >= values[-1]:
        spread = float(values[-1] - values[len(values) // 2])
        if spread <= 0:
            return outermost if limit == values[-1] else 0.0
        return float(outermost * 2.0 ** (-4 * (limit - float(values[-1])) / spread))
    if limit <= values[0]:
        return 1 - float(levels[0])
    return 1 - float(np.interp(limit, values, levels))


def chance_above(peak: WindowPeak, limit: float) -> float:
    """Return the least chance that the calibrated peak of a window lies above a limit."""
    if limit < peak.q90:
        return 0.1
    return 0.05 if limit < peak.q95 else 0.0
