"""What a raw number of an exporter means: units, limits, and readings whose unit is unclear."""

from collections import Counter

import numpy as np
import pytest

from collectors.readings.metric_names import BY_NAME
from collectors.readings.plausible_values import plausible


def read(metric: str, *raw: float) -> tuple[list[float], dict[str, int]]:
    """The kept readings of a series, and what was dropped."""
    dropped: Counter[str] = Counter()
    values, kept = plausible(*BY_NAME[metric], np.array(raw), dropped)
    return values[kept].tolist(), dict(dropped)


@pytest.mark.parametrize(
    ("metric", "raw", "ours"),
    [
        ("DCGM_FI_DEV_GPU_UTIL", 37.0, 0.37),
        ("DCGM_FI_DEV_FB_USED_PERCENT", 0.37, 0.37),  # 0..1 in spite of its name
        ("dcgm_gpu_utilization", 37.0, 0.37),
        ("dcgm_total_energy_consumption", 7200.0, 7.2),
        ("nvidia_smi_utilization_gpu_ratio", 0.37, 0.37),
        ("nvidia_smi_memory_used_bytes", 1_048_576.0, 1.0),
        ("nvidia_smi_energy_joules_total", 7.2, 7.2),
        ("nvidia_gpu_duty_cycle", 37.0, 0.37),
        ("nvidia_gpu_power_usage_milliwatts", 250_000.0, 250.0),
        ("DCGM_FI_DEV_POWER_VIOLATION", 2e9, 2.0),
    ],
)
def test_readings_come_in_our_units(metric: str, raw: float, ours: float) -> None:
    """Percent, bytes, milliwatts, millijoules and nanoseconds become ours."""
    values, dropped = read(metric, raw)
    assert values == pytest.approx([ours])
    assert dropped == {}


@pytest.mark.parametrize(
    ("metric", "raw"),
    [
        ("DCGM_FI_DEV_GPU_UTIL", 101.0),
        ("DCGM_FI_PROF_SM_ACTIVE", 1.01),
        ("DCGM_FI_DEV_POWER_USAGE", 1e6),
        ("nvidia_smi_memory_used_bytes", 1e14 - 1),
    ],
)
def test_what_no_board_can_show_is_dropped(metric: str, raw: float) -> None:
    """101 % is no reading."""
    assert read(metric, raw) == ([], {"too-large": 1})


@pytest.mark.parametrize(
    "metric",
    [
        "DCGM_FI_DEV_POWER_USAGE",
        "DCGM_FI_DEV_POWER_USAGE_INSTANT",
        "nvidia_smi_power_draw_watts",
        "nvidia_gpu_power_usage_milliwatts",
    ],
)
def test_a_board_that_answers_draws_power(metric: str) -> None:
    """0 W is what a sensor says that is off; of a counter or of work 0 is a reading."""
    assert read(metric, 0.0, 70_000.0 if "milli" in metric else 70.0) == ([70.0], {"zero": 1})
    assert read("DCGM_FI_DEV_GPU_UTIL", 0.0) == ([0.0], {})
    assert read("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 0.0) == ([0.0], {})


def test_a_ratio_may_exceed_one_by_rounding() -> None:
    """It is kept, as one."""
    assert read("DCGM_FI_PROF_SM_ACTIVE", 1.0004) == ([1.0], {})


def test_a_reading_above_one_shows_that_a_series_is_in_percent() -> None:
    """Then its small readings are percent as well."""
    values, dropped = read("DCGM_FI_DEV_GPU_UTIL_RATIO", 0.0, 1.0, 37.0)
    assert values == pytest.approx([0.0, 0.01, 0.37])
    assert dropped == {}


@pytest.mark.parametrize("other", [9223372036854775808.0, float("nan"), -5.0, 104.0])
def test_a_busy_board_is_not_shown_as_idle(other: float) -> None:
    """0.97 may be 97 % or 1 %: what cannot be told is unknown, and a blank tells nothing."""
    values, dropped = read("DCGM_FI_DEV_GPU_UTIL_RATIO", 0.0, 0.97, 1.0, other)
    assert values == [0.0]
    assert dropped["unclear-unit"] == 2
    assert sum(dropped.values()) == 3


@pytest.mark.parametrize("blank", [9223372036854775792.0, float("inf"), float("nan"), -1.0])
def test_no_metric_keeps_what_is_no_reading(blank: float) -> None:
    """Under every name of the registry, and counted once."""
    for metric in BY_NAME:
        values, dropped = read(metric, blank)
        assert (metric, values, sum(dropped.values())) == (metric, [], 1)
