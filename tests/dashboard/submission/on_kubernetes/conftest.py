"""A Kubernetes for the tests of submitting, emptied before each."""

from pathlib import Path

import pytest
from beds.folder_ends import FolderEnds
from beds.kubernetes import KubernetesBed, running_kubernetes
from beds.kubernetes_submission import delete_job

H100_LABEL, A100_LABEL = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-40GB"


@pytest.fixture(scope="session")
def bed(folder_ends: FolderEnds) -> KubernetesBed:
    """One cluster with two kinds of nodes for the tests of the folder."""
    running = folder_ends.of(Path(__file__).parent).enter_context(running_kubernetes())
    running.add_gpu_node("gpu-h100", gpus=8, product=H100_LABEL)
    running.add_gpu_node("gpu-a100-1", gpus=2, product=A100_LABEL)
    running.add_gpu_node("gpu-a100-2", gpus=2, product=A100_LABEL)
    return running


@pytest.fixture(autouse=True)
def empty_cluster(bed: KubernetesBed) -> None:
    """Nothing of another test holds GPUs."""
    for job in bed.list("Job", namespace="default"):
        delete_job(bed, job["metadata"]["name"])
    for pod in bed.pods():  # no collector of garbage runs in the bed
        bed.delete("Pod", pod["metadata"]["name"], grace_seconds=0)
    bed.until("no pod is left", lambda: not bed.pods())
