"""Recorded demand as replays: pods by the minute, virtual clusters and a cluster by the hour."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks.demand_sets import helios, on_one_clock, philly
from benchmarks.rightsizing.all_policies import KrrCpu, KrrMemory, forecast_policies, peer_policies
from benchmarks.rightsizing.charges import UnitCharges
from benchmarks.rightsizing.decaying_histogram import DecayingHistogram
from benchmarks.rightsizing.operating_points import (
    MEMORY,
    MEMORY_TIGHT,
    UTILIZATION,
    UTILIZATION_CALM,
)
from benchmarks.rightsizing.past import LimitRule, StepForecast, Values
from benchmarks.rightsizing.replay import Recorded
from benchmarks.rightsizing.step_forecasts import step_forecasts
from benchmarks.rightsizing.vertical_autoscaler import VpaPeaks, VpaSamples
from data.catalogue.gpu_catalogue import load_gpu_catalogue

Mask = npt.NDArray[np.bool_]
FIRST_HOURS = 3
GIB = 2**30
MEMORY_BUCKET = 1e7
"""Width of the autoscaler's first memory bucket, bytes; of CPU a hundredth of a core."""
CPU_BUCKET = 0.01
_HISTORY_DAYS = 14
HELIOS_RUNNING_AT_START = 765
"""At least so many GPUs were running when the recording of Helios begins; its zero is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplaySet:
    """A recording, how it is charged, who is compared, and the half [jobs] that may be tuned on.

    `peers` names the rules whose operating points ours are held against, and by which of ours.
    """

    name: str
    unit: str
    recorded: Recorded
    charges: UnitCharges
    tuned_on: Mask
    policies: Sequence[LimitRule]
    peers: Sequence[tuple[str, str]]
    forecasts: Sequence[StepForecast | None] = ()


def half(count: int) -> Mask:
    """Return the jobs that settings are tuned on: a random half, the same in every run."""
    return np.asarray(np.random.default_rng(0).permutation(count) < count // 2)


def pod_usage(data: Path, column: str) -> Values:
    """Return usage [pods, minutes] on the pods' common clock: percent, or the largest GiB."""
    frame = pd.read_parquet(data / "alibaba_genai_pods" / "pod_gpu_timeseries.parquet")
    frame = frame.dropna(subset=[column])
    memory = column != "gpu_util_pct"
    if memory:
        # Zero bytes on a serving pod is a reading that failed.
        frame = frame[frame[column] > 1e7]
    minute = frame["t_est_real_s"] // 60
    wide = frame.assign(minute=minute).pivot_table(
        index="pod", columns="minute", values=column, aggfunc="max" if memory else "mean"
    )
    wide = wide / GIB if memory else wide
    return np.asarray(wide.reindex(columns=range(int(minute.max()) + 1)).to_numpy(dtype=np.float64))


def _pod_recording(usage: Values, top: float) -> Recorded:
    levels = np.tile(np.linspace(top / 100, top, 100), (len(usage), 1))
    return Recorded(
        usage=usage,
        levels=levels,
        sample_hours=1 / 60,
        samples_per_step=60,
        first_step=FIRST_HOURS,
        warm_up_samples=60 * FIRST_HOURS,
        exact=False,
        cohorts=np.zeros(len(usage), dtype=np.int64),
    )


def pods_memory(data: Path) -> ReplaySet:
    """Return the memory of one-GPU pods, GiB; a GiB is rented as its share of an 80 GiB board."""
    usage = pod_usage(data, "gpu_mem_used_bytes")
    board = load_gpu_catalogue().get("A100-SXM4-80GB")
    charges = UnitCharges(unit_hour=board.price_per_hour / 80)
    histogram = DecayingHistogram(first=MEMORY_BUCKET / GIB)
    peaks = VpaPeaks(histogram=histogram).name
    samples = VpaSamples(histogram=histogram).name
    return ReplaySet(
        name="pods, memory",
        unit="GiB",
        recorded=_pod_recording(usage, 80.0),
        charges=charges,
        tuned_on=half(len(usage)),
        policies=[*peer_policies(histogram.first), MEMORY, MEMORY_TIGHT],
        peers=[
            (KrrMemory().name, MEMORY.name),
            (peaks, MEMORY.name),
            (samples, MEMORY_TIGHT.name),
        ],
    )


def pods_utilization(data: Path) -> ReplaySet:
    """Return the utilization of one-GPU pods, % of the GPU; a percent is rented as that share."""
    usage = pod_usage(data, "gpu_util_pct")
    board = load_gpu_catalogue().get("A100-SXM4-80GB")
    charges = UnitCharges(unit_hour=board.price_per_hour / 100)
    histogram = DecayingHistogram(first=100 * CPU_BUCKET)
    return ReplaySet(
        name="pods, utilization",
        unit="% of a GPU",
        recorded=_pod_recording(usage, 100.0),
        charges=charges,
        tuned_on=half(len(usage)),
        policies=[*peer_policies(histogram.first), UTILIZATION, UTILIZATION_CALM],
        peers=[
            (KrrCpu().name, UTILIZATION.name),
            (VpaSamples(histogram=histogram).name, UTILIZATION.name),
            (KrrCpu().name, UTILIZATION_CALM.name),
        ],
    )


def _whole(top: float) -> Values:
    """Return whole GPUs up to the top, 2 % apart where there are many."""
    return np.unique(np.round(np.geomspace(1, max(2.0, top), 160)))


def _clusters(name: str, usage: Values, every: int, *, tuned: Mask) -> ReplaySet:
    """Return hourly demand [clusters, hours] in GPUs as a replay of whole GPUs."""
    board = load_gpu_catalogue().get("V100-SXM2-16GB")
    charges = UnitCharges(
        unit_hour=board.price_per_hour,
        idle_kw=board.idle_watts / 1000,
        busy_kw=board.tdp_watts / 1000 * 0.8,
        energy_price=0.12,
        pue=1.3,
    )
    histogram = DecayingHistogram(first=CPU_BUCKET)
    levels = np.tile(_whole(1.5 * float(np.nanmax(usage))), (len(usage), 1))
    recorded = Recorded(
        usage=usage,
        levels=np.concatenate([np.zeros((len(usage), 1)), levels], axis=1),
        sample_hours=1.0,
        samples_per_step=1,
        first_step=24 * _HISTORY_DAYS,
        warm_up_samples=24 * _HISTORY_DAYS,
    )
    return ReplaySet(
        name=name,
        unit="GPUs",
        recorded=recorded,
        charges=charges,
        tuned_on=tuned,
        policies=[
            *peer_policies(histogram.first),
            *forecast_policies(charges),
        ],
        peers=[
            (KrrCpu().name, "Trimtab, forecast path"),
            (VpaSamples(histogram=histogram).name, "Trimtab, forecast path, careful"),
        ],
        forecasts=step_forecasts(recorded, every),
    )


def philly_clusters(data: Path, every: int) -> ReplaySet:
    """Return the GPUs wanted by Philly's virtual clusters; forecasts made every so many hours."""
    _names, usage = on_one_clock(philly(data))
    return _clusters("philly, virtual clusters", usage, every, tuned=half(len(usage)))


def helios_cluster(data: Path, every: int) -> ReplaySet:
    """Return the GPUs that ran on Helios Venus, by the hour."""
    running = helios(data).series["running_gpu_est"] + HELIOS_RUNNING_AT_START
    usage = np.maximum(running, 0.0)[None]
    return _clusters("helios, one cluster", usage, every, tuned=np.zeros(1, dtype=np.bool_))
