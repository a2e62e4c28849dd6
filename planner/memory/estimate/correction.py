"""Finished jobs of a family correct the estimate of the next one, against a strong prior.

The measured peak is modelled as r times the estimate, where r is linear in the shares of what
stays, what comes and goes, and a constant, plus a smooth deviation over the size of the job: a
Gaussian process whose mean is 1 (Rasmussen and Williams, 2006, sections 2.2 and 2.7). With no
finished job the estimate stays as it was; a few runs far from the rest count less, by the weights
of a Student t distribution (Lange et al., 1989).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from planner.memory.estimate.calibration import Calibration, Correction, FinishedRun

Values = npt.NDArray[np.float64]

_SPREAD_STATIC = 0.03
_SPREAD_DYNAMIC = 0.10
_SPREAD_CONSTANT_BYTES = 0.3 * 2**30
_SPREAD_SMOOTH = 0.05
_LENGTH_SCALE = 1.0
"""In doublings of the job's size: runs twice as large say little of each other."""
_NOISE = 0.05
_DEGREES = 1.0
_ROUNDS = 4
_RATIOS = (0.1, 10.0)


def _features(runs: Sequence[FinishedRun]) -> tuple[Values, Values]:
    """Linear features [run, 3] and the size of each run in doublings [run, 2]."""
    static = np.array([run.static_bytes for run in runs])
    dynamic = np.array([run.dynamic_bytes for run in runs])
    total = static + dynamic
    linear = np.column_stack(
        [
            _SPREAD_STATIC * static / total,
            _SPREAD_DYNAMIC * dynamic / total,
            _SPREAD_CONSTANT_BYTES / np.maximum(total, 2**30),
        ]
    )
    sizes = np.column_stack([np.log2(total), np.log2(1 + dynamic / 2**30)])
    return linear, sizes


def _covariance(first: tuple[Values, Values], right: tuple[Values, Values]) -> Values:
    apart = ((first[1][:, None, :] - right[1][None, :, :]) ** 2).sum(axis=2)
    smooth = _SPREAD_SMOOTH**2 * np.exp(-apart / (2 * _LENGTH_SCALE**2))
    covariance: Values = first[0] @ right[0].T + smooth
    return covariance


def correction(
    calibration: Calibration, *, static_bytes: float, dynamic_bytes: float
) -> Correction:
    """Return measured over estimated for a job of the family with this estimate."""
    job = _features(
        [FinishedRun(static_bytes=static_bytes, dynamic_bytes=dynamic_bytes, measured_bytes=1.0)]
    )
    prior = float(_covariance(job, job)[0, 0])
    if not calibration.runs:
        return Correction(ratio=1.0, spread=float(np.sqrt(prior + _NOISE**2)), sample_count=0)
    features = _features(calibration.runs)
    measured = np.array([run.measured_bytes for run in calibration.runs])
    estimated = np.array([run.static_bytes + run.dynamic_bytes for run in calibration.runs])
    deviations = np.clip(measured / estimated, *_RATIOS) - 1.0
    between, to_job = _covariance(features, features), _covariance(features, job)[:, 0]
    noise = np.full(len(deviations), _NOISE**2)
    for _ in range(_ROUNDS):
        factor = np.linalg.cholesky(between + np.diag(noise))
        solved = np.linalg.solve(factor.T, np.linalg.solve(factor, deviations))
        residuals = deviations - between @ solved
        noise = _NOISE**2 * (_DEGREES + (residuals / _NOISE) ** 2) / (_DEGREES + 1)
    factor = np.linalg.cholesky(between + np.diag(noise))
    solved = np.linalg.solve(factor.T, np.linalg.solve(factor, deviations))
    explained = np.linalg.solve(factor, to_job)
    variance = max(prior - float(explained @ explained), 0.0) + float(np.median(noise))
    return Correction(
        ratio=float(np.clip(1.0 + to_job @ solved, *_RATIOS)),
        spread=float(np.sqrt(variance)),
        sample_count=calibration.sample_count,
    )
