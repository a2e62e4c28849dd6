"""Exporter series to samples: labels read, values checked, one row per device, time and holder.

Board-level values repeat on every MIG instance and for every holder; they stay on each row as they
came, and the store counts them once per board and time. Whatever the order of the series, and
however many replicas say the same, the rows are the same: the larger reading wins.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pandas as pd

from collectors.readings.board_nodes import TwoNodes, disagreeing, named_by_time
from collectors.readings.contradictions import COUNTERS, believed_samples
from collectors.readings.device_labels import (
    LabelledDevice,
    UnreadDeviceError,
    board_name,
    canonical_labels,
    device_of,
    info_key,
    readable_labels,
)
from collectors.readings.metric_names import (
    BY_NAME,
    INFOS,
    PERCENT,
    UTILIZATION_PREFERENCE,
    Field,
    ReadingKind,
)
from collectors.readings.missing_labels import whole_names
from collectors.readings.plausible_values import OUTSIDE, plausible
from data.base.counts import count_text
from data.base.errors import scrub
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.columns import SAMPLES, check_frame, empty_frame
from data.facts.jobs import Job, Platform, WorkloadKind

_MICROSECONDS = 1_000_000
FIRST_SECOND, LAST_SECOND = 1e9, 4e9
"""2001 and 2096: a time before or after is no time of a reading."""
_MAX_TIME_GAP = pd.Timedelta(minutes=30)
NO_NAMESPACE = (
    "some readings name a pod without its namespace. They are counted for the pod of that name on "
    "the board. Does a relabelling rule of Prometheus drop the label?"
)
_MOST_OUTSIDE, _LONG = 0.05, 6
NEVER_ABOVE_ONE = (
    "is at most 1, and often not 0: as a fraction that is work, as a percentage rest. It is "
    "unknown. Let the exporter publish power too, which settles it."
)
ANOTHER_UNIT = (
    "shows what no board does in the unit of its name: those readings are unknown. Does this "
    "release of the exporter tell it in another unit, or does a recording rule change it?"
)
DIVIDED = "divides it into devices, of which power and activity are not all told: not read yet."
_LABEL_FIELDS = ("mig_profile", "node", "gpu_index", "gpu_model")
_OF_SAMPLES = frozenset(meaning[0].quantity for meaning in BY_NAME.values() if meaning[0].used)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series: metric name, labels, times in s since the epoch, raw values."""

    metric: str
    labels: Mapping[str, str]
    times: npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]


@dataclass(slots=True)
class DroppedReadings:
    """Counts of readings that were not kept, by reason, and boards that two nodes claim.

    `contradictions` are the counters that others contradict (columns CONTRADICTIONS), `doubts` what
    else is wrong with the readings of boards: a sentence about them to their UUIDs.
    """

    counts: Counter[str] = field(default_factory=Counter)
    two_nodes: TwoNodes = field(default_factory=TwoNodes)
    contradictions: list[pd.DataFrame] = field(default_factory=list)
    doubts: dict[str, set[str]] = field(default_factory=dict)

    def as_pairs(self) -> tuple[tuple[str, int], ...]:
        """Return (reason, count) pairs in order."""
        return tuple(sorted((reason, count) for reason, count in self.counts.items() if count))

    def warnings(self) -> tuple[str, ...]:
        """Return the faults of boards, each with its number of boards and one of them."""
        return (
            *self.two_nodes.warnings(),
            *(
                f"{count_text(len(boards), 'board')}, such as {scrub(min(boards), limit=60)}: "
                f"{what}"
                for what, boards in self.doubts.items()
                if boards
            ),
        )


_Told = tuple[str, npt.NDArray[np.int64], npt.NDArray[np.float64]]
"""Metric, times (us since the epoch) and values of a series."""


@dataclass(slots=True)
class _Readings:
    """The valid part of the series of one quantity, as arrays of equal length."""

    rows: list[npt.NDArray[np.int64]] = field(default_factory=list)
    times: list[npt.NDArray[np.int64]] = field(default_factory=list)
    values: list[npt.NDArray[np.float64]] = field(default_factory=list)


def samples_of(
    series: Iterable[Series], catalogue: GpuCatalogue, dropped: DroppedReadings
) -> pd.DataFrame:
    """Return the samples (columns SAMPLES); what is no reading is counted in `dropped`."""
    everything = list(readable(series, dropped))
    holders: dict[tuple[str, str, str], int] = {}
    devices: list[list[LabelledDevice]] = []
    instants: list[list[npt.NDArray[np.int64]]] = []
    quantities: dict[str, _Readings] = {}
    tellers: dict[tuple[str, str, str], list[_Told]] = {}
    for entry, meaning, device in _with_devices(everything, catalogue, dropped):
        if device.mig_instance and meaning[0].quantity == "gpu_util":
            continue  # of a MIG instance GPU_UTIL is 0 or absent, never a reading
        timed = (entry.times >= FIRST_SECOND) & (entry.times <= LAST_SECOND)
        counts = Counter({"broken-time": int((~timed).sum())})
        times = entry.times[timed]
        values, valid = plausible(*meaning, entry.values[timed], counts)
        if sum(counts[reason] for reason in OUTSIDE) > _MOST_OUTSIDE * len(times):
            what = f"{entry.metric} {ANOTHER_UNIT}"
            dropped.doubts.setdefault(what, set()).add(device.gpu_uuid)
        if meaning[0].used:
            dropped.counts.update(counts)
        key = (device.gpu_uuid, device.mig_instance, device.job_id)
        row = holders.setdefault(key, len(devices))
        if row == len(devices):
            devices.append([])
            instants.append([])
        devices[row].append(device)
        instants[row].append(np.round(times[valid] * _MICROSECONDS).astype(np.int64))
        readings = quantities.setdefault(meaning[0].quantity, _Readings())
        readings.rows.append(np.full(int(valid.sum()), row, dtype=np.int64))
        readings.times.append(instants[row][-1])
        readings.values.append(values[valid])
        if meaning[0].kind is ReadingKind.GAUGE:
            of_device = (device.gpu_uuid, device.mig_instance, meaning[0].quantity)
            tellers.setdefault(of_device, []).append(
                (entry.metric, instants[row][-1], values[valid])
            )
    for uuid, what in disagreeing(tellers):
        dropped.doubts.setdefault(what, set()).add(uuid)
    frame = _wide(quantities, list(holders), devices, catalogue, dropped)
    return named_by_time(frame, devices, instants, dropped.two_nodes)


def _with_devices(
    everything: Sequence[Series], catalogue: GpuCatalogue, dropped: DroppedReadings
) -> Iterator[tuple[Series, tuple[Field, float], LabelledDevice]]:
    """Yield the series of counters and of what samples keep, with its meaning and its device."""
    info = info_labels(everything)
    with_devices: list[tuple[Series, tuple[Field, float], LabelledDevice]] = []
    for entry in everything:
        meaning = BY_NAME.get(entry.metric)
        if meaning is None or not (meaning[0].used or meaning[0].quantity in COUNTERS):
            continue
        device = device_of(entry.labels, catalogue, info)
        if device is None:
            dropped.counts["no-uuid"] += len(entry.values)
            continue
        with_devices.append((entry, meaning, device))
    names, boards = whole_names(device for _entry, _meaning, device in with_devices)
    dropped.doubts.setdefault(NO_NAMESPACE, set()).update(boards)
    for entry, meaning, device in with_devices:
        job_id = names.get((device.gpu_uuid, device.mig_instance, device.job_id), device.job_id)
        yield entry, meaning, device if job_id == device.job_id else replace(device, job_id=job_id)


def readable(series: Iterable[Series], dropped: DroppedReadings) -> Iterator[Series]:
    """Yield the series with labels that can be kept, under the names that are ours.

    Readings of others, and labels, are counted.
    """
    for column in series:
        result = readable_labels(column.labels)
        if result is None:
            dropped.counts["broken-label"] += len(column.values)
            continue
        dropped.counts["long-label"] += result[1]
        try:
            yield replace(column, labels=canonical_labels(column.metric, result[0]))
        except UnreadDeviceError as mode:
            dropped.counts["other-device"] += len(column.values)
            if str(mode):
                what = f"{scrub(str(mode), limit=60)} {DIVIDED}"
                dropped.doubts.setdefault(what, set()).add(board_name(result[0]))


def info_labels(series: Iterable[Series]) -> dict[str, Mapping[str, str]]:
    """Return the labels of the info series by uuid, of MIG instances by uuid/instance.

    Where several speak of one device, the last in the order of their labels counts.
    """
    infos = [column.labels for column in series if column.metric in INFOS]
    ordered = sorted(infos, key=lambda labels: sorted(labels.items()))
    return {info_key(labels): labels for labels in ordered}


def _wide(
    quantities: Mapping[str, _Readings],
    holders: Sequence[tuple[str, str, str]],
    devices: Sequence[Sequence[LabelledDevice]],
    catalogue: GpuCatalogue,
    dropped: DroppedReadings,
) -> pd.DataFrame:
    """Return one row per holder and time, every quantity its largest reading or NaN.

    A counter that the others contradict is unknown, so that the next signal tells utilization.
    """
    long = {
        name: (
            np.concatenate(quantity.rows),
            np.concatenate(quantity.times),
            np.concatenate(quantity.values),
        )
        for name, quantity in quantities.items()
    }
    witnesses = set(COUNTERS) - _OF_SAMPLES
    if not any(len(rows) for name, (rows, *_rest) in long.items() if name not in witnesses):
        return empty_frame(SAMPLES)
    instants = _distinct([times for _rows, times, _values in long.values()])
    # One whole number per row and time: sorting those is many times faster than sorting pairs.
    cells = {
        name: rows * len(instants) + np.searchsorted(instants, times)
        for name, (rows, times, _values) in long.items()
    }
    distinct_cells = _distinct(
        [of_name for name, of_name in cells.items() if name not in witnesses]
    )
    wide: dict[str, npt.NDArray[np.float64]] = {}
    for name, (_rows, _times, values) in long.items():
        column = np.full(len(distinct_cells), -np.inf)
        place = np.minimum(np.searchsorted(distinct_cells, cells[name]), len(distinct_cells) - 1)
        there = distinct_cells[place] == cells[name]
        np.maximum.at(column, place[there], values[there])
        wide[name] = np.where(np.isneginf(column), np.nan, column)
    holder, instant = np.divmod(distinct_cells, len(instants))
    if "gpu_util" in wide:
        unclear = _unclear_percents(wide, holder)
        wide["gpu_util"] = np.where(unclear, np.nan, wide["gpu_util"])
        boards = {holders[row][0] for row in np.unique(holder[unclear])}
        dropped.counts["unclear-unit"] += int(unclear.sum())
        dropped.doubts.setdefault(f"GPU_UTIL {NEVER_ABOVE_ONE}", set()).update(boards)
    keys = pd.DataFrame(holders, columns=["gpu_uuid", "mig_instance", "job_id"])
    for name in _LABEL_FIELDS:
        keys[name] = [max(getattr(device, name) for device in group) for group in devices]
    labels = keys.iloc[holder].reset_index(drop=True)
    times = pd.to_datetime(instants[instant], unit="us", utc=True).as_unit("us")
    frame = pd.DataFrame(_derived(wide, len(distinct_cells)))
    samples = check_frame(pd.concat([labels, frame], axis=1).assign(sampled_at=times), SAMPLES)
    counters = {name: wide[name] for name in COUNTERS if name in wide and name not in frame}
    believed, contradictions = believed_samples(samples, counters, catalogue)
    dropped.contradictions.append(contradictions)
    return believed


def _unclear_percents(
    wide: Mapping[str, npt.NDArray[np.float64]], holder: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Return a mask of boards with GPU_UTIL alone that for long is at most 1 and often not 0.

    It may be a fraction, 1 for a board at work, or percent, of a board at rest.
    """
    util = wide["gpu_util"]
    low = util <= PERCENT
    others = [wide[name] for name in (*COUNTERS, "power_instant_watts") if name in wide]
    alone = sum(~np.isnan(values) for values in others) == ~np.isnan(util)
    run = np.cumsum(np.append(True, (low[1:] != low[:-1]) | (holder[1:] != holder[:-1]))) - 1
    length = np.bincount(run)
    often = np.bincount(run, weights=low & (util > 0)) > _MOST_OUTSIDE * length
    return np.asarray(low & alone & (often & (length >= _LONG))[run])


def _distinct(parts: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """Return the distinct numbers of all parts in order; numpy's unique hashes, which is slower."""
    ordered: npt.NDArray[np.int64] = np.sort(np.concatenate(parts))
    distinct: npt.NDArray[np.int64] = ordered[np.append(True, ordered[1:] != ordered[:-1])]
    return distinct


def _derived(
    wide: Mapping[str, npt.NDArray[np.float64]], length: int
) -> dict[str, npt.NDArray[np.float64] | npt.NDArray[np.str_]]:
    """Return the columns of samples from the quantities of the fields."""
    unknown = np.full(length, np.nan)

    def first_of(*names: str) -> npt.NDArray[np.float64]:
        column = unknown
        for name in names:
            column = np.where(np.isnan(column), wide.get(name, unknown), column)
        return column

    signal = np.full(length, "", dtype="<U16")
    for name in reversed(UTILIZATION_PREFERENCE):
        signal = np.where(np.isnan(wide.get(name, unknown)), signal, name)
    reserved = np.nan_to_num(wide.get("memory_reserved_mib", unknown), nan=0.0)
    total = first_of("memory_total_mib")
    parts = first_of("memory_used_mib") + first_of("memory_free_mib") + reserved
    return {
        "utilization_ratio": first_of(*UTILIZATION_PREFERENCE),
        "utilization_signal": signal,
        "memory_used_mib": first_of("memory_used_mib"),
        "memory_total_mib": np.where(np.isnan(total), parts, total),
        "power_watts": first_of("power_watts", "power_instant_watts"),
        "power_limit_watts": first_of("power_limit_watts", "power_limit_requested_watts"),
        "energy_joules": first_of("energy_joules"),
    }


def jobs_of(samples: pd.DataFrame, source: str) -> tuple[Job, ...]:
    """Return the jobs that the samples name; what telemetry does not tell stays unknown.

    What a job holds is what its newest samples say, those of boards up to half an hour apart: not
    all exporters ask at once, nor are their clocks the same. Columns are grouped, never one frame a
    job: an hour of a large cluster names a hundred thousand pods.
    """
    rows = samples[samples["job_id"] != ""]
    if rows.empty:
        return ()
    codes, names = pd.factorize(rows["job_id"], sort=True)
    rows = rows.assign(code=codes)
    spans = rows.groupby("code")["sampled_at"].agg(["min", "max"])
    newest = rows[(rows["sampled_at"] == spans["max"].take(codes).to_numpy())]
    devices = rows.groupby(["code", "gpu_uuid", "mig_instance"])["sampled_at"].agg(["min", "max"])
    code = devices.index.get_level_values("code").to_numpy()
    is_recent = devices["max"] >= spans["max"].take(code).to_numpy() - _MAX_TIME_GAP
    # Of two boards the one that took the place of the other was first read after it was last read.
    started = devices["min"].where(is_recent).groupby(level="code").transform("max")
    counts = np.bincount(code[is_recent & (devices["max"] >= started)])
    first = newest.drop_duplicates("code").sort_values("code")
    memory = first["memory_total_mib"].astype(object).where(first["memory_total_mib"].notna(), None)
    facts = zip(
        map(str, names),
        first["gpu_model"],
        first["mig_profile"],
        memory,
        counts.tolist(),
        spans["min"].dt.to_pydatetime(),
        spans["max"].dt.to_pydatetime(),
        strict=True,
    )
    return tuple(_job(source, *fields) for fields in facts)


def _job(
    source: str,
    job_id: str,
    model: str,
    profile: str,
    memory: float | None,
    gpu_count: int,
    first_seen_at: datetime,
    last_seen_at: datetime,
) -> Job:
    slurm = job_id.startswith("slurm:")
    return Job(
        job_id=job_id,
        name=job_id.partition(":" if slurm else "/")[2],
        namespace="" if slurm else job_id.partition("/")[0],
        owner="",
        platform=Platform.SLURM if slurm else Platform.KUBERNETES,
        kind=WorkloadKind.UNKNOWN,
        gpu_model=model,
        gpu_count=gpu_count,
        mig_profile=profile,
        gpu_memory_mib=memory,
        first_seen_at=first_seen_at,
        last_seen_at=last_seen_at,
        source=source,
    )
