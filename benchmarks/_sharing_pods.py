"""Recorded and drawn pods on one clock of minutes, one whole board each."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from planner.sharing.shared_boards import SharingLoad

Values = npt.NDArray[np.float64]
BOARD_GIB, SLOT = 80.0, 15
_MIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """Memory, GiB, and utilization, percent, arrays [pods, minutes], NaN where unknown.

    `first` and `last` are the minutes between which a pod holds its board, `tenant` its namespace.
    """

    name: str
    memory: Values
    busy: Values
    first: npt.NDArray[np.int64]
    last: npt.NDArray[np.int64]
    tenant: npt.NDArray[np.int64]

    @property
    def minutes(self) -> int:
        """The length of the recording."""
        return self.memory.shape[1]

    def there(self, minute: int, *, known: int = 120) -> npt.NDArray[np.int64]:
        """Return the pods that hold a board in a minute and were seen `known` minutes before."""
        old = (self.first <= minute - known) & (self.last >= minute)
        seen = np.isfinite(self.memory[:, :minute]).any(axis=1)
        return np.flatnonzero(old & seen)

    def past(self, pods: npt.NDArray[np.int64], minute: int) -> SharingLoad:
        """Return what the product keeps of the last days before a minute, by slots of 15 min."""
        from_minute = max(0, minute - 3 * 1440) // SLOT * SLOT
        span = slice(from_minute, minute // SLOT * SLOT)
        shape = (len(pods), -1, SLOT)
        memory = self.memory[pods, span].reshape(shape)
        busy = self.busy[pods, span].reshape(shape) / 100
        known = np.isfinite(busy).any(axis=2)
        return SharingLoad(
            memory_mib=_largest(memory) * _MIB,
            mean_ratio=np.where(
                known,
                np.nansum(busy, axis=2) / np.maximum(1, np.isfinite(busy).sum(axis=2)),
                np.nan,
            ),
            peak_ratio=_largest(busy),
            room=self.tenant[pods],
        )


def _largest(values: Values) -> Values:
    known = np.isfinite(values).any(axis=2)
    return np.where(known, np.nanmax(values, axis=2, initial=-np.inf), np.nan)


def recorded(data: Path) -> Pods:
    """Return the pods of Alibaba's recording that have readings of utilization."""
    path = data / "alibaba_genai_pods" / "pod_gpu_timeseries.parquet"
    frame = pd.read_parquet(path)
    frame = frame[frame["pod"].isin(frame.loc[frame["gpu_util_pct"].notna(), "pod"])]
    minute = frame["t_est_real_s"] // 60
    columns = range(int(minute.max()))
    tables = [
        frame.pivot_table(index="pod", columns=minute, values=name, aggfunc="max")
        .reindex(columns=columns)
        .to_numpy(float)
        for name in ("gpu_mem_used_bytes", "gpu_util_pct")
    ]
    memory = np.where(tables[0] > 0, tables[0], np.nan) / 2**30
    return _pods("recorded pods", memory, tables[1], np.zeros(len(memory), dtype=np.int64))


def _pods(name: str, memory: Values, busy: Values, tenant: npt.NDArray[np.int64]) -> Pods:
    seen = np.isfinite(memory) | np.isfinite(busy)
    return Pods(
        name=name,
        memory=memory,
        busy=busy,
        first=seen.argmax(axis=1),
        last=seen.shape[1] - 1 - seen[:, ::-1].argmax(axis=1),
        tenant=tenant,
    )


def drawn(seed: int, *, pods: int = 48, days: int = 3) -> Pods:
    """Return pods of three tenants: services, busy services, notebooks, leaks, and steps.

    Each has a level of memory with peaks of minutes to an hour, at night fewer; a tenth leaks or
    steps up once. Pods begin and end: an eighth comes on a later day, an eighth goes early.
    """
    random = np.random.default_rng(seed)
    minutes = 1440 * days
    clock = np.arange(minutes)
    day = 0.5 - 0.5 * np.cos(2 * np.pi * (clock / 1440 - random.uniform(0, 0.2)))
    memory, busy = np.full((pods, minutes), np.nan), np.full((pods, minutes), np.nan)
    for pod in range(pods):
        kind = random.choice(4, p=(0.55, 0.15, 0.25, 0.05))
        level = random.uniform(*((6, 30), (15, 40), (2, 12), (8, 20))[kind])
        rate = (0.03, 0.12, 0.004, 0.02)[kind] * random.lognormal(0, 0.4)
        power = random.uniform(*((15, 40), (60, 98), (20, 90), (15, 40))[kind])
        starts = random.random(minutes) < rate * (0.2 + 1.6 * day)
        work = np.zeros(minutes)
        held = np.full(minutes, level)
        for start in np.flatnonzero(starts):
            length = 1 + int(random.exponential(2.0))
            work[start : start + length] = power * random.uniform(0.7, 1.0)
            if random.random() < 0.05:
                length = 5 + int(random.exponential(20))
                peak = level * (1 + min(1.2, random.exponential(0.25)))
                held[start : start + length] = np.maximum(held[start : start + length], peak)
        if kind == 3:
            held += clock / 60 * random.uniform(0.1, 0.4)
        elif random.random() < 0.05:
            held[random.integers(minutes) :] += random.uniform(2, 8)
        begin = random.integers(minutes) if random.random() < 0.125 else 0
        end = random.integers(begin, minutes) if random.random() < 0.125 else minutes
        memory[pod, begin:end] = np.minimum(held, BOARD_GIB - 2)[begin:end]
        busy[pod, begin:end] = np.minimum(100, work)[begin:end]
    alive = np.isfinite(memory).any(axis=1)
    tenant = random.integers(0, 3, pods)
    return _pods(f"drawn fleet {seed}", memory[alive], busy[alive], tenant[alive])
