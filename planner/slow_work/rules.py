"""The rule for the cause of a slow job, as one table of thresholds.

Each slot of five minutes shows the first row of `RULES` of which all conditions hold; a signal that
nobody tells meets no condition. A job gets the cause that most of its slots show.
Sources of the thresholds: docs/internals/recommendations.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from data.facts.jobs import Job, WorkloadKind
from data.records.recommendations import Range
from data.records.slow_work import SlowCause, SlowWork

Floats = npt.NDArray[np.float64]
Signals = Mapping[str, Floats]

MIN_SLOTS = 12
"""An hour."""
_MIN_SHARE = 0.6
"""Of a job's slots, so that its warm-up, evaluation and checkpoints do not hide the cause."""
_CLEAR_SHARE = 0.75
_STRICTER = 0.1
_NVLINK_BYTES, _PCIE_BYTES = 600e9, 64e9
"""Per second in both directions: NVLink of an A100, PCIe 4.0 with 16 lanes."""
_ENGINE_BUSY = ("engine", 0.05, 1.0)
_EVEN = ("spread", 0.0, 0.3)
_SEVERAL = ("boards", 2.0, np.inf)
_FULL = (_EVEN, ("engine", 0.8, 1.0), ("sm", 0.6, 1.0))
_NO_MATRICES = ("tensor", 0.0, 0.05)
_NO_TENSOR = (_ENGINE_BUSY, _EVEN, ("sm", 0.5, 1.0), _NO_MATRICES, ("dram", 0.0, 0.6))
_DERIVED = ("one", "fp32_untold", "alone", "idle", "behind", "boards")
_LEVELS = ("weak", "medium", "strong")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row: a slot shows the cause when every signal of `when` lies in [low, high].

    `lost` names the signal that bounds the time lost, and which parts of it count as low, central
    and high; None where boards do not tell what the cause costs. `doubt` is what else looks so.
    """

    cause: SlowCause
    when: tuple[tuple[str, float, float], ...]
    strength: str
    doubt: str
    lost: tuple[str, float, float, float] | None = None


_PART = (0.5, 0.75, 1.0)
"""Assumed: of the time that a cause takes, half at least and all at most can be won back."""
INPUT_GAINS = (0.5, 0.95, 1.0)
"""Of the time without a kernel: programs got back .96 to 1 of it where input came in time, and not
all input can. As all measured here, by `python -m benchmarks.slow_work`.
"""
LARGER_BATCH = (0.19, 0.47, 1.0)
"""Of all time: quartile and median of what twice the batch saved; a full GPU saved nearly all."""
MIXED_PRECISION = (0.0, 0.32, 0.83)
"""Of all time: least, median and most that tensor cores saved of jobs that use none, some of which
have no matrix products.
"""

RULES: tuple[Rule, ...] = (
    Rule(
        cause=SlowCause.THROTTLED,
        when=(_ENGINE_BUSY, ("throttled", 0.2, 1.0)),
        strength="strong",
        doubt="how much slower the clocks are is not told",
    ),
    Rule(
        cause=SlowCause.WAITING,
        when=(_ENGINE_BUSY, _SEVERAL, ("spread", 0.3, 1.0)),
        strength="medium",
        doubt="a rank with other work than the others looks the same",
        lost=("behind", *_PART),
    ),
    Rule(
        cause=SlowCause.COMMUNICATION,
        when=(("engine", 0.7, 1.0), _SEVERAL, _EVEN, ("link", 0.25, np.inf), ("tensor", 0.0, 0.25)),
        strength="medium",
        doubt="traffic beside which the boards compute costs nothing",
    ),
    Rule(
        cause=SlowCause.COMMUNICATION,
        when=(("engine", 0.7, 1.0), _SEVERAL, _EVEN, ("link", 0.03, np.inf), ("fill", 0.0, 0.5)),
        strength="weak",
        doubt="small kernels look the same",
    ),
    Rule(
        cause=SlowCause.SMALL_BATCH,
        when=(("engine", 0.05, 0.8), _EVEN, ("fill", 0.0, 0.5), ("alone", 1.0, 1.0)),
        strength="medium",
        doubt="a program that launches small kernels late looks the same",
        lost=("one", *LARGER_BATCH),
    ),
    Rule(
        cause=SlowCause.STARVED,
        when=(("engine", 0.05, 0.65), _EVEN),
        strength="medium",
        doubt="a program that computes on the CPU or launches kernels late looks the same",
        lost=("idle", *INPUT_GAINS),
    ),
    Rule(
        cause=SlowCause.SMALL_BATCH,
        when=(("engine", 0.8, 1.0), _EVEN, ("fill", 0.0, 0.5), ("alone", 1.0, 1.0)),
        strength="medium",
        doubt="work that is small by nature looks the same",
        lost=("one", *LARGER_BATCH),
    ),
    Rule(
        cause=SlowCause.NO_TENSOR,
        when=(*_NO_TENSOR, ("fp32", 0.2, 1.0)),
        strength="medium",
        doubt="work without matrix products gains nothing",
        lost=("one", *MIXED_PRECISION),
    ),
    Rule(
        cause=SlowCause.NO_TENSOR,
        when=(*_NO_TENSOR, ("fp32_untold", 1.0, 1.0)),
        strength="weak",
        doubt="single-precision work is not told, and work without matrix products gains nothing",
        lost=("one", *MIXED_PRECISION),
    ),
    Rule(
        cause=SlowCause.BUSY,
        when=(*_FULL, ("tensor", 0.05, 1.0)),
        strength="strong",
        doubt="how well its kernels are written is not told",
    ),
    Rule(
        cause=SlowCause.BUSY,
        when=(*_FULL, _NO_MATRICES, ("dram", 0.6, 1.0)),
        strength="strong",
        doubt="its memory is what is busy: fewer bytes would help it",
    ),
)
_NEEDED: Mapping[str, str] = {
    "engine": "engine activity",
    "sm": "SM activity",
    "tensor": "tensor activity",
    "spread": "the work of each board",
}


def signals_of(activity: pd.DataFrame) -> Signals:
    """Return the signals of the rule [row], NaN where unknown, of rows as `job_activity` gives."""

    def column(name: str) -> Floats:
        return activity[name].to_numpy(dtype="float64")

    engine, sm, boards = column("engine_active"), column("sm_active"), column("boards")
    with np.errstate(divide="ignore", invalid="ignore"):
        fill = np.where(engine > 0, np.minimum(sm, engine) / engine, np.nan)
    link = np.fmax(
        column("nvlink_bytes_per_second") / _NVLINK_BYTES,
        column("pcie_bytes_per_second") / _PCIE_BYTES,
    )
    return {
        "engine": engine,
        "sm": sm,
        "fill": fill,
        "tensor": column("tensor_active"),
        "fp32": column("fp32_active"),
        "fp32_untold": np.isnan(column("fp32_active")).astype(np.float64),
        "dram": column("dram_active"),
        "link": link,
        "alone": np.where((boards < 2) | (link < 0.03), 1.0, 0.0),
        "spread": np.where(boards < 2, 0.0, column("spread")),
        "behind": np.where(boards < 2, 0.0, column("behind")),
        "throttled": column("throttled_ratio"),
        "power": column("power_ratio"),
        "boards": boards,
        "idle": 1.0 - engine,
        "one": np.ones(len(activity)),
    }


def shown(signals: Signals, *, stricter: float = 0.0) -> npt.NDArray[np.int64]:
    """Return the row of `RULES` that each slot shows, -1 for none; thresholds are so stricter."""
    causes = np.full(len(signals["engine"]), -1, dtype=np.int64)
    for number in reversed(range(len(RULES))):
        causes[_met(RULES[number], signals, stricter)] = number
    return causes


def _met(rule: Rule, signals: Signals, stricter: float) -> npt.NDArray[np.bool_]:
    met = np.ones(len(signals["engine"]), dtype=bool)
    for name, low, high in rule.when:
        # The ends of a scale are no thresholds.
        top = high if high in (1.0, np.inf) else high * (1 - stricter)
        bottom = low if name in ("boards", "alone", "fp32_untold") else low * (1 + stricter)
        met &= (signals[name] >= bottom) & (signals[name] <= top)
    return met


def slow_work(activity: pd.DataFrame, jobs: Mapping[str, Job]) -> tuple[SlowWork, ...]:
    """Return the cause of each slow job, by job, from rows as `job_activity` gives them.

    A job without a row is left out: no source tells what keeps its boards at work.
    """
    rows = activity[activity["job_id"].isin(list(jobs))].reset_index(drop=True)
    if rows.empty:
        return ()
    # Of a job of which a board does not tell, nobody knows whether it waits for that one.
    counts = rows["job_id"].map({job_id: job.gpu_count for job_id, job in jobs.items()})
    complete = rows["boards"] >= counts
    signals = signals_of(rows.assign(engine_active=rows["engine_active"].where(complete)))
    numbers, firm = shown(signals), shown(signals, stricter=_STRICTER)
    return tuple(
        _slow_work_of_job(
            jobs[str(job_id)],
            {name: values[places] for name, values in signals.items()},
            numbers[places],
            firm[places],
        )
        for job_id, places in sorted(rows.groupby("job_id").indices.items())
    )


def _slow_work_of_job(
    job: Job,
    signals: Signals,
    numbers: npt.NDArray[np.int64],
    firm: npt.NDArray[np.int64],
) -> SlowWork:
    slots = int(np.isfinite(signals["engine"]).sum())
    plain = SlowWork(
        job_id=job.job_id, cause=SlowCause.UNKNOWN, boards=job.gpu_count, known_slots=slots
    )
    votes = np.bincount(numbers[numbers >= 0], minlength=len(RULES))
    by_cause = {rule.cause: 0 for rule in RULES}
    for rule, count in zip(RULES, votes, strict=True):
        by_cause[rule.cause] += int(count)
    cause = max(by_cause, key=lambda name: by_cause[name])
    why_not = _why_unknown(job, signals, slots, by_cause[cause])
    if why_not:
        return replace(plain, doubt=why_not)
    mine = np.array([rule.cause is cause for rule in RULES])
    inside = (numbers >= 0) & mine[numbers]
    rule = RULES[int(np.argmax(np.where(mine, votes, -1)))]
    doubts = _doubts(rule, job, signals)
    firm_votes = int((inside & (firm >= 0) & mine[firm]).sum())
    return replace(
        plain,
        cause=cause,
        votes=by_cause[cause],
        firm_votes=firm_votes,
        confidence=_confidence(rule, by_cause[cause], firm_votes, slots, len(doubts)),
        doubt="; ".join((rule.doubt, *doubts)),
        signals=tuple(
            (name, float(np.mean(values[inside])))
            for name, values in signals.items()
            if name not in _DERIVED and np.isfinite(values[inside]).all()
        ),
        lost_ratio=_lost(rule, signals, inside),
    )


def _why_unknown(job: Job, signals: Signals, slots: int, votes: int) -> str:
    """Return the reason why a job's cause is unknown, '' where it is known."""
    if job.kind is WorkloadKind.INFERENCE:
        return "a service waits for requests, which is no slowness"
    if slots < MIN_SLOTS:
        boards = f"on all its {job.gpu_count} GPUs" if job.gpu_count > 1 else "on its GPU"
        return f"only {slots} of the {MIN_SLOTS} slots of 5 min needed are known {boards}"
    if votes >= _MIN_SHARE * slots:
        return ""
    missing = [
        words for name, words in _NEEDED.items() if np.isfinite(signals[name]).sum() < MIN_SLOTS
    ]
    if missing:
        return f"no source tells {', '.join(missing)}"
    idle = int((signals["engine"] < _ENGINE_BUSY[1]).sum())
    if idle > (1 - _MIN_SHARE) * slots:
        return f"its boards did nothing in {idle} of {slots} slots of 5 min"
    return f"no cause shows in {100 * _MIN_SHARE:.0f} % of its {slots} slots of 5 min"


def _confidence(rule: Rule, votes: int, firm_votes: int, slots: int, doubts: int) -> str:
    """Return strong, medium or weak: the rule's own, one step less for each doubt."""
    doubts += (votes < _CLEAR_SHARE * slots) + (2 * firm_votes < votes)
    return _LEVELS[max(0, _LEVELS.index(rule.strength) - doubts)]


def _doubts(rule: Rule, job: Job, signals: Signals) -> list[str]:
    """Return doubts that make late input less sure, beside the doubt of the rule."""
    if rule.cause is not SlowCause.STARVED:
        return []
    doubts = []
    if job.kind is WorkloadKind.UNKNOWN:
        doubts.append("its kind is unknown, and a service that waits for requests looks the same")
    if not np.isfinite(signals["sm"]).any():
        doubts.append("SM activity is not told, and too small a batch may look the same")
    return doubts


def _lost(rule: Rule, signals: Signals, inside: npt.NDArray[np.bool_]) -> Range | None:
    if rule.lost is None:
        return None
    name, low, central, high = rule.lost
    mean = float(np.mean(signals[name][inside]))
    return Range(low=low * mean, central=central * mean, high=high * mean, unit="share")
