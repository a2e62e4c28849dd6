"""Measured rows with their estimates, and how near these come before and after finished runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from benchmarks.memory_rows import MeasuredRow
from planner.memory.estimate.bounds import bound_factor
from planner.memory.estimate.calibration import Calibration, Correction, FinishedRun
from planner.memory.estimate.correction import correction
from planner.memory.estimate.predictor import MemoryEstimate, predict_peak
from planner.memory.step.framework_prior import dialects_of
from planner.memory.step.framework_traits import similar_frameworks
from planner.memory.step.training_job import TrainingJob

GIB = 2**30
REPETITIONS = 6


class Known(StrEnum):
    """What an estimate may use of the framework whose runs are judged."""

    NOTHING = "left out: framework not told"
    CODE = "left out: framework told, none of its runs measured"
    RUNS = "in-sample: traits chosen in view of these runs too"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A measured row with its estimate: bytes of the figure that was measured."""

    row: MeasuredRow
    job: TrainingJob
    estimate: MemoryEstimate
    bytes: float
    peak: float

    @property
    def ratio(self) -> float:
        """Measured over estimated."""
        return self.peak / self.bytes

    @property
    def accuracy(self) -> float:
        """1 - |estimate - peak| / peak."""
        return accuracy(self.bytes, self.peak)

    @property
    def run(self) -> FinishedRun:
        """What the finished run teaches."""
        static = self.estimate.static_ratio
        return FinishedRun(
            static_bytes=self.bytes * static,
            dynamic_bytes=self.bytes * (1 - static),
            measured_bytes=self.peak,
        )


def accuracy(estimate: float, peak: float) -> float:
    """Return 1 - |estimate - peak| / peak."""
    return 1 - abs(estimate - peak) / peak


def figure_of(estimate: MemoryEstimate, figure: str) -> float:
    """Return the bytes of the figure that a source prints."""
    return float(getattr(estimate, f"{figure}_bytes"))


def frameworks_of(measured: Sequence[MeasuredRow], source: str) -> frozenset[str]:
    """Return the frameworks that a source measured, and those that take traits of them."""
    own = {row.job.framework for row in measured if row.source == source and row.job}
    return frozenset().union(*(similar_frameworks(name) for name in own))


def estimates(
    measured: Sequence[MeasuredRow], known: Known, *, bounded: bool = True
) -> Iterator[tuple[MeasuredRow, MemoryEstimate | None]]:
    """Yield every row with its estimate, None without a shape.

    Left out, nothing is used that the peaks of the row's source shaped. `bounded` by the row's
    card, where a run gives cache back before it fails.
    """
    unseen = {source: frameworks_of(measured, source) for source in {o.source for o in measured}}
    for row in measured:
        job = row.job if known is Known.RUNS else row.printed_job
        if job is None:
            yield row, None
            continue
        job = replace(
            job,
            framework="" if known is Known.NOTHING else job.framework,
            gpu_memory_bytes=job.gpu_memory_bytes if bounded else None,
        )
        dialects = () if known is Known.RUNS else dialects_of(job, unseen=unseen[row.source])
        yield row, predict_peak(job, dialects=dialects)


def scored(measured: Sequence[MeasuredRow], known: Known) -> list[Scored]:
    """Return the measured rows with their estimates, but those without a peak or a shape."""
    return [
        Scored(
            row=row,
            job=row.job,
            estimate=estimate,
            bytes=figure_of(estimate, row.figure),
            peak=row.peak_bytes,
        )
        for row, estimate in estimates(measured, known)
        if estimate is not None and row.job is not None and row.peak_bytes is not None
    ]


def mean(values: Sequence[float]) -> float:
    """Return the mean, NaN of nothing."""
    return float(np.mean(values)) if len(values) else float("nan")


def learned(one: Scored, calibration: Calibration) -> Correction:
    """Return the correction of a row by finished runs."""
    run = one.run
    return correction(calibration, static_bytes=run.static_bytes, dynamic_bytes=run.dynamic_bytes)


def corrected(one: Scored, calibration: Calibration) -> float:
    """Return the accuracy of a row after calibration."""
    return accuracy(one.bytes * learned(one, calibration).ratio, one.peak)


def by_family(rows: Sequence[Scored]) -> dict[str, list[Scored]]:
    """Return the rows by source and method."""
    families: dict[str, list[Scored]] = {}
    for row in rows:
        families.setdefault(row.row.family, []).append(row)
    return families


def draws(rows: Sequence[Scored], runs: int) -> Iterator[tuple[Calibration, list[Scored]]]:
    """Yield calibrations by so many finished configurations of a family, with the rows left over.

    Configurations are drawn at random, six times; rows of a drawn configuration are not scored.
    """
    generator = np.random.default_rng(0)
    configurations = sorted({repr(row.job) for row in rows})
    for _ in range(REPETITIONS):
        drawn = generator.permutation(len(configurations))[: min(runs, len(configurations) - 1)]
        known = {configurations[index] for index in drawn}
        first = {repr(row.job): row.run for row in reversed(rows) if repr(row.job) in known}
        calibration = Calibration(family=rows[0].row.family, runs=tuple(first.values()))
        yield calibration, [row for row in rows if repr(row.job) not in known]


def after_runs(rows: Sequence[Scored], runs: int) -> float:
    """Return the mean accuracy of a family's rows after so many finished configurations of it."""
    return mean(
        [corrected(entry, calibration) for calibration, left in draws(rows, runs) for entry in left]
    )


def calibrated_coverage(rows: Sequence[Scored], share: float) -> float:
    """Return the share of peaks below the stated bound after ten runs of the family."""
    hits = []
    for family in by_family(rows).values():
        if len({repr(entry.job) for entry in family}) < 2:
            continue
        for calibration, left in draws(family, 10):
            for entry in left:
                found = learned(entry, calibration)
                factor = found.ratio * bound_factor(entry.estimate.tier, share, found)
                hits.append(entry.ratio <= factor)
    return mean(hits)


def calibrated(rows: Sequence[Scored], runs: int) -> float:
    """Return the accuracy after so many runs of each family, families weighted by their rows."""
    total = weight = 0.0
    for family in by_family(rows).values():
        many = len({repr(entry.job) for entry in family})
        value = after_runs(family, runs) if many > 1 else mean([entry.accuracy for entry in family])
        total, weight = total + value * len(family), weight + len(family)
    return total / weight if weight else float("nan")


def several_sources(rows: Sequence[Scored]) -> list[str]:
    """Return the sources in order.

    None when there is one only, which has no others to learn from.
    """
    sources = sorted({row.row.source for row in rows})
    return sources if len(sources) > 1 else []
