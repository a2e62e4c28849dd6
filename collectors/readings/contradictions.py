"""Readings of one device that contradict each other, and the counter that the others outvote.

Each rule says how little one counter may show beside what another shows. A broken rule names both.
The counter that most sources contradict is unknown for that time; of two that only contradict each
other neither is believed, but for power. The counters of the profiling module fail together and
are one source. docs/what-is-believed.md has the table, and the measurements behind the limits.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from collectors.readings.metric_names import UTILIZATION_PREFERENCE
from data.base.units import IDLE_RATIO, SLOT_SECONDS
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.columns import ACTIVITY, CONTRADICTIONS, SAMPLES, check_frame, empty_frame

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.integer[Any]]

REST_FACTOR, REST_POWER_RATIO = 2.5, 0.45
"""Without work a board draws at most so many times its idle power, and so much of its limit."""
WORK_TOLERANCE = 0.05
"""By how much activity may fall short of the work that power asks for; 0.03 was measured."""
REST_CLAIM = 0.1
"""A counter at most this high says that the board rests, which must hold reading by reading."""
WORK_CLAIM = 0.5
"""A counter above this says that the board works: it then draws more than at rest."""
_BUSY = 0.9
"""GPU_UTIL above this does, by itself: it counts the time between two kernels as work."""
_SOME_WORK = 0.02
_APART, _ERRORS = 0.1, 3.0
"""GPU_UTIL and power are of a moment where profiling counters are means of seconds: means of
readings are compared, and differ by this and by so many standard errors of a mean of moments.
"""
_TOO_LITTLE, _FEW_ERRORS = 1 / 3, 1.5
_INSIDE = 0.15
"""An SM, a tensor core or memory is at work while the engine is, but for rounding and copies."""
_NEIGHBOURS = (9, 145)
"""Readings that means are taken over: few tell soon, many tell small differences."""
_FROZEN, _MOVES, _OFTEN = 9, 0.4, 3
"""A counter shows one value for so many readings while another moves by so much, there and back."""
_ENDS = 0.02
"""So near to 0 and to 1 a counter may stay while others move: one small kernel is 1 to GPU_UTIL."""
_SLOT_SHARE = 0.25
"""A counter that is contradicted in more than this share of a slot's readings is in it."""

_SLOT_KEY = ("slot_start", "gpu_uuid", "mig_instance")
_ACTIVITY_COLUMNS = {
    "gr_engine_active": "engine_active",
    "gpu_util": "engine_active",
    "power_watts": "power_ratio",
}

_PROFILED = ("gr_engine_active", "sm_active", "tensor_active", "dram_active")
_SOURCES = {**dict.fromkeys(_PROFILED, 0), "gpu_util": 1, "power_watts": 2}
COUNTERS = tuple(_SOURCES)
"""The counters that are held against each other; power as a share of its limit, the others 0..1."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """`low` may not show less than `least` of what `high` shows, in the mean of some readings.

    `at_once`: in a single reading, of a counter that says that the board rests, and that shows far
    too little in that mean. `of_moments`: one of the two is of a moment, and its mean has an error.
    """

    low: str
    high: str
    least: Callable[[Floats], Floats]
    at_once: bool = False
    of_moments: bool = False


def _apart(high: Floats) -> Floats:
    return high - _APART


_RULES = (
    _Rule("gr_engine_active", "gpu_util", lambda high: high / 10 - 0.005, at_once=True),
    _Rule("sm_active", "gpu_util", lambda high: high / 200 - 0.0005, at_once=True),
    *(
        rule
        for low in ("gr_engine_active", "sm_active", "gpu_util")
        for rule in (
            _Rule(low, "power_watts", lambda high: high - WORK_TOLERANCE, at_once=True),
            _Rule(low, "power_watts", _apart, of_moments=True),
        )
    ),
    *(_Rule("gpu_util", high, _apart, of_moments=True) for high in _PROFILED),
    *(_Rule("gr_engine_active", high, lambda high: high - _INSIDE) for high in _PROFILED[1:]),
    _Rule("sm_active", "tensor_active", lambda high: high - _INSIDE),
    _Rule(
        "sm_active", "gr_engine_active", lambda high: np.where(high > _SOME_WORK, high / 100, -1.0)
    ),
)


@dataclass(frozen=True, slots=True, eq=False)
class _Window:
    """Readings of the same device around each: the first, and the one after the last."""

    first: Numbers
    last: Numbers

    @classmethod
    def of(cls, device: Numbers, length: int) -> "_Window":
        """Return the windows of `length` readings where `device` is in order."""
        place = np.arange(len(device))
        edges = np.flatnonzero(np.diff(device, prepend=device[:1] - 1, append=device[-1:] - 1))
        segment = np.searchsorted(edges, place, "right")
        first = np.maximum(place - length // 2, edges[segment - 1])
        return cls(first, np.minimum(place + length // 2 + 1, edges[segment]))

    def sums(self, values: npt.NDArray[Any]) -> Floats:
        """Return the sum of the window of each reading."""
        total = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
        return np.asarray(total[self.last] - total[self.first], dtype=np.float64)

    def means(self, values: Floats) -> Floats:
        """Return the mean of the known readings, NaN where there is none."""
        valued = ~np.isnan(values)
        count = self.sums(valued)
        total = self.sums(np.where(valued, values, 0.0))
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    def errors(self, *means: Floats) -> Floats:
        """Return the standard error of a mean of moments that are 0 or 1."""
        variance = np.max([mean * (1 - mean) for mean in means], axis=0)
        return np.asarray(np.sqrt(np.clip(variance, 0, 1) / (self.last - self.first)))


@dataclass(frozen=True, slots=True, eq=False)
class _Means:
    """Means by counter, of all readings: without single ones they would be of other moments."""

    window: _Window
    of: Mapping[str, Floats]

    def broken(self, rule: _Rule) -> Flags:
        """Return a mask of the means of two counters that break a rule."""
        low, high = self.of[rule.low], self.of[rule.high]
        if rule.at_once and rule.high == "power_watts":
            # Of bursts of seconds a mean shows a little where a moment shows all or nothing.
            return np.asarray(low < _TOO_LITTLE * high)
        if rule.at_once:
            # GPU_UTIL also overstates, as it counts the time between two kernels.
            sure = high - _FEW_ERRORS * self.window.errors(high)
            return np.asarray(low < np.minimum(_TOO_LITTLE * sure, rule.least(sure)))
        error = _ERRORS * self.window.errors(low, high) if rule.of_moments else np.zeros(len(low))
        return np.asarray(low < rule.least(high) - error)


def contradicted(
    readings: Mapping[str, Floats], at_rest: Flags, device: Numbers, watts: Floats
) -> dict[str, Flags]:
    """Return by counter in which readings the others contradict it.

    `readings` has arrays of COUNTERS, NaN where unknown, ordered by device and time; power as the
    work that it asks for, 0 for the most without work and 1 for its limit. `at_rest` says where
    power is that of a board without a program, `watts` is the power itself. Shapes: all alike.
    """
    names = [name for name in COUNTERS if name in readings]
    outvoted = _frozen(readings, device, watts)
    valid = {name: np.where(outvoted[name], np.nan, readings[name]) for name in names}
    windows = [_Window.of(device, length) for length in _NEIGHBOURS]
    means = [
        _Means(window, {name: window.means(values) for name, values in valid.items()})
        for window in windows
    ]
    resting = windows[0].means(at_rest.astype(float)) == 1.0
    still = _runs(readings["gpu_util"], device)[1] if "gpu_util" in readings else ~resting
    # What one counter hides is seen once that counter is left out.
    for _round in range(2):
        for name, flags in _outvoted(valid, means, resting, still).items():
            outvoted[name] |= flags
            valid[name][flags] = np.nan
    return outvoted


def _runs(values: Floats, device: Numbers) -> tuple[Numbers, Flags]:
    """Return the number of the run of one value that each reading is in, and whether it is long."""
    changes = np.append(True, (values[1:] != values[:-1]) | (device[1:] != device[:-1]))
    runs = np.cumsum(changes) - 1
    return runs, (np.bincount(runs) >= _FROZEN)[runs]


def _frozen(readings: Mapping[str, Floats], device: Numbers, watts: Floats) -> dict[str, Flags]:
    """Return masks of counters with one value on and on, between its ends, while another moves."""
    frozen = {}
    for name, values in readings.items():
        runs, long = _runs(watts if name == "power_watts" else values, device)
        if name != "power_watts":
            long &= (values > _ENDS) & (values < 1 - _ENDS)
        frozen[name] = np.zeros(len(values), dtype=bool)
        for other in set(readings) - {name}:
            witness = pd.Series(readings[other][long]).groupby(runs[long])
            low, high = witness.transform("min"), witness.transform("max")
            there, back = (
                (distance > _MOVES).groupby(runs[long]).transform("sum") >= _OFTEN
                for distance in (readings[other][long] - low, high - readings[other][long])
            )
            frozen[name][long] |= (there & back).to_numpy()
    return frozen


def _outvoted(
    valid: Mapping[str, Floats], means: list[_Means], resting: Flags, still: Flags
) -> dict[str, Flags]:
    against = {name: np.zeros((3, len(resting)), dtype=bool) for name in valid}
    for low, high, broken in _broken(valid, means, resting, still):
        against[low][_SOURCES[high]] |= broken
        against[high][_SOURCES[low]] |= broken
    # Power is measured by the board itself: where it is one against one, it is kept.
    votes = {
        name: sources.sum(axis=0) - 0.5 * (name == "power_watts")
        for name, sources in against.items()
    }
    most = np.max([*votes.values(), np.full(len(resting), 0.5)], axis=0)
    return {name: (count == most) & (most > 0.5) for name, count in votes.items()}


def _broken(
    valid: Mapping[str, Floats], means: list[_Means], at_rest: Flags, still: Flags
) -> Iterator[tuple[str, str, Flags]]:
    """Yield (low counter, high counter, where they contradict each other)."""
    for rule in _RULES:
        if rule.low not in valid or rule.high not in valid:
            continue
        low, high = valid[rule.low], valid[rule.high]
        scales = means if rule.at_once or rule.of_moments else means[:1]
        broken = np.any([scale.broken(rule) for scale in scales], axis=0)
        if rule.at_once:
            broken &= (low <= REST_CLAIM) & (low < rule.least(high))
        # Neighbours tell nothing of a reading that is not there.
        yield rule.low, rule.high, broken & ~np.isnan(low) & ~np.isnan(high)
    if "power_watts" not in valid:
        return
    resting = at_rest & ~np.isnan(valid["power_watts"])
    activity = means[0].of
    for name in set(valid) - {"power_watts"}:
        # Of work the whole percents of GPU_UTIL vary.
        claim = np.where(still, WORK_CLAIM, _BUSY) if name == "gpu_util" else WORK_CLAIM
        works = (activity[name] > claim) & ~np.isnan(valid[name])
        if name != "sm_active" and "sm_active" in valid:
            # One small kernel keeps engine and GPU_UTIL at 1: where SMs tell of it, they decide.
            some = (activity["sm_active"] > _SOME_WORK) & (activity["sm_active"] <= WORK_CLAIM)
            works &= ~some
        yield "power_watts", name, resting & works


def believed_samples(
    samples: pd.DataFrame, counters: Mapping[str, Floats], catalogue: GpuCatalogue
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return samples (SAMPLES) without contradicted counters, and these by slot (CONTRADICTIONS).

    `counters` are arrays beside the samples by name of COUNTERS, power apart. Where one is unknown
    the next signal tells the utilization. Holders of one device share its readings. Of a MIG
    instance the board's power tells nothing.
    """
    if samples.empty:
        return samples, empty_frame(CONTRADICTIONS)
    power, limit, idle, rest = _power_of(samples, catalogue)
    keys = samples[["gpu_uuid", "mig_instance"]]
    device = keys.groupby(["gpu_uuid", "mig_instance"], sort=False).ngroup().to_numpy()
    at = samples["sampled_at"].to_numpy()
    readings = {**counters, "power_watts": power / limit}
    order = np.lexsort((at, device))
    loaded = np.fmin(REST_FACTOR * idle / limit, REST_POWER_RATIO)
    work = {"power_watts": np.maximum(readings["power_watts"] - loaded, 0) / (1 - loaded)}
    ordered = {name: values[order] for name, values in (readings | work).items()}
    flags = {name: np.zeros(len(samples), dtype=bool) for name in readings}
    ordered_flags = contradicted(ordered, (power <= rest)[order], device[order], power[order])
    for name, flag in ordered_flags.items():
        flags[name][order] = flag
    signals = [name for name in UTILIZATION_PREFERENCE if name in counters]
    valid = {name: np.where(flags[name], np.nan, counters[name]) for name in signals}
    ratio, signal = _utilization(valid, device, order)
    doubtful = np.any([np.zeros(len(ratio), dtype=bool), *map(flags.__getitem__, signals)], axis=0)
    # Where nothing is doubtful the collector's own choice stands, also of what it converted.
    replaced = doubtful | (_rests(samples["utilization_ratio"].to_numpy()) & ~_rests(ratio))
    if not replaced.any() and not any(flag.any() for flag in flags.values()):
        return samples, empty_frame(CONTRADICTIONS)
    believed = samples.assign(
        utilization_ratio=np.where(replaced, ratio, samples["utilization_ratio"]),
        utilization_signal=np.where(replaced, signal, samples["utilization_signal"]),
        power_watts=samples["power_watts"].where(~flags["power_watts"]),
    )
    return check_frame(believed, SAMPLES), _by_slot(samples, readings, flags)


def _rests(ratio: Floats) -> Flags:
    """Return the mask of utilizations that say that the board does nothing; unknown ones do not."""
    return ratio <= IDLE_RATIO


def _utilization(
    valid: Mapping[str, Floats], device: Numbers, order: Numbers
) -> tuple[Floats, npt.NDArray[np.object_]]:
    """Return the utilization that the preferred known counter tells, NaN for none, and its name.

    Of one that rests while another shows some work, in that reading and in the mean around it,
    the other tells it: a wrong idle costs more than a utilization that is told too high.
    """
    length = len(device)
    ratio, signal = np.full(length, np.nan), np.full(length, "", dtype=object)
    for name in reversed(UTILIZATION_PREFERENCE):
        if name in valid:
            reads = ~np.isnan(valid[name])
            ratio, signal = np.where(reads, valid[name], ratio), np.where(reads, name, signal)
    rests = _rests(ratio)
    some_work = {name: rests & (values > _SOME_WORK) for name, values in valid.items()}
    if not any(flags.any() for flags in some_work.values()):
        return ratio, signal
    window = _Window.of(device[order], _NEIGHBOURS[0])
    for name in reversed(UTILIZATION_PREFERENCE):
        if name in valid:
            means = np.empty(length)
            means[order] = window.means(valid[name][order])
            works = some_work[name] & (means > _SOME_WORK)
            ratio, signal = np.where(works, valid[name], ratio), np.where(works, name, signal)
    return ratio, signal


def without_counters(activity: pd.DataFrame, contradictions: pd.DataFrame) -> pd.DataFrame:
    """Return activity (ACTIVITY) in which contradicted counters are unknown."""
    if activity.empty or contradictions.empty:
        return activity
    believed = activity.set_index(list(_SLOT_KEY))
    for counter, rows in contradictions.groupby("counter"):
        name = _ACTIVITY_COLUMNS.get(str(counter), str(counter))
        places = pd.MultiIndex.from_frame(rows[list(_SLOT_KEY)])
        believed.loc[believed.index.isin(places), name] = np.nan
    return check_frame(believed.reset_index(), ACTIVITY)


def _power_of(
    samples: pd.DataFrame, catalogue: GpuCatalogue
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the power of whole boards, its limit, idle power and its highest, in W or NaN."""
    models = {name: catalogue.find(name) for name in samples["gpu_model"].unique()}
    tdp, idle, rest = (
        samples["gpu_model"]
        .map({name: getattr(model, what) if model else np.nan for name, model in models.items()})
        .to_numpy(dtype=float)
        for what in ("tdp_watts", "idle_watts", "idle_watts_high")
    )
    is_board = (samples["mig_instance"] == "").to_numpy()
    limit = samples["power_limit_watts"].to_numpy(dtype=float)
    power = np.where(is_board, samples["power_watts"].to_numpy(dtype=float), np.nan)
    return power, np.where(limit > 0, limit, tdp), idle, rest


def _by_slot(
    samples: pd.DataFrame, readings: Mapping[str, Floats], flags: Mapping[str, Flags]
) -> pd.DataFrame:
    """Return the slots in which counters are contradicted, with what they and the others showed."""
    slots = samples["sampled_at"].dt.floor(f"{SLOT_SECONDS}s")
    keys = samples[["gpu_uuid", "mig_instance"]].assign(slot_start=slots)
    values_by_counter = pd.concat([keys, pd.DataFrame(dict(readings))], axis=1)
    rows = [empty_frame(CONTRADICTIONS)]
    for name, flag in flags.items():
        share = keys.assign(flag=flag).groupby(list(_SLOT_KEY))["flag"].mean()
        means = values_by_counter[flag].groupby(list(_SLOT_KEY)).mean()
        means = means[share[means.index] > _SLOT_SHARE].reset_index()
        others = [other for other in flags if other != name]
        texts = [_text(others, values) for values in means[others].to_numpy()]
        slots_of_counter = means.assign(counter=name, reading=means[name], others=texts)
        rows.append(check_frame(slots_of_counter[list(CONTRADICTIONS.names)], CONTRADICTIONS))
    return pd.concat(rows, ignore_index=True)


def _text(names: list[str], values: Floats) -> str:
    """Return the other counters in percent, power of its limit."""
    return ", ".join(
        f"{name} {100 * value:.0f} %"
        for name, value in zip(names, values, strict=True)
        if not np.isnan(value)
    )
