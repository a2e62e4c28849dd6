"""Quantities that a board publishes, and every name of each in the metrics of exporters.

A quantity is a row of FIELDS, most of them a field of DCGM (dcgm_fields.h). exporters.toml lists
the names, with the unit of each; docs/extending.md says how to add an exporter.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from data.base.counts import count_text
from data.base.errors import scrub
from data.facts.gpu_resources import UNREAD_SUFFIX

PERCENT = 0.01
_UNITS = {
    "": 1.0, "%": PERCENT, "% or ratio": PERCENT, "bytes": 1 / 1_048_576, "Hz": 1e-6,
    "mW": 1e-3, "uW": 1e-6, "mJ": 1e-3, "uJ": 1e-6, "ns": 1e-9,
}  # fmt: skip
"""Unit of an exporter to the factor into ours: MiB, MHz, W, J, s, and ratios from 0 to 1."""
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
    """One quantity. `largest` is the largest plausible reading in our unit.

    `board`: the reading is of the whole board, whatever instance the series names. `used`: samples
    keep it; the others are known, so that they do not count as unknown, or go elsewhere.
    `percent_or_ratio`: releases disagree whether it is 0..100 or 0..1, and only a reading above 1
    settles it. `zero_is_unknown`: no board that answers reads 0; a sensor that is off does.
    `least`: a reading between 0 and this is in another unit than its name says.
    """

    quantity: str
    largest: float
    board: bool = False
    used: bool = True
    percent_or_ratio: bool = False
    zero_is_unknown: bool = False
    least: float = 0.0
    kind: ReadingKind = ReadingKind.GAUGE


_HEALTH = {
    "temperature_celsius": 200.0, "memory_temperature_celsius": 200.0, "clock_mhz": 10_000.0,
    "uncorrected_errors": 1e9, "remapped_rows": 1e6, "remap_failed": 1.0,
}  # fmt: skip
"""Quantities of a board's health, which change slowly, each with the largest reading."""
LARGEST = ("uncorrected_errors", "remapped_rows", "remap_failed")
"""Counts and a flag, of which a mean says nothing."""
HEALTH_QUANTITIES = tuple(_HEALTH)

FIELDS: tuple[Field, ...] = (
    Field("sm_active", 1.0),
    Field("gr_engine_active", 1.0),
    Field("gpu_util", 1.0),
    Field("memory_used_mib", 1e7, least=_LEAST_MIB),
    Field("memory_free_mib", 1e7, least=_LEAST_MIB),
    Field("memory_reserved_mib", 1e7),
    Field("memory_total_mib", 1e7, least=_LEAST_MIB),
    Field("power_watts", _MOST_WATTS, board=True, zero_is_unknown=True, least=_LEAST_WATTS),
    Field("power_instant_watts", _MOST_WATTS, board=True, zero_is_unknown=True, least=_LEAST_WATTS),
    Field("energy_joules", 9.2e15, board=True, kind=ReadingKind.COUNTER),
    Field("power_limit_watts", 10_000.0, board=True),
    Field("power_limit_requested_watts", 10_000.0, board=True),
    Field("memory_copy_util", 1.0, used=False),
    Field("memory_used_ratio", 1.0, used=False),
    Field("sm_occupancy", 1.0, used=False),
    Field("tensor_active", 1.0, used=False),
    Field("dram_active", 1.0, used=False),
    Field("fp32_active", 1.0, used=False),
    Field("pcie_sent_bytes", 1e12, used=False),
    Field("pcie_received_bytes", 1e12, used=False),
    Field("nvlink_sent_bytes", 1e13, used=False),
    Field("nvlink_received_bytes", 1e13, used=False),
    Field("last_xid", 1e6, board=True, used=False, kind=ReadingKind.CODE),
    Field("clock_event_reasons", 1e12, board=True, used=False, kind=ReadingKind.CODE),
    Field("power_violation_seconds", 1e10, board=True, used=False, kind=ReadingKind.COUNTER),
    Field("thermal_violation_seconds", 1e10, board=True, used=False, kind=ReadingKind.COUNTER),
    *(
        Field(quantity, largest, board=True, used=False,
              kind=ReadingKind.CODE if quantity in LARGEST else ReadingKind.GAUGE)
        for quantity, largest in _HEALTH.items()
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """One table of exporters.toml, whose head explains the fields."""

    name: str
    metrics: Mapping[str, str]
    prefixes: tuple[str, ...] = ("",)
    upper: bool = False
    infos: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    only: Mapping[str, list[str]] = field(default_factory=lambda: MappingProxyType({}))
    modes: Mapping[str, list[str]] = field(default_factory=lambda: MappingProxyType({}))
    alone: bool = False

    def spellings(self, metric: str) -> tuple[str, ...]:
        """Return every way in which the exporter may write the name of a metric."""
        names = tuple(f"{prefix}{metric}" for prefix in self.prefixes)
        return (*names, *(name.upper() for name in names)) if self.upper else names

    def meanings(self) -> Mapping[str, tuple[Field, float]]:
        """Return the field of each metric's name, and the factor into our unit."""
        fields = {row.quantity: row for row in FIELDS}
        meanings: dict[str, tuple[Field, float]] = {}
        for metric, meaning in self.metrics.items():
            quantity, _, unit = meaning.partition(" ")
            row = replace(fields[quantity], percent_or_ratio=unit == "% or ratio")
            meanings |= dict.fromkeys(self.spellings(metric), (row, _UNITS[unit]))
        return meanings


def _exporters() -> tuple[Exporter, ...]:
    table = files("collectors.readings").joinpath("exporters.toml").read_text("utf-8")
    rows: dict[str, dict[str, Any]] = tomllib.loads(table)
    return tuple(Exporter(name=name, **row) for name, row in rows.items())


EXPORTERS = _exporters()
_ORDER = {row.quantity: place for place, row in enumerate(FIELDS)}
BY_NAME: dict[str, tuple[Field, float]] = dict(
    sorted(
        (pair for exporter in EXPORTERS for pair in exporter.meanings().items()),
        key=lambda pair: _ORDER[pair[1][0].quantity],
    )
)
"""Metric name to its field and the factor into our unit; in the order of FIELDS."""
EXPORTER_OF: dict[str, Exporter] = {
    name: exporter for exporter in EXPORTERS for name in (*exporter.meanings(), *exporter.infos)
}
"""Metric name to the exporter that publishes it."""


def names_of(*quantities: str) -> tuple[str, ...]:
    """Return every name of these quantities, in the order of FIELDS."""
    return tuple(name for name, (row, _factor) in BY_NAME.items() if row.quantity in quantities)


def readable_names(names: Iterable[str]) -> frozenset[str]:
    """Return the names that are read of those that one server or recording holds."""
    rows = {name: EXPORTER_OF[name] for name in names if name in EXPORTER_OF}
    others = any(not exporter.alone for exporter in rows.values())
    first = next((exporter for exporter in EXPORTERS if exporter in rows.values()), None)
    return frozenset(
        name
        for name, exporter in rows.items()
        if not exporter.alone or (not others and exporter is first)
    )


HEALTH = names_of(*HEALTH_QUANTITIES)
"""The metrics of a board's health, under every name."""

NEEDED = names_of(*(row.quantity for row in FIELDS if row.used))
"""The metrics that samples are made of, under every name."""

XIDS = names_of("last_xid")
"""The gauge that holds the code of a board's last error, under every name."""

ACTIVITY = names_of(
    *("tensor_active", "dram_active", "fp32_active", "clock_event_reasons"),
    *("pcie_sent_bytes", "pcie_received_bytes", "nvlink_sent_bytes", "nvlink_received_bytes"),
)
"""Metrics behind the causes of slow work, beyond those of samples, under every name."""

INFOS = frozenset(name for exporter in EXPORTERS for name in exporter.infos)
"""Series whose labels name what other series leave out: the board's, and a MIG instance's."""

INFO = "nvidia_smi_gpu_info"
"""The series of nvidia_gpu_exporter that names model and index."""

UTILIZATION_PREFERENCE = ("sm_active", "gr_engine_active", "gpu_util")
"""SM_ACTIVE before GR_ENGINE_ACTIVE before GPU_UTIL, which one tiny kernel saturates."""

_AMD, _UNKNOWN = "AMD's device-metrics-exporter", "an exporter that is not known"
_FAMILIES = (
    (
        re.compile(
            r"amd_gpu_(?:dev_id|power(?:_cap)?|[sm]clk|current_\w+|(?:memory_)?use_percent)"
        ),
        "amd_smi_exporter",
    ),
    (
        re.compile(
            r"amd_(?:gpu|smi)_\w+|rocm_\w+|gpu_(?:gfx|umc|mma|vcn|edge|junction|xgmi|ecc|\w*package)_\w+"
            r"|gpu_\w*(?:vram|gtt)\w*"
        ),
        _AMD,
    ),
    (re.compile(r"habanalabs_\w+"), "Intel's Gaudi exporter"),
    (re.compile(r"xpum_\w+"), "Intel's XPU Manager 1"),
    (re.compile(r"npu_\w+|ascend_\w+"), "Huawei's NPU exporter"),
    (re.compile(r"neuron(?:core)?_\w+"), "AWS Neuron's monitor"),
    (re.compile(r"(?:hy_)?dcu_\w+"), "Hygon's DCU exporter"),
    (re.compile(r"mlu_\w+"), "Cambricon's exporter"),
    (
        re.compile(r"hami_\w+|vgpu_\w+|host(?:gpu|core)\w+|gpudevice\w+|nodegpu\w*|nodevgpu\w*"),
        "HAMi's monitor",
    ),
    (re.compile(r"slurm_job_\w*gpu\w*"), "slurm-job-exporter"),
    (re.compile(r"hw_gpu_\w+"), "OpenTelemetry's hardware metrics"),
    (re.compile(r"gpu_(?!cache)\w+"), _UNKNOWN),
)
"""Names in lower case, and whose they are; the first that fits counts."""


def unread_metrics(names: Iterable[str]) -> tuple[str, ...]:
    """Return a sentence for each exporter of which no metric of accelerators is read."""
    by_exporter: dict[str, list[str]] = {}
    distinct = sorted(set(names))
    readable = readable_names(distinct)
    exporters = {EXPORTER_OF[name].name for name in readable}
    for name in distinct:
        folded = name.casefold()
        whose = next((whose for what, whose in _FAMILIES if what.fullmatch(folded)), "")
        # AMD's names begin as those of an unknown exporter do.
        is_foreign = whose not in exporters and (whose != _UNKNOWN or _AMD not in exporters)
        if whose and is_foreign and name not in readable:
            by_exporter.setdefault(whose, []).append(name)
    return tuple(
        f"{count_text(len(metrics), 'metric')} of {whose}, such as {scrub(metrics[0], limit=60)}, "
        f"{'is' if len(metrics) == 1 else 'are'} {UNREAD_SUFFIX}"
        for whose, metrics in by_exporter.items()
    )
