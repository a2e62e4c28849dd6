"""Seeded families of temporal bin packing instances, by the generators of published ones."""

from collections.abc import Iterator

import numpy as np

from benchmarks.packing.temporal_instance import TemporalInstance

SEED = 20200
_DURATIONS = {"Sh": (10, 30), "Lon": (20, 60)}
_SIZES = {"Sm": (25, 50), "Lr": (25, 75)}


def _random(*words: int) -> np.random.Generator:
    return np.random.default_rng([SEED, *words])


def uniform_family(
    counts: tuple[int, ...], *, copies: int
) -> Iterator[tuple[str, TemporalInstance]]:
    """Yield instances of the public A1 and A2 kind (Aydin, Muter, Birbil 2020).

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


def cloud_family(counts: tuple[int, ...], *, copies: int) -> Iterator[tuple[str, TemporalInstance]]:
    """Yield instances of the cloud kind (as the public D1): many small items, long tails.

    Capacity 100; sizes are shares of a host as clouds sell them, quarters frequent; starts
    uniform over 1,000; durations lognormal with median 40 and sigma 1.4, cut where the recording
    ends. First fit by start stands 17 % above the static busy time (19 % on the public one).
    """
    sizes, weights = (2, 3, 5, 6, 12, 25, 33, 50), (5, 5, 10, 10, 30, 25, 10, 5)
    share = np.array(weights) / sum(weights)
    for count in counts:
        for copy in range(1, copies + 1):
            rng = _random(count, copy, 4)
            starts = rng.integers(0, 1000, count)
            lives = np.maximum(rng.lognormal(np.log(40.0), 1.4, count), 1).astype(np.int64)
            yield (
                f"cloud_n{count}_{copy}",
                TemporalInstance(
                    capacity=100,
                    starts=starts,
                    ends=np.minimum(starts + lives, 1001),
                    sizes=rng.choice(sizes, count, p=share),
                ),
            )


def gpu_family(counts: tuple[int, ...], *, copies: int) -> Iterator[tuple[str, TemporalInstance]]:
    """Yield instances of jobs with 1, 2, 4 or 8 of a node's 8 GPUs, in three mixes.

    Starts uniform over 96 or 168 slots, durations lognormal with median 12 or 24 and sigma 1.
    """
    mixes = {"small": (55, 15, 15, 15), "even": (25, 25, 25, 25), "single": (70, 20, 8, 2)}
    for count in counts:
        slots, median = (96, 12.0) if count < 500 else (168, 24.0)
        for number, (mix, weights) in enumerate(mixes.items()):
            for copy in range(1, copies + 1):
                rng = _random(count, number, copy, 8)
                starts = rng.integers(0, slots, count)
                lives = np.clip(rng.lognormal(np.log(median), 1.0, count), 1, slots)
                yield (
                    f"gpu_{mix}_n{count}_{copy}",
                    TemporalInstance(
                        capacity=8,
                        starts=starts,
                        ends=np.minimum(starts + lives.astype(np.int64), slots),
                        sizes=rng.choice((1, 2, 4, 8), count, p=np.array(weights) / 100),
                    ),
                )
