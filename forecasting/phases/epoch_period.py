"""The period in seconds of a job's dips, or the reason why it is unknown.

Two measures must agree: the gap between dips, and the autocorrelation. Alone each is right on
about four series in five; a Fourier peak on half of them, and it always invents a number.
"""

import math

import numpy as np
import numpy.typing as npt

from forecasting.phases.records import Recurrence

Values = npt.NDArray[np.float64]

MIN_GAPS = 3
AGREEMENT = 0.1
"""The two measures may differ by this share of one period; integer multiples count as agreement."""
MAX_MULTIPLE = 4
MAX_SPREAD = 0.25
"""Gaps further than this from multiples of their median are irregular (robust deviation; gaps
without any order have 0.37): their median is no period."""
_CLIP_AT = 0.7
_FIRST_PEAK = 0.85
_MIN_CORRELATION = 0.2
_MIN_CYCLES = 3
_MAX_EXACT = 1 << 18


def recurrence(values: Values, starts: npt.ArrayLike, *, step_seconds: float) -> Recurrence:
    """Return the recurrence of dips that begin at the samples `starts`, ascending.

    `values` has NaN where unknown, shape (n,).
    """
    begins = np.asarray(starts, dtype=np.float64)
    if len(begins) < MIN_GAPS + 1:
        return Recurrence(
            seconds=None,
            phase_seconds=None,
            reason=f"{len(begins)} dips seen; {MIN_GAPS + 1} are needed",
        )
    by_correlation = autocorrelation_period(values)
    gaps = np.diff(begins)
    gap = float(np.median(gaps))
    reason = _disagreement(gaps, gap, by_correlation)
    if reason:
        return Recurrence(seconds=None, phase_seconds=None, reason=reason)
    # Where the correlation is the shorter by a multiple, dips in between were missed.
    period, phase = _regular_grid(begins, min(gap, by_correlation or gap))
    return Recurrence(
        seconds=period * step_seconds,
        phase_seconds=phase * step_seconds,
        reason=f"{len(gaps)} gaps between dips and the autocorrelation agree",
    )


def _disagreement(gaps: Values, gap: float, by_correlation: float | None) -> str:
    """Return the reason why the gaps give no period, '' where they do."""
    skipped = np.maximum(1.0, np.round(gaps / gap))
    spread = 1.4826 * float(np.median(np.abs(gaps - skipped * gap))) / gap
    if spread > MAX_SPREAD:
        return f"the gaps between dips are irregular (spread {spread:.0%} of their median)"
    if by_correlation is None:
        return "the series does not resemble itself shifted (no autocorrelation peak)"
    ratio = max(gap, by_correlation) / min(gap, by_correlation)
    if abs(ratio - round(ratio)) > AGREEMENT or round(ratio) > MAX_MULTIPLE:
        return f"gaps and autocorrelation disagree (ratio {ratio:.2f})"
    return ""


def _regular_grid(begins: Values, gap: float) -> tuple[float, float]:
    """Return period and phase of the grid through the dips, by least squares.

    Every dip counts from its predecessor, so that missed dips skip grid lines and drift does not
    add up; dips off the grid by more than a quarter of a period are left out.
    """
    numbers = np.cumsum(np.concatenate([[0.0], np.maximum(1.0, np.round(np.diff(begins) / gap))]))
    keep = np.ones(len(begins), dtype=bool)
    period, phase = gap, float(begins[0])
    for _ in range(2):
        centred = numbers[keep] - numbers[keep].mean()
        weight = float(centred @ centred)
        if weight == 0.0:
            break
        period = float(centred @ begins[keep]) / weight
        phase = float(begins[keep].mean() - period * numbers[keep].mean())
        keep = np.abs(begins - phase - period * numbers) <= period / 4
        if not keep.any():
            return gap, float(begins[0] % gap)
    return period, phase % period


def autocorrelation_period(values: Values) -> float | None:
    """Return the lag in samples at which the series resembles itself first, or None.

    Values are clipped from below at 0.7 of their median, so that deep dips do not outweigh many;
    the unbiased autocorrelation's first peak of at least 0.85 of its highest, and above 0.2, with
    at least three cycles in the series. Unknown samples count as nothing. Longer series than
    262,144 samples are read at their end.
    """
    recent = values[-_MAX_EXACT:]
    finite = np.isfinite(recent)
    if finite.sum() < 2 * _MIN_CYCLES:
        return None
    median = float(np.median(recent[finite]))
    clipped = np.maximum(recent, _CLIP_AT * median) if median > 0 else recent
    centred = np.where(finite, clipped - clipped[finite].mean(), 0.0)
    largest = float(np.abs(centred).max())
    if largest <= 1e-9 * abs(median) or largest == 0.0:
        return None
    correlation = _unbiased_autocorrelation(centred / largest, finite)
    return _first_peak(correlation[: len(recent) // _MIN_CYCLES + 1])


def _unbiased_autocorrelation(centred: Values, finite: npt.NDArray[np.bool_]) -> Values:
    """Return the autocorrelation at every lag, each over the pairs that are known."""
    size = 1 << math.ceil(math.log2(2 * len(centred)))
    products = np.fft.irfft(np.abs(np.fft.rfft(centred, size)) ** 2, size)[: len(centred)]
    pairs = np.fft.irfft(np.abs(np.fft.rfft(finite.astype(float), size)) ** 2, size)[: len(centred)]
    mean = products / np.maximum(np.round(pairs), 1.0)
    return np.asarray(mean / mean[0]) if mean[0] > 0 else np.zeros(len(centred))


def _first_peak(correlation: Values) -> float | None:
    """Return the lag of the first high peak, refined by the parabola through its neighbours."""
    if len(correlation) < 4:
        return None
    inner = correlation[1:-1]
    peak = (inner >= correlation[:-2]) & (inner > correlation[2:]) & (inner > _MIN_CORRELATION)
    peaks = 1 + np.flatnonzero(peak)
    if len(peaks):
        # Before the correlation first falls off, a peak is noise on the central one.
        fallen = np.flatnonzero(correlation < _MIN_CORRELATION)
        peaks = peaks[peaks > fallen[0]] if len(fallen) else peaks[:0]
    if not len(peaks):
        return None
    high = peaks[correlation[peaks] >= _FIRST_PEAK * correlation[peaks].max()]
    lag = int(high[0])
    before, here, after = correlation[lag - 1 : lag + 2]
    curve = before - 2 * here + after
    return float(lag + (0.5 * (before - after) / curve if curve < 0 else 0.0))
