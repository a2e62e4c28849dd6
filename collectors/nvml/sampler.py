"""Readings between two collections: a small thread reads NVML every few seconds.

With one reading a cycle the store sees one moment of many minutes; with these it sees power and
SM activity over all of the time, GPM giving the mean between two readings. Its session stays open,
so no XID error between two readings or collections is lost.
"""

import platform
import threading
from collections import deque
from pathlib import Path

from collectors.nvml.findings import nvml_findings
from collectors.nvml.metrics import NvmlCollector
from collectors.nvml.readings import Reading
from collectors.shared.collector import Source, Window
from data.base.errors import CollectorError
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.collected import Collected
from data.settings.all_settings import Settings

_CLOSING_SECONDS = 10.0
_INTERVAL_SECONDS = 10.0
"""Six readings a minute: those of a slot are thirty."""


class NvmlSampler:
    """A collector that gives all readings of the window since it was started.

    Readings stay until a window starts after them, so a collection that was not kept can be asked
    for again. At most `capacity` are held; the oldest go first and are counted. Where it was not
    started, a collection is one reading.
    """

    def __init__(
        self,
        collector: NvmlCollector,
        *,
        interval_seconds: float = _INTERVAL_SECONDS,
        capacity: int = 8640,
    ) -> None:
        if not 0 < interval_seconds <= 3600 or capacity < 1:
            raise ValueError(
                f"interval_seconds must be in (0, 3600], got {interval_seconds}; "
                f"capacity at least 1, got {capacity}"
            )
        self._collector = collector
        self._interval = interval_seconds
        self._readings: deque[Reading] = deque(maxlen=capacity)
        self._overflowed = 0
        self._failure: CollectorError | None = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def name(self) -> str:
        """The source's name in reports: that of the collector it stands in for."""
        return self._collector.name

    def start(self) -> None:
        """Start reading. Twice is once."""
        if self._thread is None:
            self._stopping.clear()
            # daemon: a call into a driver that hangs must not keep the process from ending
            self._thread = threading.Thread(target=self._run, name="nvml-sampler", daemon=True)
            self._thread.start()

    def stop(self) -> bool:
        """Stop reading; False when the driver held the thread for longer than 10 s."""
        thread, self._thread = self._thread, None
        if thread is None:
            return True
        self._stopping.set()
        thread.join(_CLOSING_SECONDS)
        return not thread.is_alive()

    def __enter__(self) -> "NvmlSampler":
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def collect(self, window: Window) -> Collected:
        """Return the readings in (start, end], or one taken now where there is none.

        Errors: CollectorError, also why the thread cannot read.
        """
        with self._lock:
            while self._readings and self._readings[0].at <= window.start:
                self._readings.popleft()
            readings = [reading for reading in self._readings if reading.at <= window.end]
            overflowed, self._overflowed = self._overflowed, 0
            failure = self._failure
        if readings:
            return self._collector.collected(readings, window, overflowed=overflowed)
        if failure is not None:
            raise failure
        return self._collector.collect(window)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._read_until_it_fails()
            except CollectorError as error:
                with self._lock:
                    self._failure = error
            self._stopping.wait(self._interval)

    def _read_until_it_fails(self) -> None:
        """Read on in one NVML session; return when no board answers, for a new session."""
        with self._collector.reading() as read:
            while not self._stopping.is_set():
                reading = read(self._collector.clock)
                self._keep(reading)
                if not reading.boards_read:
                    return
                self._stopping.wait(self._interval)

    def _keep(self, reading: Reading) -> None:
        with self._lock:
            if len(self._readings) == self._readings.maxlen:
                self._overflowed += 1
            self._readings.append(reading)
            self._failure = None


def _build(settings: Settings, catalogue: GpuCatalogue) -> NvmlSampler:
    nvml = settings.nvml
    host = nvml.node or platform.node()
    collector = NvmlCollector(nvml, catalogue, host, proc_root=Path(nvml.proc_root))
    return NvmlSampler(collector)


SOURCE = Source(build=_build, findings=lambda settings, _now: nvml_findings(settings.nvml))
