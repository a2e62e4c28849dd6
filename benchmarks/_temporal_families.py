"""Seeded families of temporal bin packing instances, by the generators of published ones."""

from collections.abc import Iterator

import numpy as np

from planner.temporal.instance import TemporalInstance

SEED = 20200
_DURATIONS = {"Sh": (10, 30), "Lon": (20, 60)}
_SIZES = {"Sm": (25, 50), "Lr": (25, 75)}


def _random(*words: int) -> np.random.Generator:
    return np.random.default_rng([SEED, *words])


def uniform_family(
    counts: tuple[int, ...], *, copies: int
) -> Iterator[tuple[str, TemporalInstance]]:
    """Give instances of the public A1 and A2 kind (Aydin, Muter, Birbil 2020).

    Capacity 100; starts U[1, t] with t = 0.8 n and 1.2 n; durations U[10, 30] or U[20, 60]; sizes
    U[25, 50] or U[25, 75]; all integers, ends included.
    """
    for count in counts:
        for horizon in (4 * count // 5, 6 * count // 5):
            for duration, (shortest, longest) in _DURATIONS.items():
                for size, (smallest, largest) in _SIZES.items():
                    for copy in range(1, copies + 1):
                        rng = _random(count, horizon, longest, largest, copy)
                        starts = rng.integers(1, horizon, count, endpoint=True)
                        yield (
                            f"n{count}_t{horizon}_{duration}{size}_{copy}",
                            TemporalInstance(
                                capacity=100,
                                starts=starts,
                                ends=starts + rng.integers(shortest, longest, count, endpoint=True),
                                sizes=rng.integers(smallest, largest, count, endpoint=True),
                            ),
                        )
