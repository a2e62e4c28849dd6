"""Step-time parameters from the steps that a job has shown so far, as Pollux's agent fits them."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, minimize  # type: ignore[import-untyped]

from benchmarks.simulation.fit_kernel import misfit

Profile = Mapping[tuple[int, int, int], tuple[float, float]]
"""(nodes, GPUs, local batch) to (seconds of a step, seconds of it that wait for the network)."""

StepParameters = tuple[float, float, float, float, float, float, float]
_SMALLEST = 1e-8


def fit_step_parameters(profile: Profile) -> StepParameters:
    """Return (alpha_c, beta_c, alpha_n, beta_n, alpha_r, beta_r, gamma) of a profile, not empty.

    What was never seen (several nodes, several GPUs, more than two, two local batches) is set so
    that it costs nothing: a job scales perfectly until it has shown that it does not.
    """
    keys = np.array(list(profile), dtype=np.int64)
    times = np.array(list(profile.values()), dtype=np.float64)
    nodes, gpus, local = keys[:, 0].copy(), keys[:, 1].copy(), keys[:, 2].astype(np.float64)
    step_seconds = times[:, 0].copy()
    grad_seconds = np.maximum(times[:, 0] - times[:, 1], 1e-6)
    start = np.array([1e-1, 1e-2] * 3 + [1.0 + 1e-3])
    lower, upper = np.array([_SMALLEST] * 6 + [1.0]), np.array([np.inf] * 6 + [10.0])

    def pin(index: int, value: float) -> None:
        start[index] = lower[index] = upper[index] = value

    several = bool((nodes > 1).any())
    if len(np.unique(local)) == 1:
        pin(0, float(grad_seconds.mean() / 2))
    if not several:
        pin(2, _SMALLEST)
        pin(3, _SMALLEST)
    if not ((nodes == 1) & (gpus > 1)).any():
        pin(4, _SMALLEST)
        pin(5, _SMALLEST)
    if not (gpus > 2).any():
        pin(3, _SMALLEST)
        pin(5, _SMALLEST)
    gradient = np.empty(7)

    def value_and_gradient(
        theta: npt.NDArray[np.float64],
    ) -> tuple[float, npt.NDArray[np.float64]]:
        value = misfit(theta, nodes, gpus, local, grad_seconds, step_seconds, gradient)
        return value, gradient.copy()

    found = minimize(
        value_and_gradient,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(lower, upper, keep_feasible=True),
        tol=1e-5,
    ).x
    if not several:
        found[2], found[3] = max(found[2], 1.1 * found[4]), max(found[3], 1.1 * found[5])
    a, b, c, d, e, f, g = (float(entry) for entry in found)
    return a, b, c, d, e, f, g


class StepFits:
    """Fits by content: jobs of one application that saw the same steps share one."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], StepParameters] = {}

    def parameters(self, profile: Profile) -> StepParameters:
        """Return the parameters of a profile."""
        key = tuple(profile.items())
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = fit_step_parameters(profile)
        return found
