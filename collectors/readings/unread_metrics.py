"""Metrics of accelerators that no row of exporters.toml reads, counted by their exporter."""

import re
from collections.abc import Iterable

from collectors.readings.metric_names import EXPORTER_OF, readable_names
from data.base.counts import count_text
from data.base.errors import scrub
from data.facts.gpu_resources import NOT_READ

_AMD, _UNKNOWN = "AMD's device-metrics-exporter", "an exporter that is not known"
_FAMILIES = (
    (
        re.compile(
            r"amd_(?:gpu|smi)_\w+|rocm_\w+|gpu_(?:gfx|umc|mma|vcn|edge|junction|xgmi|ecc|\w*package)_\w+"
            r"|gpu_\w*(?:vram|gtt)\w*"
        ),
        _AMD,
    ),
    (re.compile(r"habanalabs_\w+"), "Intel's Gaudi exporter"),
    (re.compile(r"xpum_\w+"), "Intel's XPU manager"),
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
    read = {EXPORTER_OF[name].name for name in readable}
    for name in distinct:
        folded = name.casefold()
        whose = next((whose for what, whose in _FAMILIES if what.fullmatch(folded)), "")
        # AMD's names begin as those of an unknown exporter do.
        known = name in readable or whose in read or (whose == _UNKNOWN and _AMD in read)
        if whose and not known:
            by_exporter.setdefault(whose, []).append(name)
    return tuple(
        f"{count_text(len(metrics), 'metric')} of {whose}, such as {scrub(metrics[0], limit=60)}, "
        f"{'is' if len(metrics) == 1 else 'are'} {NOT_READ}"
        for whose, metrics in by_exporter.items()
    )
