"""Job files and fleets of the submission tests."""

from pathlib import Path
from typing import Any

from dashboard.submission.job.command_options import COUNT_OPTIONS
from dashboard.submission.job.fleet import SubmissionFleet, SubmissionNode, fleet_of
from dashboard.submission.job.job_file import JobFile, read_job
from data.catalogue.gpu_catalogue import load_gpu_catalogue

H100, A100 = "H100-SXM5-80GB", "A100-SXM4-40GB"


def job_table(**changes: Any) -> dict[str, Any]:
    """A job file as TOML would give it: TinyLlama, its recipe stated, every plan can be told."""
    table = {
        "name": "tiny-run",
        "command": ["train.py", "--micro-batch", "{micro_batch}"],
        "reads": list(COUNT_OPTIONS),
        "image": "registry.example/train:1",
        "model": {"name": "tinyllama-1.1b"},
        "training": {
            "global_batch": 64,
            "sequence_length": 2048,
            "framework": "torchtitan",
            "optimizer": "adamw",
            "precision": "amp",
            "length_varies": False,
        },
    }
    return table | changes


def make_job(**changes: Any) -> JobFile:
    """The job of that table."""
    return read_job(job_table(**changes), folder=Path())


def node(
    name: str, gpu_type: str = H100, *, gpus: int = 4, free: int = 4, **more: Any
) -> SubmissionNode:
    """A node with 8 CPUs and 64 GiB per GPU unless told otherwise."""
    values: dict[str, Any] = {
        "name": name,
        "gpu_type": gpu_type,
        "word": gpu_type.partition("-")[0].lower(),
        "gpus": gpus,
        "free_gpus": free,
        "cpus": 8 * gpus,
        "memory_mib": 65_536.0 * gpus,
    }
    return SubmissionNode(**(values | more))


def make_fleet(*nodes: SubmissionNode) -> SubmissionFleet:
    """A fleet of these nodes."""
    return fleet_of(nodes, load_gpu_catalogue(), source="the test")
