"""Lower bounds on the bins of every moment: volume, L2 and dual feasible functions.

What one moment needs is a plain bin packing problem, and so are its bounds. A dual feasible
function maps sizes to [0, 1] such that what fits into a bin maps to at most 1; the sum over the
active items, rounded up, is a bound. L2: Martello and Toth (1990). Functions u(k) composed with
the threshold U(eps), and phi(eps): Fekete and Schepers (2001), section 3.
"""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_ROUNDING = 1e-9
_MAX_K = 7
_MAX_THRESHOLDS = 512
_THRESHOLDS_OF_LARGE = 128


def thresholds(distinct: Ints, capacity: int) -> Ints:
    """Return thresholds eps worth trying: all up to half the bin, or only where sizes change."""
    half = capacity // 2
    if half <= _MAX_THRESHOLDS:
        return np.arange(1, half + 1)
    sizes = np.unique(np.append(distinct[distinct <= half], half))
    spread = np.linspace(0, len(sizes) - 1, min(len(sizes), _THRESHOLDS_OF_LARGE)).astype(np.int64)
    return np.asarray(sizes[spread])


def volume_bound(counts: Ints, distinct: Ints, capacity: int) -> Ints:
    """Return ceil(load / capacity) per slot."""
    return np.asarray(-(-(counts @ distinct) // capacity))


def l2_bound(counts: Ints, distinct: Ints, capacity: int) -> Ints:
    """Return L2 per slot: items above half a bin count whole, those below a threshold not at all.

    For threshold a: max(|w > C/2|, |w > C - a| + ceil(sum of a <= w <= C - a over C)).
    """
    large = counts[:, 2 * distinct > capacity].sum(axis=1)
    best = large
    for threshold in np.append(0, thresholds(distinct, capacity)):
        alone = distinct > capacity - threshold
        rest = np.where((distinct >= threshold) & ~alone, distinct, 0)
        bound = counts[:, alone].sum(axis=1) - (-(counts @ rest) // capacity)
        best = np.maximum(best, bound)
    return np.asarray(best)


def dual_feasible_functions(distinct: Ints, capacity: int) -> Floats:
    """Return the values [functions, m] of the family on the distinct sizes."""
    eps = thresholds(distinct, capacity)[:, None]
    ratio = distinct / capacity
    rounded = [np.broadcast_to(ratio, ratio.shape)]
    for k in range(1, _MAX_K + 1):
        scaled = (k + 1) * distinct
        rounded.append(np.where(scaled % capacity == 0, ratio, scaled // capacity / k))
    high, low = distinct > capacity - eps, distinct < eps
    families = [np.where(high, 1.0, np.where(low, 0.0, values)) for values in rounded]
    pieces = capacity // eps
    phi = np.where(
        2 * distinct > capacity, 1.0 - ((capacity - distinct) // eps) / pieces, 1.0 / pieces
    )
    families.append(np.where(low, 0.0, phi))
    return np.concatenate([*families, ratio[None, :]])


def dual_feasible_bound(counts: Ints, distinct: Ints, capacity: int) -> Ints:
    """Return the best bound of the family per slot; never below L2."""
    if not counts.size:
        return np.zeros(len(counts), dtype=np.int64)
    values = counts @ dual_feasible_functions(distinct, capacity).T
    best = np.ceil(values.max(axis=1) - _ROUNDING).astype(np.int64)
    return np.asarray(np.maximum(best, counts[:, 2 * distinct > capacity].sum(axis=1)))
