"""GPU telemetry of this machine from its driver (NVML), where no exporter runs.

NVML knows only now: a collection is one reading, stamped with the end of the window when that is
now. Utilisation is SM activity on boards with GPM (Hopper and newer), else the driver's own rate.
XID errors are those since the session began (see `xid_events`): of one reading, its own moment's.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd

from collectors.nvml.activity import GpmActivity
from collectors.nvml.job_mapping_files import MappingFiles, booted_at
from collectors.nvml.library import nvml_session
from collectors.nvml.process_jobs import POD_LABEL, ProcessJobs
from collectors.nvml.readings import NvmlReader, Reading
from collectors.nvml.xid_events import XidEvents
from collectors.readings.board_xids import merged_xids
from collectors.readings.contradictions import COUNTERS, believed_samples, without_counters
from collectors.readings.dcgm_readings import jobs_of
from collectors.readings.metric_names import LARGEST
from collectors.shared.collector import Window
from data.base.clock import floor_to_slot, utc_now
from data.base.errors import SourceUnreachableError
from data.base.units import SLOT_SECONDS
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.collected import Collected
from data.facts.columns import ACTIVITY, CONTRADICTIONS, SAMPLES, check_frame, empty_frame
from data.facts.fleet import SourceReport, SourceState
from data.facts.identifiers import digest_of
from data.settings.sources import NvmlSettings

NOW = timedelta(seconds=5)
"""A window that ended no longer ago ends now."""
_SHOWN_REASONS = 5
_NO_GPU = "no GPU on this machine"
_NO_BOARD = "no board answers"
_BLIND = (
    "processes are not seen, so samples name no job: run as root and with the host's PID "
    "namespace (Kubernetes: hostPID: true), or set nvml.mapping_directory"
)


@dataclass(frozen=True, slots=True)
class NvmlCollector:
    """The GPUs of this machine. `node` is the name that schedulers call it by."""

    settings: NvmlSettings
    catalogue: GpuCatalogue
    node: str
    clock: Callable[[], datetime] = utc_now
    proc_root: Path = Path("/proc")
    gpm_gap_seconds: float = 0.2

    @property
    def name(self) -> str:
        """The source's name in reports."""
        return f"nvml {self.node}"

    def collect(self, window: Window) -> Collected:
        """Return one reading of every GPU, taken now. Errors: CollectorError.

        It knows of XID errors only what happens while it is taken: `NvmlSampler` sees all.
        """
        with self.reading() as read:
            return self.collected([read(lambda: self._stamp(window))], window)

    @contextmanager
    def reading(self) -> Any:
        """Hold NVML open and give the function that takes a reading. Errors: CollectorError."""
        activity, events = GpmActivity(), XidEvents()
        reader = NvmlReader(
            node=self.node,
            catalogue=self.catalogue,
            processes=ProcessJobs(self.proc_root),
            mapping=self._mapping,
            activity=activity,
            events=events,
            gpm_gap_seconds=self.gpm_gap_seconds,
        )
        with nvml_session(self.settings):
            try:
                yield reader.read
            finally:
                events.close()
                activity.close()

    def collected(
        self, readings: Sequence[Reading], window: Window, *, overflowed: int = 0
    ) -> Collected:
        """Return readings as one Collected. Errors: SourceUnreachableError when nothing is known.

        That no board answers is told as a warning where their XID errors are known: they say why.
        `overflowed` readings were lost because nobody collected them.
        """
        missing: Counter[str] = Counter()
        for entry in readings:
            missing.update(entry.missing)
        boards = sum(reading.boards for reading in readings)
        boards_read = sum(reading.boards_read for reading in readings)
        xids = merged_xids([dict(row) for reading in readings for row in reading.xids])
        if not boards_read and (boards or missing) and xids.empty:
            raise SourceUnreachableError(
                f"{self.name}: none of {boards} boards could be read: {_reasons(missing)}",
                "See whether `nvidia-smi` answers; `dmesg | grep -i xid` names a lost board.",
            )
        missing["sampler: not collected in time"] += overflowed
        rows = [row for reading in readings for row in _stamped(reading)]
        samples, contradictions = _samples(rows, self.catalogue)
        activity = without_counters(_activity(readings, window), contradictions)
        texts = [frame.to_csv(index=False) for frame in (samples, xids, activity, contradictions)]
        of_jobs = samples[~samples["job_id"].str.startswith(POD_LABEL)]
        return Collected(
            batch_id=digest_of([self.name, window.start, window.end, *texts]),
            samples=samples,
            jobs=jobs_of(of_jobs, self.name),
            xids=xids,
            activity=activity,
            contradictions=contradictions,
            report=SourceReport(
                source=self.name,
                state=SourceState.RAN,
                reason="" if len(samples) else _NO_BOARD if boards else _NO_GPU,
                samples=len(samples),
                dropped=tuple(sorted((+missing).items())),
                completeness_ratio=boards_read / boards if boards else None,
                warnings=_warnings(boards - boards_read, missing),
                window_start=window.start,
                window_end=window.end,
            ),
        )

    def _stamp(self, window: Window) -> datetime:
        now = self.clock()
        return window.end if timedelta(0) <= now - window.end <= NOW else now

    def _mapping(self) -> MappingFiles | None:
        if not self.settings.mapping_directory:
            return None
        return MappingFiles(Path(self.settings.mapping_directory), booted_at(self.proc_root))


def _stamped(reading: Reading) -> list[dict[str, object]]:
    at = reading.at.replace(microsecond=0)
    return [{"sampled_at": at, **row} for row in reading.rows]


def _samples(
    rows: list[dict[str, object]], catalogue: GpuCatalogue
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the samples without counters that others contradict, and these by slot."""
    if not rows:
        return empty_frame(SAMPLES), empty_frame(CONTRADICTIONS)
    frame = pd.DataFrame(rows)
    counters = pd.DataFrame(frame.pop("counters").tolist(), columns=list(COUNTERS), dtype=float)
    return believed_samples(
        check_frame(frame, SAMPLES),
        {name: counters[name].to_numpy() for name in COUNTERS if name != "power_watts"},
        catalogue,
    )


def _activity(readings: Sequence[Reading], window: Window) -> pd.DataFrame:
    """Return the mean of the readings of each device in each whole slot of the window."""
    width = timedelta(seconds=SLOT_SECONDS)
    rows = [
        {"slot_start": start, **row}
        for reading in readings
        if (start := floor_to_slot(reading.at, SLOT_SECONDS)) >= window.start
        and start + width <= window.end
        for row in reading.activity
    ]
    if not rows:
        return empty_frame(ACTIVITY)
    by_slot = pd.DataFrame(rows).groupby(["slot_start", "gpu_uuid", "mig_instance"])
    means = by_slot.mean()
    largest = [name for name in LARGEST if name in means]
    return check_frame(means.assign(**by_slot[largest].max()).reset_index(), ACTIVITY)


def _reasons(missing: Counter[str]) -> str:
    return ", ".join(f"{reason} ({count})" for reason, count in missing.most_common(_SHOWN_REASONS))


def _warnings(boards_lost: int, missing: Counter[str]) -> tuple[str, ...]:
    lost = [f"{boards_lost} readings of boards failed: {_reasons(missing)}"] if boards_lost else []
    hidden = any(
        reason.startswith("process: ")
        or reason == "nvmlDeviceGetComputeRunningProcesses_v3: NoPermission"
        for reason in missing
    )
    return tuple([*lost, _BLIND] if hidden else lost)
