"""How busy the SMs were between two moments: GPM, which Hopper and newer boards have.

A GPM metric is the difference of two samples, so the first sample of a device is held until the
next reading: a reader that stays gets the mean over the whole time between its readings.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pynvml

from collectors.nvml.calls import DeviceLostError, NvmlCalls

_MAX_PERCENT = 100.5
"""Rounding of the counters may show a little more than all."""


@dataclass(slots=True)
class SmActivity:
    """The last GPM sample of every device, by (board UUID, GPU instance id or '').

    Lives as long as one NVML session; `close` frees what it holds.
    """

    held: dict[tuple[str, str], Any] = field(default_factory=dict)

    def begin(self, calls: NvmlCalls, board: Any, uuid: str, instance: str) -> bool:
        """Take the first sample where the device has none; True when one was taken.

        A board without GPM is no missing reading: the driver's own utilisation stands in.
        Errors: DeviceLostError.
        """
        if (uuid, instance) in self.held:
            return False
        support, _ = calls.attempt(pynvml.nvmlGpmQueryDeviceSupport, board)
        if support is None or not support.isSupportedDevice:
            return False
        sample = self._sample(calls, board, instance)
        if sample is None:
            return False
        self.held[uuid, instance] = sample
        return True

    def ratio(self, calls: NvmlCalls, board: Any, uuid: str, instance: str) -> float | None:
        """Return the mean SM activity (0..1) since the last sample, None when not known.

        Errors: DeviceLostError.
        """
        before = self.held.pop((uuid, instance), None)
        if before is None:
            return None
        try:
            after = self._sample(calls, board, instance)
            if after is None:
                return None
            self.held[uuid, instance] = after
            return self._between(calls, before, after)
        finally:
            _free(before)

    def forget(self, uuid: str) -> None:
        """Free what is held of a board that was lost."""
        for key in [key for key in self.held if key[0] == uuid]:
            _free(self.held.pop(key))

    def close(self) -> None:
        """Free all."""
        while self.held:
            _free(self.held.popitem()[1])

    def _sample(self, calls: NvmlCalls, board: Any, instance: str) -> Any | None:
        sample = calls.read(pynvml.nvmlGpmSampleAlloc)
        if sample is None:
            return None
        try:
            taken = (
                calls.read(pynvml.nvmlGpmMigSampleGet, board, int(instance), sample)
                if instance
                else calls.read(pynvml.nvmlGpmSampleGet, board, sample)
            )
        except DeviceLostError:
            _free(sample)
            raise
        if taken is None:
            _free(sample)
        return taken

    def _between(self, calls: NvmlCalls, before: Any, after: Any) -> float | None:
        asked = pynvml.c_nvmlGpmMetricsGet_t()
        asked.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = 1
        asked.sample1, asked.sample2 = before, after
        asked.metrics[0].metricId = pynvml.NVML_GPM_METRIC_SM_UTIL
        if calls.read(pynvml.nvmlGpmMetricsGet, asked) is None:
            return None
        metric = asked.metrics[0]
        if metric.nvmlReturn != pynvml.NVML_SUCCESS:
            calls.missing[f"GPM SM_UTIL: code {metric.nvmlReturn}"] += 1
            return None
        percent = float(metric.value)
        # false for NaN too, which two samples of one moment give
        if not 0 <= percent <= _MAX_PERCENT:
            calls.missing["GPM SM_UTIL: no ratio"] += 1
            return None
        return min(1.0, percent / 100)


def _free(sample: Any) -> None:
    """Free a sample; one of a driver that went away is gone with it."""
    with suppress(pynvml.NVMLError):
        pynvml.nvmlGpmSampleFree(sample)
