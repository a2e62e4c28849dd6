"""A Slurm for the tests of submitting, emptied before each."""

from pathlib import Path

import pytest
from beds.folder_ends import FolderEnds
from beds.slurm import SlurmBed, running_slurm
from beds.slurm_files import BedNode

NODES = (
    BedNode(name="h1", gpu_type="h100", gpus=4, features="h100"),
    BedNode(name="h2", gpu_type="h100", gpus=4, features="h100"),
    BedNode(name="a1", gpu_type="a100", gpus=2, features="a100"),
    BedNode(name="c1", features="cpu"),
)


@pytest.fixture(scope="session")
def bed(folder_ends: FolderEnds) -> SlurmBed:
    """One cluster with accounting for the tests of the folder."""
    return folder_ends.of(Path(__file__).parent).enter_context(
        running_slurm(nodes=NODES, accounting=True)
    )


@pytest.fixture(autouse=True)
def empty_queue(bed: SlurmBed) -> None:
    """Nothing of another test holds GPUs."""
    bed.run("scancel", "-u", bed.plan.user)
    bed.until("the queue is empty", lambda: not bed.run("squeue", "-h"))
