"""Metrics of accelerators that no dialect here reads, counted by the exporter that tells them."""

import re
from collections.abc import Iterable

from collectors.readings.metric_names import BY_NAME, INFOS
from data.base.counts import count_text
from data.base.errors import scrub
from data.facts.gpu_resources import NOT_READ

_FAMILIES = (
    (
        re.compile(
            r"amd_(?:gpu|smi)_\w+|rocm_\w+|gpu_(?:gfx|umc|mma|vcn|edge|junction|xgmi|ecc|\w*package)_\w+"
            r"|gpu_\w*(?:vram|gtt)\w*"
        ),
        "AMD's exporters",
    ),
    (re.compile(r"habanalabs_\w+"), "Intel's Gaudi exporter"),
    (re.compile(r"xpum_\w+"), "Intel's XPU manager"),
    (re.compile(r"npu_\w+|ascend_\w+"), "Huawei's NPU exporter"),
    (re.compile(r"neuron(?:core)?_\w+"), "AWS Neuron's monitor"),
    (re.compile(r"(?:hy_)?dcu_\w+"), "Hygon's DCU exporter"),
    (re.compile(r"mlu_\w+"), "Cambricon's exporter"),
    (re.compile(r"vgpu_\w+|hostgpu\w+|gpudevice\w+|nodegpu\w*|nodevgpu\w*"), "HAMi's monitor"),
    (re.compile(r"slurm_job_\w*gpu\w*"), "slurm-job-exporter"),
    (re.compile(r"gpu_(?!cache)\w+"), "an exporter that is not known"),
)
"""Names in lower case, and whose they are; the first that fits counts."""


def unread_metrics(names: Iterable[str]) -> tuple[str, ...]:
    """Return a sentence for each exporter whose metrics of accelerators are not read."""
    by_exporter: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        folded = name.casefold()
        whose = next((whose for what, whose in _FAMILIES if what.fullmatch(folded)), "")
        if whose and name not in BY_NAME and name not in INFOS:
            by_exporter.setdefault(whose, []).append(name)
    return tuple(
        f"{count_text(len(metrics), 'metric')} of {whose}, such as {scrub(metrics[0], limit=60)}, "
        f"{'is' if len(metrics) == 1 else 'are'} {NOT_READ}"
        for whose, metrics in by_exporter.items()
    )
