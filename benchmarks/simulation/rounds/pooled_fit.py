"""Step-time parameters of the steps of many jobs: the model of Pollux, fitted without iteration.

For a given gamma the model is linear in its other six parameters: computing is a line in the local
batch, and what remains of a step for the network is one in the number of GPUs. So each line is a
least-squares problem of two unknowns, and gamma is the best of a few.
"""

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
StepParameters = tuple[float, float, float, float, float, float, float]
Step = tuple[int, int, float, float, float]
"""Nodes, GPUs, local batch, seconds of a step, seconds of it that compute."""

_GAMMAS = (1.0, 1.25, 1.6, 2.0, 3.0, 5.0, 10.0)
_LEAST = 1e-8
_TRUST = 0.01
"""Weight of what is believed beforehand, beside 1 for every step."""

_FARTHER = 1.1
"""Nodes are at least so much farther from one another than GPUs of one, until seen (Pollux)."""


def pooled_step_parameters(steps: Collection[Step]) -> StepParameters:
    """Return (alpha_c, beta_c, alpha_n, beta_n, alpha_r, beta_r, gamma) of steps, not empty.

    Errors are relative to the whole step. Believed beforehand are: half of computing grows with the
    batch, communication does not grow with the GPUs, and what was never seen costs nothing.
    """
    nodes, gpus, local, total, computing = np.array(list(steps), dtype=np.float64).T
    computing = np.clip(computing, _LEAST, total)
    half = float(np.median(computing)) / 2
    alpha, beta = _line(local, computing, computing, (half, half / float(np.median(local))))
    grad = alpha + beta * local
    best: tuple[float, StepParameters] | None = None
    for gamma in _GAMMAS:
        sync = np.maximum(total**gamma - computing**gamma, 0.0) ** (1 / gamma)
        inside, between = (
            _network(gpus[on], sync[on], total[on]) for on in ((nodes == 1) & (gpus > 1), nodes > 1)
        )
        if not (nodes > 1).any():
            between = (_FARTHER * inside[0], _FARTHER * inside[1])
        first = np.where(nodes > 1, between[0], np.where(gpus > 1, inside[0], 0.0))
        more = np.where(nodes > 1, between[1], np.where(gpus > 1, inside[1], 0.0))
        waiting = first + more * np.maximum(gpus - 2, 0)
        predicted = (grad**gamma + waiting**gamma) ** (1 / gamma)
        misfit = float(np.mean(np.log(predicted / total) ** 2)) + 1e-4 * (gamma - 1) ** 2
        if best is None or misfit < best[0]:
            best = misfit, (alpha, beta, *between, *inside, gamma)
    assert best is not None  # noqa: S101 - there is a gamma
    return best[1]


def _network(gpus: Floats, sync: Floats, total: Floats) -> tuple[float, float]:
    """Return the constant and the growth of communication; nothing where none was seen."""
    if not len(gpus):
        return _LEAST, _LEAST
    return _line(np.maximum(gpus - 2, 0), sync, total, (float(np.median(sync)), 0.0))


def _line(
    at: Floats, seconds: Floats, scale: Floats, believed: tuple[float, float]
) -> tuple[float, float]:
    """Return the line (a, b) of least squared (a + b at - seconds) / scale; neither below 0.

    `believed` is (a, b) beforehand; both count as shares of the seconds, so units do not matter.
    """
    size = max(float(np.median(scale)), _LEAST)
    reach = max(float(at.max()), 1.0)
    columns = np.vstack(
        [
            np.column_stack([1 / scale, at / scale]),
            np.diag([1.0, reach]) * np.sqrt(_TRUST) / size,
        ]
    )
    target = np.append(seconds / scale, np.array(believed) * [1.0, reach] * np.sqrt(_TRUST) / size)
    fit = np.linalg.lstsq(columns, target, rcond=None)[0]
    for row in np.flatnonzero(fit < 0):
        other = columns[:, 1 - row]
        fit[row] = 0.0
        fit[1 - row] = max(float(other @ target / (other @ other)), 0.0)
    return max(float(fit[0]), _LEAST), max(float(fit[1]), _LEAST)
