"""How many examples of a property are drawn: all by `make test-all`, a twentieth in every run."""

from hypothesis import settings

MIN_EXAMPLES = 3


def examples(count: int) -> int:
    """Return the share of `count` examples that the profile in force draws of a hundred."""
    return max(min(count, MIN_EXAMPLES), count * settings.default.max_examples // 100)
