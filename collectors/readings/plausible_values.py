"""Filter of raw readings that are none: blanks, infinities and values beyond any board.

DCGM marks a missing value by sentinels near 2**31, 2**47 and 2**63 (dcgm_fields.h); older
exporters publish them. One NaN in a column makes every aggregate of it NaN.
"""

from collections import Counter

import numpy as np
import numpy.typing as npt

from collectors.readings.metric_names import Field, ReadingKind

_INT64_BLANK = 9.2e18
_INT32_BLANK = 2_147_483_632.0
_INT32_BLANKS = 16
_DOUBLE_BLANK = 1.4e14
_ROUNDING = 1.005
"""A ratio may exceed its limit by rounding; 101 % is a wrong reading."""
OUTSIDE = ("too-small", "too-large", "unclear-unit")
"""Reasons by which a reading is not in the unit of its name."""


def plausible(
    field: Field, factor: float, raw: npt.NDArray[np.float64], dropped: Counter[str]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return (readings in our unit, which of them are kept); the others are counted by reason.

    Reasons: not-finite, blank, negative, zero and those of OUTSIDE. `raw` is one whole series, as
    its largest reading tells 0..100 from 0..1. Shapes: both like `raw`.
    """
    counter = field.kind is ReadingKind.COUNTER
    finite = np.isfinite(raw)
    cells = np.where(finite, raw, 0.0)
    blank = cells >= _INT64_BLANK
    if not counter:
        blank |= cells >= _DOUBLE_BLANK
        blank |= (cells >= _INT32_BLANK) & (cells < _INT32_BLANK + _INT32_BLANKS)
    values = cells * factor
    negative = values < 0
    zero = (cells == 0) & field.zero_is_unknown
    small = (values > 0) & (values < field.least)
    large = ~blank & (values > field.largest * _ROUNDING)
    unclear = np.zeros(raw.shape, dtype=bool)
    if field.percent_or_ratio and not (finite & ~blank & ~large & (cells > 1)).any():
        unclear = ~blank & ~large & (cells > 0)
    for reason, flags in (
        ("not-finite", ~finite),
        ("blank", finite & blank),
        ("negative", finite & negative),
        ("zero", finite & zero),
        ("too-small", finite & small),
        ("too-large", finite & large),
        ("unclear-unit", finite & unclear),
    ):
        count = int(flags.sum())
        if count:
            dropped[reason] += count
    valid = finite & ~blank & ~negative & ~zero & ~small & ~large & ~unclear
    return np.minimum(values, field.largest), valid
