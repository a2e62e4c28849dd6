"""The random numbers that kernels draw."""

import numpy as np
import numpy.typing as npt

from data.base.compiled import inner

RandomState = npt.NDArray[np.uint64]


def random_state(seed: int) -> RandomState:
    """Return the state that `draw` advances; never zero, which xorshift could not leave."""
    return np.random.SeedSequence(seed).generate_state(1, np.uint64) | np.uint64(1)


@inner
def draw(state: RandomState, below: int) -> int:
    """Return a random integer in [0, below): xorshift64 (Marsaglia, 2003), top 53 bits."""
    bits = state[0]
    bits ^= bits << np.uint64(13)
    bits ^= bits >> np.uint64(7)
    bits ^= bits << np.uint64(17)
    state[0] = bits
    unsigned = (bits >> np.uint64(11)) % np.uint64(below)
    return np.int64(unsigned)  # type: ignore[return-value]  # int() would keep it unsigned
