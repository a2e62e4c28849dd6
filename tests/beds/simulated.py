"""A simulated cluster in a folder, and its jobs by what they are."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd

from collectors.simulated.cluster import SimulatedCluster
from collectors.simulated.layout import Tenant
from data.facts.jobs import WorkloadKind
from data.records.plans import Configuration

NOW = datetime(2026, 1, 7, 12, tzinfo=UTC)
H100 = "H100-SXM5-80GB"
_MARGIN = 4 * 3600


def make_cluster(folder: Path, *, nodes: int = 8) -> SimulatedCluster:
    """The cluster of the demo, unchanged."""
    return SimulatedCluster(path=folder / "cluster.json", seed=7, nodes=nodes)


def job_where(cluster: SimulatedCluster, fits: Callable[[Tenant], bool], at: datetime = NOW) -> str:
    """The id of the first job that fits and that ran four hours ago and will in four hours."""
    fleet, now = cluster.fleet(), int(at.timestamp())
    for tenant in fleet.tenants:
        for run, begins, ends in fleet.runs(tenant, now, now):
            in_the_middle = begins < now - _MARGIN and ends > now + _MARGIN
            if fits(tenant) and (in_the_middle or not tenant.period_seconds):
                return tenant.job_id(run)
    raise LookupError("the fleet has no such job")


def idle_job(cluster: SimulatedCluster) -> str:
    """A job that holds one H100 and does nothing."""
    return job_where(cluster, lambda entry: entry.idle and entry.devices[0].gpu_model == H100)


def small_service(cluster: SimulatedCluster, *, boards: int = 1) -> str:
    """A service that needs a part of what it holds: whole boards."""
    return job_where(
        cluster,
        lambda entry: (
            entry.kind is WorkloadKind.INFERENCE
            and entry.level < 0.25
            and len(entry.devices) == boards
            and not entry.devices[0].mig_instance
        ),
    )


def training(cluster: SimulatedCluster, model: str = H100) -> str:
    """A training run in its middle."""
    return job_where(
        cluster,
        lambda entry: entry.kind is WorkloadKind.TRAINING and entry.devices[0].gpu_model == model,
    )


def held(cluster: SimulatedCluster, job_id: str, at: datetime = NOW) -> Configuration:
    """What the job has."""
    found = cluster.job(job_id, at)
    assert found is not None
    return found.configuration


def give(cluster: SimulatedCluster, job_id: str, wanted: Configuration, at: datetime = NOW) -> None:
    """Give a job what is wanted."""
    cluster.change(job_id, before=held(cluster, job_id, at), after=wanted, clock=lambda: at)


def readings(
    cluster: SimulatedCluster, job_id: str, *, start: datetime = NOW, hours: float = 2
) -> pd.DataFrame:
    """The job's samples of some hours from `start` on."""
    frame = cluster.fleet().history(start, start + timedelta(hours=hours), 300)
    return frame[frame["job_id"] == job_id]
