"""Work of a replica by token: the seconds of a prompt token and of a generated one.

A service whose prompts grow longer by night does more work for as many requests. Its tokens say so.
"""

import numpy as np

from data.records.recommendations import Range
from data.records.serving import TokenSeconds
from planner.serving.service_model import Floats, ReplicaCarries, ServiceReadings

_PARTS = 4
_MIN_SLOTS = 12
"""Of a part of the day: an hour."""
_MIN_SPREAD = 0.05
"""Of the smaller singular value: about where the mix of the slots varies by a tenth."""


def token_seconds(readings: ServiceReadings) -> TokenSeconds | None:
    """Return the seconds by least squares over the slots to learn from, never below 0.

    None where the engine times no requests or tells no tokens, or less than four hours of them, and
    where all slots mix both alike: requests then tell as much.
    """
    seconds, _counts = readings.served
    prompt, generated = (
        tokens[readings.lately] for tokens in (readings.prompt, readings.generated)
    )
    usable = np.isfinite(seconds) & np.isfinite(prompt) & np.isfinite(generated)
    usable &= (seconds > 0) & (prompt + generated > 0)
    tokens, seconds = np.column_stack([prompt, generated])[usable], seconds[usable]
    if len(seconds) < _PARTS * _MIN_SLOTS or not _differ(tokens):
        return None
    central = _fitted(tokens, seconds)
    parts = np.array_split(np.arange(len(seconds)), _PARTS)
    fits = np.array([central, *(_fitted(tokens[part], seconds[part]) for part in parts)])
    prompt_range, generated_range = (
        Range(low=low, central=middle, high=high, unit="s/token")
        for low, middle, high in zip(
            fits.min(axis=0).tolist(), central.tolist(), fits.max(axis=0).tolist(), strict=True
        )
    )
    return TokenSeconds(prompt=prompt_range, generated=generated_range)


def _differ(tokens: Floats) -> bool:
    """Return whether slots mix the two kinds differently: else none can be told from the other."""
    sizes = np.linalg.norm(tokens, axis=0)
    if not sizes.all():
        return False
    highest, lowest = np.linalg.svd(tokens / sizes, compute_uv=False)
    return bool(lowest >= _MIN_SPREAD * highest)


def _fitted(tokens: Floats, seconds: Floats) -> Floats:
    """Return the two coefficients of least squares that are at least 0."""
    # Deferred: half of what SciPy takes to load, for services that tell tokens alone.
    from scipy.optimize import nnls  # type: ignore[import-untyped]

    return np.asarray(nnls(tokens, seconds)[0], dtype=np.float64)


def demand(readings: ServiceReadings, carries: ReplicaCarries, each: TokenSeconds) -> Floats:
    """Return the arrivals by slot, in requests of the day's mean seconds.

    What ended counts by its tokens, where these are known; what the queue grew by as it is.
    """
    work = each.prompt.central * readings.prompt + each.generated.central * readings.generated
    ended = work / carries.service_seconds.central
    grown = readings.arrivals - readings.finished
    return np.maximum(np.where(np.isfinite(ended), ended, readings.finished) + grown, 0.0)
