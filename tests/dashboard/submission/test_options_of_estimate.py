"""Options of `trimtab estimate`: each is followed or refused, and none is left out silently."""

import argparse
import shlex
from pathlib import Path

import pytest

from dashboard.cli import main
from dashboard.cli.parser.add_command import add_command, command_table

LAUNCH = (
    "torchrun --nproc-per-node 8 train.py --model_name_or_path meta-llama/Llama-3.1-8B --bf16 "
    "--per_device_train_batch_size 2 --max_seq_length 512 --optim adamw_torch "
    "--gradient_checkpointing true --fsdp full_shard"
)
SERVE = "vllm serve meta-llama/Meta-Llama-3-8B --max-model-len 4096 --max-num-seqs 8"
FOLLOWED = {"help", "format", "model", "config", "framework", "gpu", "top"}
"""What a launcher's command leaves to the person."""
OTHERWISE = {
    "batch": "999", "seq": "9999", "optimizer": "sgd", "precision": "fp32", "quantization": "nf4",
    "method": "adapter", "lengths": "fixed", "recompute": "attention", "sharding": "zero1",
    "offload": "optimizer", "gpus": "16", "serve": "", "kv_cache_dtype": "fp8",
}  # fmt: skip


def options() -> dict[str, str]:
    """Every option that states something of the job or its run, with another value than LAUNCH."""
    commands = argparse.ArgumentParser().add_subparsers()
    (row,) = (row for row in command_table()["command"] if row["words"] == "estimate")
    parser = add_command(commands, row)
    names = [action.dest for action in parser._actions if action.dest not in FOLLOWED]
    return {name: OTHERWISE.get(name, "3") for name in names}


def refused(
    capsys: pytest.CaptureFixture[str], folder: Path, given: str, *asked: str
) -> tuple[int, str]:
    """The exit status of the command and what it says on stderr."""
    store = ["--store", f"duckdb:///{folder / 'none.duckdb'}"]
    status = main([*store, "estimate", *shlex.split(given), *asked])
    return status, capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(options()))
def test_an_option_may_not_say_otherwise_than_the_launcher(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """The error names the option with its value; the whole set of options is asked."""
    flag, value = f"--{name.replace('_', '-')}", options()[name]
    status, said = refused(capsys, tmp_path, f"{flag} {value}", "--", *shlex.split(LAUNCH))
    assert status == 1
    assert f"{flag} {value}" in said


@pytest.mark.parametrize(
    ("given", "launch", "other"),
    [
        ("--batch 999", LAUNCH, "per_device_train_batch_size 2"),
        ("--seq 1024", LAUNCH, "max_seq_length 512"),
        ("--recompute none", LAUNCH, "gradient_checkpointing true"),
        ("--method full", f"{LAUNCH} --use_peft", "use_peft true"),
        ("--adapter-rank 8", f"{LAUNCH} --use_peft --lora_r 32", "lora_r 32"),
        ("--sharding zero3", LAUNCH, "fsdp full_shard"),
        ("--seq 9000", SERVE, "max_model_len 4096"),
        ("--batch 64", SERVE, "max_num_seqs 8"),
        ("--tensor 2", f"{SERVE} --tensor-parallel-size 4", "tensor_parallel_size 4"),
        (
            "--gpu-memory-utilization 0.8",
            f"{SERVE} --gpu-memory-utilization 0.9",
            "gpu_memory_utilization 0.9",
        ),
        ("--kv-cache-dtype fp8", f"{SERVE} --kv-cache-dtype auto", "kv_cache_dtype auto"),
    ],
)
def test_the_error_names_the_flag_that_is_contradicted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str, launch: str, other: str
) -> None:
    """Option and launcher's flag stand in one error, each with its value."""
    status, said = refused(capsys, tmp_path, given, "--", *shlex.split(launch))
    assert status == 1
    assert f"{given} contradicts {other}" in said


@pytest.mark.parametrize(
    ("given", "launch"),
    [
        ("--batch 16 --seq 512 --micro-batch 2 --data 8 --recompute full --gpus 8", LAUNCH),
        ("--optimizer adamw --sharding fsdp --method full", LAUNCH),
        ("--seq 777", LAUNCH.replace("--max_seq_length 512", "")),
        ("--batch 4 --seq 2048", SERVE),
        ("--batch 4 --serve --gpu-memory-utilization 0.8", f"{SERVE} --gpu-memory-utilization 0.8"),
    ],
)
def test_an_option_that_says_the_same_is_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str, launch: str
) -> None:
    """What agrees, and what the launcher leaves open, gives an estimate."""
    status, said = refused(capsys, tmp_path, given, "--", *shlex.split(launch))
    assert status == 0, said


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        ("--adapter-rank 8", "--method adapter"),
        ("--quantization nf4", "--method adapter"),
        ("--time-limit 5", "--tokens"),
        ("--gpus 0", "1 or more"),
        ("--gpus -5", "1 or more"),
    ],
)
def test_an_option_without_what_it_needs_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str, fix: str
) -> None:
    """The error names the option with its value and what would take it."""
    status, said = refused(capsys, tmp_path, f"llama3-8b --batch 8 --seq 512 {given}")
    assert status == 1
    flag, _, value = given.partition(" ")
    assert all(part in said for part in (flag, value, fix))


@pytest.mark.parametrize("count", ["0", "-5"])
def test_no_gpus_are_refused_beside_a_launcher_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: str
) -> None:
    """--gpus 0 is no way to leave it out."""
    status, said = refused(capsys, tmp_path, f"--gpus {count}", "--", *shlex.split(LAUNCH))
    assert status == 1
    assert f"--gpus of {count}" in said
