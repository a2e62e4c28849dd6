"""Every name under which exporters publish a GPU field, and what a reading means in our units.

One row per DCGM field, keyed by its id (DCGM field reference). Names are those of dcgm-exporter
2-4 (`DCGM_FI_*`), of the renames of DCGM 4.6 (`*_RATIO`, `*_WATTS`) and of 4.7, which dcgm-exporter
4.9 publishes (`*_BYTES`, `*_JOULES_TOTAL`), of dcgm-exporter 1.x (`dcgm_*`), of
nvidia_gpu_exporter (`nvidia_smi_*`) and of the jobstats exporter (`nvidia_gpu_*`). The number
beside a name turns its readings into our unit.

Sources: dcgm_fields.h and dcgm-exporter's counter lists (DCGM_FI_*, dcgm_*), the /metrics of
nvidia_gpu_exporter on RTX, L40S, H100 and H200 boards, and jobstats' documentation.
"""

from dataclasses import dataclass
from enum import StrEnum

_MIB = 1 / 1_048_576
PERCENT = 0.01
_MILLI = 0.001
_MICRO = 1e-6
_NANO = 1e-9
_LEAST_MIB, _LEAST_WATTS, _MOST_WATTS = 1.0, 1.0, 4_000.0
"""No board shows less but 0, nor more: a T4 at rest is 9 W, a GB200 superchip at most 2,700 W. MiB
taken for bytes, and W for mW or the other way round, lie outside.
"""


class ReadingKind(StrEnum):
    """The behaviour of a field's readings over time."""

    GAUGE = "gauge"
    COUNTER = "counter"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Field:
    """One DCGM field. `largest` is the largest plausible reading in our unit.

    `board`: the reading is of the whole board, whatever instance the series names. `used`: samples
    keep it; the others are known, so that they do not count as unknown, or go elsewhere.
    `percent_or_ratio`: releases disagree whether it is 0..100 or 0..1, and only a reading above 1
    settles it. `zero_is_unknown`: no board that answers reads 0; a sensor that is off does.
    `least`: a reading between 0 and this is in another unit than its name says.
    """

    field_id: int
    quantity: str
    largest: float
    names: tuple[tuple[str, float], ...]
    board: bool = False
    used: bool = True
    percent_or_ratio: bool = False
    zero_is_unknown: bool = False
    least: float = 0.0
    kind: ReadingKind = ReadingKind.GAUGE


def _same(*names: str, factor: float = 1.0) -> tuple[tuple[str, float], ...]:
    return tuple((name, factor) for name in names)


_HEALTH = (
    (150, "temperature_celsius", 200.0, _same(
        "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS", "dcgm_gpu_temp",
        "nvidia_smi_temperature_gpu", "nvidia_gpu_temperature_celsius",
    )),
    (140, "memory_temperature_celsius", 200.0, _same(
        "DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS", "dcgm_memory_temp",
        "nvidia_smi_temperature_memory",
    )),
    (100, "clock_mhz", 10_000.0, (
        *_same("DCGM_FI_DEV_SM_CLOCK", "dcgm_sm_clock"),
        ("nvidia_smi_clocks_current_sm_clock_hz", _MICRO),
    )),
    (311, "uncorrected_errors", 1e9, _same(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "nvidia_smi_ecc_errors_uncorrected_volatile_total",
    )),
    (393, "remapped_rows", 1e6, _same("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS")),
    (395, "remap_failed", 1.0, _same("DCGM_FI_DEV_ROW_REMAP_FAILURE")),
)  # fmt: skip
"""What tells of a board whether it is well: field, quantity, largest reading, names. It changes
slowly.
"""
LARGEST = ("uncorrected_errors", "remapped_rows", "remap_failed")
"""Counts and a flag, of which a mean says nothing."""
HEALTH_QUANTITIES = tuple(quantity for _id, quantity, _largest, _names in _HEALTH)
HEALTH = tuple(name for *_field, names in _HEALTH for name, _factor in names)
"""The metrics of a board's health, under every name."""

FIELDS: tuple[Field, ...] = (
    Field(1002, "sm_active", 1.0, _same("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_UTIL_RATIO")),
    Field(1001, "gr_engine_active", 1.0, _same(
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
        "dcgm_fi_prof_gr_engine_active",
    )),
    Field(203, "gpu_util", 1.0, (
        ("DCGM_FI_DEV_GPU_UTIL", PERCENT), ("dcgm_gpu_utilization", PERCENT),
        ("nvidia_smi_utilization_gpu_ratio", 1.0), ("nvidia_gpu_duty_cycle", PERCENT),
    )),
    # DCGM 4.6 gives field 203 this name and keeps 0..100; 4.7 is said to give it to a field of
    # its own, 0..1. Taking the one for the other shows a busy board as idle.
    Field(1613, "gpu_util", 1.0, (
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", PERCENT),
    ), percent_or_ratio=True),
    Field(252, "memory_used_mib", 1e7, (
        ("DCGM_FI_DEV_FB_USED", 1.0), ("DCGM_FI_DEV_FB_USED_BYTES", _MIB), ("dcgm_fb_used", 1.0),
        ("nvidia_smi_memory_used_bytes", _MIB), ("nvidia_smi_mig_memory_used_bytes", _MIB),
        ("nvidia_gpu_memory_used_bytes", _MIB),
    ), least=_LEAST_MIB),
    Field(251, "memory_free_mib", 1e7, (
        ("DCGM_FI_DEV_FB_FREE", 1.0), ("DCGM_FI_DEV_FB_FREE_BYTES", _MIB), ("dcgm_fb_free", 1.0),
        ("nvidia_smi_memory_free_bytes", _MIB), ("nvidia_smi_mig_memory_free_bytes", _MIB),
    ), least=_LEAST_MIB),
    Field(253, "memory_reserved_mib", 1e7, (
        ("DCGM_FI_DEV_FB_RESERVED", 1.0), ("DCGM_FI_DEV_FB_RESERVED_BYTES", _MIB),
        ("nvidia_smi_memory_reserved_bytes", _MIB), ("nvidia_smi_mig_memory_reserved_bytes", _MIB),
    )),
    Field(250, "memory_total_mib", 1e7, (
        ("DCGM_FI_DEV_FB_TOTAL", 1.0), ("DCGM_FI_DEV_FB_CAPACITY_BYTES", _MIB),
        ("nvidia_smi_memory_total_bytes", _MIB), ("nvidia_smi_mig_memory_total_bytes", _MIB),
        ("nvidia_gpu_memory_total_bytes", _MIB),
    ), least=_LEAST_MIB),
    Field(155, "power_watts", _MOST_WATTS, (
        ("DCGM_FI_DEV_POWER_USAGE", 1.0), ("DCGM_FI_DEV_BOARD_POWER_WATTS", 1.0),
        ("dcgm_power_usage", 1.0), ("nvidia_smi_power_draw_watts", 1.0),
        ("nvidia_gpu_power_usage_milliwatts", _MILLI),
    ), board=True, zero_is_unknown=True, least=_LEAST_WATTS),
    Field(157, "power_instant_watts", _MOST_WATTS, _same(
        "DCGM_FI_DEV_POWER_USAGE_INSTANT", "DCGM_FI_DEV_BOARD_POWER_RAW_WATTS",
        "nvidia_smi_power_draw_instant_watts",
    ), board=True, zero_is_unknown=True, least=_LEAST_WATTS),
    Field(156, "energy_joules", 9.2e15, (
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", _MILLI),
        ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 1.0), ("dcgm_total_energy_consumption", _MILLI),
        ("nvidia_smi_energy_joules_total", 1.0),
    ), board=True, kind=ReadingKind.COUNTER),
    Field(164, "power_limit_watts", 10_000.0, _same(
        "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS",
        "nvidia_smi_enforced_power_limit_watts",
    ), board=True),
    Field(160, "power_limit_requested_watts", 10_000.0, _same(
        "DCGM_FI_DEV_POWER_MGMT_LIMIT", "DCGM_FI_DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS",
        "nvidia_smi_power_limit_watts",
    ), board=True),
    Field(204, "memory_copy_util", 1.0, (
        ("DCGM_FI_DEV_MEM_COPY_UTIL", PERCENT), ("dcgm_mem_copy_utilization", PERCENT),
        ("nvidia_smi_utilization_memory_ratio", 1.0),
    ), used=False),
    # 0..1 under both names: the older one says percent and means a ratio.
    Field(254, "memory_used_ratio", 1.0, _same(
        "DCGM_FI_DEV_FB_USED_PERCENT", "DCGM_FI_DEV_FB_USED_RATIO",
    ), used=False),
    Field(1003, "sm_occupancy", 1.0, _same(
        "DCGM_FI_PROF_SM_OCCUPANCY", "DCGM_FI_PROF_SM_OCCUPANCY_RATIO",
    ), used=False),
    Field(1004, "tensor_active", 1.0, _same(
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_TENSOR_UTIL_RATIO",
        "dcgm_fi_prof_pipe_tensor_active",
    ), used=False),
    Field(1005, "dram_active", 1.0, _same(
        "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_DRAM_UTIL_RATIO", "dcgm_fi_prof_dram_active",
    ), used=False),
    Field(1007, "fp32_active", 1.0, _same(
        "DCGM_FI_PROF_PIPE_FP32_ACTIVE", "DCGM_FI_PROF_FP32_UTIL_RATIO",
    ), used=False),
    Field(1009, "pcie_sent_bytes", 1e12, _same("DCGM_FI_PROF_PCIE_TX_BYTES"), used=False),
    Field(1010, "pcie_received_bytes", 1e12, _same("DCGM_FI_PROF_PCIE_RX_BYTES"), used=False),
    Field(1011, "nvlink_sent_bytes", 1e13, _same("DCGM_FI_PROF_NVLINK_TX_BYTES"), used=False),
    Field(1012, "nvlink_received_bytes", 1e13, _same("DCGM_FI_PROF_NVLINK_RX_BYTES"), used=False),
    Field(230, "last_xid", 1e6, _same(
        "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR", "dcgm_xid_errors",
    ), board=True, used=False, kind=ReadingKind.CODE),
    Field(112, "clock_event_reasons", 1e12, _same(
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
        "nvidia_smi_clocks_event_reasons_active",
    ), board=True, used=False, kind=ReadingKind.CODE),
    # Nanoseconds, whatever the help text says: that of older exporters says microseconds.
    Field(240, "power_violation_seconds", 1e10, _same(
        "DCGM_FI_DEV_POWER_VIOLATION", factor=_NANO,
    ), board=True, used=False, kind=ReadingKind.COUNTER),
    Field(241, "thermal_violation_seconds", 1e10, _same(
        "DCGM_FI_DEV_THERMAL_VIOLATION", factor=_NANO,
    ), board=True, used=False, kind=ReadingKind.COUNTER),
    *(
        Field(number, quantity, largest, names, board=True, used=False,
              kind=ReadingKind.CODE if quantity in LARGEST else ReadingKind.GAUGE)
        for number, quantity, largest, names in _HEALTH
    ),
)  # fmt: skip

BY_NAME: dict[str, tuple[Field, float]] = {
    name: (field, factor) for field in FIELDS for name, factor in field.names
}
"""Metric name to its field and the factor into our unit."""

NEEDED: tuple[str, ...] = tuple(name for field in FIELDS if field.used for name, _ in field.names)
"""The metrics that samples are made of, under every name."""

XIDS: tuple[str, ...] = tuple(
    name for field in FIELDS if field.quantity == "last_xid" for name, _ in field.names
)
"""The gauge that holds the code of a board's last error, under every name."""

_ACTIVITY = (
    *("tensor_active", "dram_active", "fp32_active", "clock_event_reasons"),
    *("pcie_sent_bytes", "pcie_received_bytes", "nvlink_sent_bytes", "nvlink_received_bytes"),
)
ACTIVITY: tuple[str, ...] = tuple(
    name for field in FIELDS if field.quantity in _ACTIVITY for name, _ in field.names
)
"""Metrics behind the causes of slow work, beyond those of samples, under every name."""

INFO = "nvidia_smi_gpu_info"
"""nvidia_gpu_exporter names model and index on this series only; the others carry the uuid."""

INFOS = frozenset({INFO, "nvidia_smi_mig_info"})
"""Series whose labels name what other series leave out: the board's, and a MIG instance's."""

UTILIZATION_PREFERENCE = ("sm_active", "gr_engine_active", "gpu_util")
"""SM_ACTIVE before GR_ENGINE_ACTIVE before GPU_UTIL, which one tiny kernel saturates."""
