"""DCGM's metric names, what they mean here, and which values are no readings.

Field ids and units: DCGM field reference. Classic and 4.6 names of one field map to one quantity.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One quantity; a reading times `factor` is in our unit. `board` marks whole-board values."""

    quantity: str
    factor: float
    largest: float
    board: bool = False


FIELDS: dict[str, Field] = {
    "DCGM_FI_PROF_SM_ACTIVE": Field(quantity="sm_active", factor=1.0, largest=1.0),
    "DCGM_FI_PROF_SM_UTIL_RATIO": Field(quantity="sm_active", factor=1.0, largest=1.0),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": Field(quantity="gr_engine_active", factor=1.0, largest=1.0),
    "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": Field(
        quantity="gr_engine_active", factor=1.0, largest=1.0
    ),
    "DCGM_FI_DEV_GPU_UTIL": Field(quantity="gpu_util", factor=0.01, largest=1.0),
    "DCGM_FI_DEV_GPU_UTIL_RATIO": Field(quantity="gpu_util", factor=0.01, largest=1.0),
    "DCGM_FI_DEV_FB_USED": Field(quantity="memory_used_mib", factor=1.0, largest=1e7),
    "DCGM_FI_DEV_FB_FREE": Field(quantity="memory_free_mib", factor=1.0, largest=1e7),
    "DCGM_FI_DEV_FB_RESERVED": Field(quantity="memory_reserved_mib", factor=1.0, largest=1e7),
    "DCGM_FI_DEV_POWER_USAGE": Field(
        quantity="power_watts", factor=1.0, largest=10_000.0, board=True
    ),
    "DCGM_FI_DEV_BOARD_POWER_WATTS": Field(
        quantity="power_watts", factor=1.0, largest=10_000.0, board=True
    ),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": Field(
        quantity="energy_joules", factor=0.001, largest=9.2e15, board=True
    ),
}
UTILIZATION_PREFERENCE = ("sm_active", "gr_engine_active", "gpu_util")
"""SM_ACTIVE before GR_ENGINE_ACTIVE before GPU_UTIL, which one tiny kernel saturates."""

_INT64_BLANK = 9.2e18
_INT32_BLANK = 2_147_483_632.0
_DOUBLE_BLANK = 1.4e14


def reading(metric: str, raw: float) -> tuple[float | None, str]:
    """Give (value in our unit, '') or (None, reason): not-finite, blank, negative, too-large.

    DCGM marks missing values by sentinels near 2**31, 2**47 and 2**63; a counter may exceed 2**47.
    """
    field = FIELDS[metric]
    counter = field.quantity == "energy_joules"
    if not math.isfinite(raw):
        return None, "not-finite"
    if raw >= _INT64_BLANK or (
        not counter and (raw >= _DOUBLE_BLANK or _INT32_BLANK <= raw <= _INT32_BLANK + 15)
    ):
        return None, "blank"
    value = raw * field.factor
    if value < 0:
        return None, "negative"
    # A ratio may exceed its limit by rounding; far above it the reading is wrong.
    if value > field.largest * 1.01:
        return None, "too-large"
    return min(value, field.largest), ""
