"""Faults of exporters beyond a wrong counter: units, resets, labels, identities and clocks.

Each changes the series that a board's exporter told, from a drawn moment on where it has one. The
truth of the board stays what it was.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from benchmarks._drawn_boards import DrawnJob

Entry = dict[str, Any]
Values = npt.NDArray[Any]
GPU_UTIL, POWER = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE"
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
_USED, _FREE = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"
_SMI = {
    GPU_UTIL: ("nvidia_smi_utilization_gpu_ratio", 0.01),
    POWER: ("nvidia_smi_power_draw_watts", 1.0),
    _USED: ("nvidia_smi_memory_used_bytes", 1048576.0),
}
"""Names and factors of a second exporter's metrics."""

VARIANTS: dict[str, tuple[str, ...]] = {
    "counter resets": ("once", "often"),
    "unit changes": (
        "utilization as a fraction",
        "activity in percent",
        "memory in bytes",
        "memory in MiB under a name of bytes",
        "power in mW",
        "power in W under a name of mW",
    ),
    "labels lost": tuple(
        f"{label}, every {number}"
        for label in ("all", "namespace", "container")
        for number in (2, 3, 5)
    ),
    "exporters disagree": ("second at 0", "second at work", "bare UUID", "same pod"),
    "index swapped": ("with a free board",),
    "board replaced": ("from the same", "from rest", "from work"),
    "clock drifts": ("60 s ahead", "600 s behind", "7200 s behind", "set back", "slow"),
}  # fmt: skip
"""By fault the ways in which it shows."""


def draw_fault(source: random.Random, job: "DrawnJob") -> "DrawnJob":
    """Return the job with one of these faults instead of its own."""
    fault = source.choice([*VARIANTS])
    seldom, alone = source.random() < 0.2, source.random() < 0.1
    return replace(
        job,
        kind="bursts of minutes" if seldom else job.kind,
        period_minutes=480 if seldom else job.period_minutes,
        fields=("gpu_util",) if alone else job.fields,
        fault=fault,
        holders=1,
        variant=source.choice(VARIANTS[fault]),
        changes_at=source.choice((0.0, source.uniform(0.2, 0.95))),
        faulty_boards=source.randint(1, job.boards),
    )


def told_by_exporter(job: "DrawnJob", board: int, entries: Iterable[Entry]) -> Iterator[Entry]:
    """Return the series of a board as its exporter tells them, with the fault of the job."""
    change = _CHANGES.get(job.fault)
    return iter(entries) if change is None else change(job, board, [*entries])


def _columns(entry: Entry) -> tuple[Values, Values]:
    times, values = zip(*entry["values"], strict=True)
    return np.array(times, dtype=float), np.array([float(value) for value in values])


def _entry(entry: Entry, times: Values, values: Values, **labels: str) -> Entry:
    metric = {name: value for name, value in (entry["metric"] | labels).items() if value}
    pairs = zip(times, values, strict=True)
    return {"metric": metric, "values": [[at, f"{value:.6f}"] for at, value in pairs]}


def _after(job: "DrawnJob", times: Values) -> Values:
    """Return which of the times lie after the moment of the change."""
    return np.asarray(times >= times[0] + job.changes_at * (times[-1] - times[0]))


def _counter_resets(job: "DrawnJob", board: int, entries: list[Entry]) -> Iterator[Entry]:
    yield from entries
    for entry in entries:
        if entry["metric"]["__name__"] == POWER:
            times, watts = _columns(entry)
            between = (watts[1:] + watts[:-1]) / 2 * np.diff(times)
            joules = 1e6 + np.concatenate([[0.0], np.cumsum(between)])
            noise = np.random.default_rng([job.number, board, 11])
            count = 1 if job.variant == "once" else 20
            for at in np.sort(noise.integers(1, len(times), count)):
                joules[at:] -= joules[at]
            yield _entry(entry, times, 1000 * joules, __name__=ENERGY)


def _unit_changes(job: "DrawnJob", _board: int, entries: list[Entry]) -> Iterator[Entry]:
    what = job.variant
    for entry in entries:
        name = entry["metric"]["__name__"]
        times, values = _columns(entry)
        after = _after(job, times)
        if what == "memory in MiB under a name of bytes" and name in (_USED, _FREE):
            values = np.where(after, values, 1048576 * values)
            name += "_BYTES"
        elif what == "power in W under a name of mW" and name == POWER:
            values, name = (
                np.where(after, values, 1000 * values),
                "nvidia_gpu_power_usage_milliwatts",
            )
        elif what == "utilization as a fraction" and name == GPU_UTIL:
            values = np.where(after, values / 100, values)
        elif what == "activity in percent" and "_PROF_" in name:
            values = np.where(after, 100 * values, values)
        elif what == "memory in bytes" and name in (_USED, _FREE):
            values = np.where(after, 1048576 * values, values)
        elif what == "power in mW" and name == POWER:
            values = np.where(after, 1000 * values, values)
        yield _entry(entry, times, values, __name__=name)  # fmt: skip


def _labels_lost(job: "DrawnJob", _board: int, entries: list[Entry]) -> Iterator[Entry]:
    which, _every, number = job.variant.replace(",", "").split()
    names = ("namespace", "pod", "container") if which == "all" else (which,)
    for entry in entries:
        times, values = _columns(entry)
        lost = np.arange(len(times)) % int(number) == 1
        yield _entry(entry, times[~lost], values[~lost])
        yield _entry(entry, times[lost], values[lost], **dict.fromkeys(names, ""))


def _exporters_disagree(job: "DrawnJob", _board: int, entries: list[Entry]) -> Iterator[Entry]:
    yield from entries
    for entry in entries:
        name, factor = _SMI.get(entry["metric"]["__name__"], ("", 0.0))
        if not name:
            continue
        times, values = _columns(entry)
        if job.variant == "second at 0":
            values = np.zeros(len(values))
        elif job.variant == "second at work" and "util" in name:
            values = np.full(len(values), 97.0)
        uuid = entry["metric"]["UUID"]
        labels = dict.fromkeys(("UUID", "namespace", "pod", "container", "device"), "")
        labels |= {"gpu_uuid" if job.variant == "bare UUID" else "uuid": uuid.removeprefix("GPU-")}
        if job.variant == "same pod":
            labels = {}
        yield _entry(entry, times, factor * values, __name__=name, **labels)


def _index_swapped(job: "DrawnJob", board: int, entries: list[Entry]) -> Iterator[Entry]:
    """A board that nobody holds has this one's index after the change, and the other way round."""
    for entry in entries:
        times, values = _columns(entry)
        after = _after(job, times)
        rest = 0 * values if "POWER" not in entry["metric"]["__name__"] else 0 * values + 70.0
        free = dict.fromkeys(("namespace", "pod", "container"), "")
        free["UUID"] = entry["metric"]["UUID"][:-12] + f"{board + 900:012x}"
        for which, own, other in ((~after, board, board + 8), (after, board + 8, board)):
            yield _entry(entry, times[which], values[which], gpu=str(own), device=f"nvidia{own}")
            yield _entry(
                entry, times[which], rest[which], gpu=str(other), device=f"nvidia{other}", **free
            )


def _board_replaced(job: "DrawnJob", board: int, entries: list[Entry]) -> Iterator[Entry]:
    """Another board has the index after the change; the one before was at work, or rested."""
    for entry in entries:
        name = entry["metric"]["__name__"]
        times, values = _columns(entry)
        after = _after(job, times)
        rest = {POWER: job.idle_watts, _USED: 4.0, _FREE: job.memory_mib - 4.0}.get(name, 0.0)
        work = {POWER: 0.9 * job.limit_watts, GPU_UTIL: 97.0}.get(name, 0.85)
        before = values[~after]
        if job.variant.startswith("from rest"):
            before = np.full(len(before), rest)
        elif job.variant.startswith("from work") and name not in (_USED, _FREE):
            before = np.full(len(before), work)
        new = entry["metric"]["UUID"]
        if not job.variant.endswith("on one board"):
            new = new[:-12] + f"{board + 900:012x}"
        yield _entry(entry, times[~after], before)
        yield _entry(entry, times[after], values[after], UUID=new)


def _clock_drifts(job: "DrawnJob", _board: int, entries: list[Entry]) -> Iterator[Entry]:
    for entry in entries:
        times, values = _columns(entry)
        after = _after(job, times)
        if job.variant == "set back":
            times = times - np.where(after, 7200.0, 0.0)
        elif job.variant == "slow":
            times = times - 0.05 * (times - times[0])
        else:
            seconds, _unit, where = job.variant.split()
            times = times + float(seconds) * (1 if where == "ahead" else -1)
        yield _entry(entry, times, values)


_CHANGES: dict[str, Callable[["DrawnJob", int, list[Entry]], Iterator[Entry]]] = {
    "counter resets": _counter_resets,
    "unit changes": _unit_changes,
    "labels lost": _labels_lost,
    "exporters disagree": _exporters_disagree,
    "index swapped": _index_swapped,
    "board replaced": _board_replaced,
    "clock drifts": _clock_drifts,
}
