"""Fixtures of the tests of applying."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.folder_ends import FolderEnds
from beds.power import PowerBed
from beds.slurm import SlurmBed, running_slurm
from beds.slurm_files import BedNode

SLURM_NODES = (
    BedNode(name="h1", gpu_type="h100", gpus=4, features="nvlink"),
    BedNode(name="h2", gpu_type="h100", gpus=4, features="nvlink"),
    BedNode(name="a1", gpu_type="a100", gpus=2, features="a100"),
    BedNode(name="c1", features="cpuonly"),
)


@pytest.fixture(scope="session")
def cluster(folder_ends: FolderEnds) -> SlurmBed:
    """One Slurm for the tests of applying; each ends its own jobs."""
    return folder_ends.of(Path(__file__).parent).enter_context(
        running_slurm(nodes=SLURM_NODES, accounting=True, rest=True)
    )


@pytest.fixture
def bed(cluster: SlurmBed) -> Iterator[SlurmBed]:
    """The cluster, empty afterwards."""
    yield cluster
    cluster.run("scancel", "--quiet", "-u", cluster.plan.user)
    cluster.until("no job is left", lambda: not cluster.run("squeue", "-h"))


@pytest.fixture
def power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PowerBed:
    """A node with one H100 at 700 W."""
    bed = PowerBed(tmp_path)
    monkeypatch.setenv("NVML_STUB_SCENARIO", str(bed.scenario))
    return bed
