"""Activity of a device between two moments: GPM, which Hopper and newer boards have.

A GPM metric is the difference of two samples, so the first sample of a device is held until the
next reading: a reader that stays gets the mean over the whole time between its readings.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pynvml

from collectors.nvml.calls import DeviceLostError, NvmlCalls

_MIB = float(2**20)
_PERCENT, _MIB_PER_SECOND = (0.01, 100.5), (_MIB, 4e6)
"""What makes our unit of a metric, and the largest that is believed: rounding of the counters may
show a little more than all, and no link carries 4 TiB/s.
"""
_METRICS = {
    "sm_active": (pynvml.NVML_GPM_METRIC_SM_UTIL, "SM_UTIL", _PERCENT),
    "engine_active": (pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL, "GRAPHICS_UTIL", _PERCENT),
    "tensor_active": (pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, "ANY_TENSOR_UTIL", _PERCENT),
    "dram_active": (pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL, "DRAM_BW_UTIL", _PERCENT),
    "fp32_active": (pynvml.NVML_GPM_METRIC_FP32_UTIL, "FP32_UTIL", _PERCENT),
    "pcie_sent": (pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC, "PCIE_TX", _MIB_PER_SECOND),
    "pcie_received": (pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC, "PCIE_RX", _MIB_PER_SECOND),
    "nvlink_sent": (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, "NVLINK_TX", _MIB_PER_SECOND),
    "nvlink_received": (
        pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC,
        "NVLINK_RX",
        _MIB_PER_SECOND,
    ),
}


@dataclass(slots=True)
class GpmActivity:
    """The last GPM sample of every device, by (board UUID, GPU instance id or '').

    Lives as long as one NVML session; `close` frees what it holds.
    """

    samples: dict[tuple[str, str], Any] = field(default_factory=dict)

    def begin(self, calls: NvmlCalls, board: Any, uuid: str, instance: str) -> bool:
        """Take the first sample where the device has none; True when one was taken.

        A board without GPM is no missing reading: the driver's own utilisation stands in.
        Errors: DeviceLostError.
        """
        if (uuid, instance) in self.samples:
            return False
        support, _ = calls.attempt(pynvml.nvmlGpmQueryDeviceSupport, board)
        if support is None or not support.isSupportedDevice:
            return False
        sample = self._sample(calls, board, instance)
        if sample is None:
            return False
        self.samples[uuid, instance] = sample
        return True

    def means(self, calls: NvmlCalls, board: Any, uuid: str, instance: str) -> Mapping[str, float]:
        """Return the known means since the last sample: shares 0..1, links in bytes/s.

        Errors: DeviceLostError.
        """
        before = self.samples.pop((uuid, instance), None)
        if before is None:
            return {}
        try:
            after = self._sample(calls, board, instance)
            if after is None:
                return {}
            self.samples[uuid, instance] = after
            return _between(calls, before, after)
        finally:
            _free(before)

    def forget(self, uuid: str) -> None:
        """Free what is held of a board that was lost."""
        for key in [key for key in self.samples if key[0] == uuid]:
            _free(self.samples.pop(key))

    def close(self) -> None:
        """Free all."""
        while self.samples:
            _free(self.samples.popitem()[1])

    def _sample(self, calls: NvmlCalls, board: Any, instance: str) -> Any | None:
        sample = calls.read(pynvml.nvmlGpmSampleAlloc)
        if sample is None:
            return None
        try:
            result = (
                calls.read(pynvml.nvmlGpmMigSampleGet, board, int(instance), sample)
                if instance
                else calls.read(pynvml.nvmlGpmSampleGet, board, sample)
            )
        except DeviceLostError:
            _free(sample)
            raise
        if result is None:
            _free(sample)
        return result


def _between(calls: NvmlCalls, before: Any, after: Any) -> Mapping[str, float]:
    """Return the known means between two samples; a driver that refuses all is asked for one."""
    reason = ""
    for names in (tuple(_METRICS), ("sm_active",)):
        request = pynvml.c_nvmlGpmMetricsGet_t()
        request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(names)
        request.sample1, request.sample2 = before, after
        for place, name in enumerate(names):
            request.metrics[place].metricId = _METRICS[name][0]
        _, reason = calls.attempt(pynvml.nvmlGpmMetricsGet, request)
        if not reason:
            return _means(calls, dict(zip(names, request.metrics, strict=False)))
    calls.missing[reason] += 1
    return {}


def _means(calls: NvmlCalls, metric_by_name: Mapping[str, Any]) -> Mapping[str, float]:
    means = {}
    for name, metric in metric_by_name.items():
        _, called, (scale, max_raw) = _METRICS[name]
        status, raw = metric.nvmlReturn, float(metric.value)
        if status == pynvml.NVML_ERROR_NOT_SUPPORTED and name != "sm_active":
            # a board without NVLink, an instance without PCIe counters of its own
            continue
        if status != pynvml.NVML_SUCCESS:
            calls.missing[f"GPM {called}: code {status}"] += 1
        # false for NaN too, which two samples of one moment give
        elif not 0 <= raw <= max_raw:
            calls.missing[f"GPM {called}: no ratio"] += 1
        else:
            means[name] = min(1.0, raw * scale) if scale < 1 else raw * scale
    return means


def _free(sample: Any) -> None:
    """Free a sample; one of a driver that went away is gone with it."""
    with suppress(pynvml.NVMLError):
        pynvml.nvmlGpmSampleFree(sample)
