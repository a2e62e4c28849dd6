"""Launch commands that srun starts: what its options say of nodes and GPUs."""

import shlex

import pytest

from dashboard.submission.launchers.launched_job import LaunchOptions, launched_job

HF = "--model_name_or_path meta-llama/Llama-3.1-8B --bf16 --per_device_train_batch_size 2"


@pytest.mark.parametrize(
    ("srun", "gpus"),
    [
        ("-N2 --ntasks-per-node=1 --gpus-per-node=8 torchrun --nnodes 2 --nproc-per-node 8", 16),
        ("-N 2 -l -p gpu --ntasks-per-node 1 torchrun --nnodes 2 --nproc-per-node=4", 8),
        ("-N2 --gpus-per-node=h100:8 --unbuffered python", 16),
        ("--nodes=2 --gres=gpu:a100:4 --export ALL python", 8),
        ("-N 4 --ntasks-per-node 8 /opt/venv/bin/python", 32),
        ("-G 4 python", 4),
        ("--exclusive -N1 --gpus-per-node 8 torchrun --nproc-per-node auto", 8),
        ("--gpus-per-node=8 torchrun --nproc-per-node=4", 4),
    ],
)
def test_what_srun_gives_holds_where_no_launcher_says_it(srun: str, gpus: int) -> None:
    """With short and long options, attached or apart, and with types of GPUs."""
    line = f"srun {srun} train.py {HF} --block_size 512"
    job = launched_job(shlex.split(line), LaunchOptions()).job
    assert job.parallelism.gpus == gpus
