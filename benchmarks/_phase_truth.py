"""Change points and periods found on made traces of known truth, by Trimtab and its peers."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import ruptures

from forecasting.phases.change_points import change_points, noise_scale
from forecasting.phases.detect import find_phases
from forecasting.phases.epoch_period import autocorrelation_period
from forecasting.phases.records import PhaseKind, Phases

TRACES = 120
REGULAR = 80
SNRS = (2.5, 3.5, 5.0, 6.0, 8.0, 12.0, 20.0, 40.0)
STEP_SECONDS = 2.0

Floats = npt.NDArray[np.float64]
Finder = Callable[[Floats], list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One made trace: values in W, its true changes, its SNR, its period in samples or None."""

    values: Floats
    changes: tuple[int, ...]
    snr: float
    period: int | None


def make_trace(number: int) -> Trace:
    """Return the trace of that number."""
    rng = np.random.default_rng(10_000 + number)
    snr = SNRS[number % len(SNRS)]
    noise = float(rng.uniform(4.0, 20.0))
    depth = snr * noise
    warm, tail = (int(rng.integers(5, 30)) for _ in range(2))
    period, dip = int(rng.integers(25, 90)), int(rng.integers(2, 9))
    dips = int(rng.integers(4, 16))
    if number < REGULAR:
        gaps = np.full(dips, period)
    else:
        gaps = rng.integers(dip + 8, 3 * period, size=dips)
    starts = warm + np.cumsum(gaps)
    length = int(starts[-1]) + period + tail
    values = np.full(length, 60 * noise)
    values[:warm] -= 1.3 * depth
    for start in starts:
        values[start : start + dip] -= depth
    values[-tail:] -= 1.6 * depth
    edges = [warm, *(edge for start in starts for edge in (start, start + dip)), length - tail]
    return Trace(
        values=values + rng.normal(scale=noise, size=length),
        changes=tuple(int(edge) for edge in edges),
        snr=snr,
        period=period if number < REGULAR else None,
    )


def by_kernel(factor: float) -> Finder:
    """Return ruptures' KernelCPD with a penalty of factor times ln n."""

    def find(values: Floats) -> list[int]:
        scaled = (values / noise_scale(values))[:, None]
        search = ruptures.KernelCPD(kernel="linear", min_size=2).fit(scaled)
        found: list[int] = search.predict(pen=factor * np.log(len(values)))[:-1]
        return found

    return find


def by_cusum(values: Floats) -> list[int]:
    """Return the alarms of a two-sided CUSUM, k = 1, h = 8, dated to where its sum left zero."""
    scaled = values / noise_scale(values)
    found, begin, mean, seen = [], 0, float(scaled[0]), 1
    high = low = 0.0
    high_from = low_from = 1
    for index in range(1, len(scaled)):
        away = scaled[index] - mean
        high, low = max(0.0, high + away - 1), max(0.0, low - away - 1)
        high_from = high_from if high else index + 1
        low_from = low_from if low else index + 1
        if max(high, low) > 8:
            begin = high_from if high > low else low_from
            found.append(begin)
            part = scaled[begin : index + 1]
            mean, seen, high, low = float(part.mean()), len(part), 0.0, 0.0
            high_from = low_from = index + 1
        else:
            seen += 1
            mean += away / seen
    return found


def by_jumps(values: Floats) -> list[int]:
    """Return the samples that differ from the one before by more than eight deviations."""
    return list(1 + np.flatnonzero(np.abs(np.diff(values)) > 8 * noise_scale(values)))


def edges_of(phases: Phases) -> list[int]:
    """Return where segments begin, the first left out."""
    return [segment.start for segment in phases.segments[1:]]


FINDERS: dict[str, Finder] = {
    "**change points, 2.5 ln n (offline)**": lambda values: list(change_points(values)),
    "**segments of `find_phases`**": lambda v: edges_of(find_phases(v, STEP_SECONDS)),
    "KernelCPD linear, 4 ln n": by_kernel(4),
    "KernelCPD linear, 10 ln n": by_kernel(10),
    "CUSUM k = 1, h = 8": by_cusum,
    "jumps above 8 deviations": by_jumps,
}


def matched(found: list[int], truth: tuple[int, ...]) -> int:
    """Return how many true changes have a found one of their own within one sample."""
    free, count = sorted(found), 0
    for change in truth:
        near = next((entry for entry in free if abs(entry - change) <= 1), None)
        if near is not None:
            free.remove(near)
            count += 1
    return count


def f1(pairs: list[tuple[list[int], tuple[int, ...]]]) -> float:
    """Return F1 over traces, changes pooled."""
    right = sum(matched(found, truth) for found, truth in pairs)
    total = sum(len(found) + len(truth) for found, truth in pairs)
    return 2 * right / total if total else float("nan")


def microseconds_per_sample(find: Finder, traces: list[Trace]) -> float:
    """Return the processor time per sample, the best of three passes."""
    samples = sum(len(trace.values) for trace in traces)
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        for entry in traces:
            find(entry.values)
        best = min(best, time.process_time() - began)
    return 1e6 * best / samples


def change_rows(traces: list[Trace]) -> list[str]:
    """Return the table of change points."""
    rows = [
        "| changes within ±1 sample | F1 all | SNR ≥ 6 | SNR 5 | SNR < 4 | µs per sample |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, find in FINDERS.items():
        found = [(trace, find(trace.values)) for trace in traces]
        groups = (
            [(ours, entry.changes) for entry, ours in found if keep(entry.snr)]
            for keep in (
                lambda snr: True,
                lambda snr: snr >= 6,
                lambda snr: snr == 5,
                lambda snr: snr < 4,
            )
        )
        scores = " | ".join(f"{f1(group):.3f}" for group in groups)
        rows.append(f"| {name} | {scores} | {microseconds_per_sample(find, traces):.2f} |")
    return rows


def by_gaps(values: Floats) -> float | None:
    """Return the median gap between dips, with three gaps or more."""
    phases = find_phases(values, STEP_SECONDS)
    starts = [segment.start for segment in phases.segments if segment.kind is PhaseKind.DIP]
    return float(np.median(np.diff(starts))) if len(starts) > 3 else None


def by_fourier(values: Floats) -> float | None:
    """Return the period of the highest Fourier peak of at least three cycles."""
    spectrum = np.abs(np.fft.rfft(values - values.mean()))
    spectrum[:3] = 0
    return len(values) / int(spectrum.argmax())


def by_agreement(values: Floats) -> float | None:
    """Return the epoch of `find_phases` in samples."""
    seconds = find_phases(values, STEP_SECONDS).epoch.seconds
    return None if seconds is None else seconds / STEP_SECONDS


def period_rows(traces: list[Trace]) -> list[str]:
    """Return the table of periods."""
    rows = [
        "| period | right (±5 %) of 80 | unknown | wrong | period claimed on 40 irregular |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, find in (
        ("**gaps and autocorrelation agree**", by_agreement),
        ("gap between dips alone", by_gaps),
        ("autocorrelation alone", autocorrelation_period),
        ("highest Fourier peak", by_fourier),
    ):
        said = [(trace.period, find(trace.values)) for trace in traces]
        regular = [(period, ours) for period, ours in said if period]
        right = sum(ours is not None and abs(ours / entry - 1) <= 0.05 for entry, ours in regular)
        unknown = sum(ours is None for _, ours in regular)
        claimed = sum(period is None and ours is not None for period, ours in said)
        wrong = len(regular) - right - unknown
        rows.append(f"| {name} | {right} | {unknown} | {wrong} | {claimed} |")
    return rows
