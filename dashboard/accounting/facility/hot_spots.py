"""Board temperatures, and boards warmer than their power explains: cooling is worse there."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

_MIN_BOARDS = 8
"""Fewer boards of a model say nothing of what is usual."""
HOT_SPOT = "above_usual_celsius"
_COLUMNS = (
    *("node", "gpu_index", "temperature_celsius", HOT_SPOT, "memory_temperature_celsius"),
    *("power_watts", "clock_mhz", "throttled_ratio", "gpu_model", "gpu_uuid"),
)


def boards_by_warmth(boards: "pd.DataFrame") -> "pd.DataFrame":
    """Return the boards (of StoreReader.boards) that tell their temperature, the warmest first.

    Columns node, gpu_index, temperature_celsius (°C, the hour's largest), above_usual_celsius,
    memory_temperature_celsius, power_watts, clock_mhz, throttled_ratio, gpu_model, gpu_uuid.
    Usual is what the boards of a model have at that power: a straight line through the medians of
    the weaker and the stronger half (Tukey's resistant line, without iteration), which a few badly
    cooled boards do not move. NaN where power or enough boards are unknown.
    """
    rows = boards[boards["temperature_celsius"].notna()].copy()
    rows[HOT_SPOT] = np.nan
    for _model, of_model in rows.groupby("gpu_model"):
        measured = of_model[of_model["power_watts"].notna()]
        if len(measured) >= _MIN_BOARDS:
            power = measured["power_watts"].to_numpy()
            warm = measured["temperature_celsius"].to_numpy()
            rows.loc[measured.index, HOT_SPOT] = warm - _usual(power, warm)
    ranked = rows.sort_values(
        ["temperature_celsius", "node", "gpu_index"], ascending=[False, True, True]
    )
    return ranked[list(_COLUMNS)].reset_index(drop=True)


def _usual(power: "np.ndarray", warm: "np.ndarray") -> "np.ndarray":
    """Return the usual temperature at each power."""
    order = np.argsort(power, kind="stable")
    halves = order[: len(order) // 2], order[len(order) // 2 :]
    (weak, cool), (strong, hot) = (
        (float(np.median(power[half])), float(np.median(warm[half]))) for half in halves
    )
    slope = (hot - cool) / (strong - weak) if strong > weak else 0.0
    line = slope * power
    return np.asarray(line + np.median(warm - line))
