"""Optimisers that launchers name, with what they say of their states."""

import shlex
from pathlib import Path

import pytest

from dashboard.submission.launchers.launched_job import LaunchedJob, LaunchOptions, launched_job

HF = "python train.py --model_name_or_path meta-llama/Llama-3.1-8B --bf16 --max_length 512"


def read(line: str) -> LaunchedJob:
    """The job of one command line."""
    return launched_job(shlex.split(line), LaunchOptions())


@pytest.mark.parametrize(
    ("words", "name", "rank"),
    [
        ("--optim galore_adamw --optim_args rank=64,update_proj_gap=200", "galore", 64),
        ("--optim galore_adamw_8bit_layerwise", "galore8bit_in_backward", None),
        ("--optim apollo_adamw --optim_args 'proj=random, rank = 1'", "apollo", 1),
        ("--optim adamw_torch --optim_args rank=64", "adamw", None),
        ("--optim schedule_free_adamw", "adamw", None),
        ("--optim adamw_torch_fused", "adamw_fused", None),
        ("--optim lion_8bit", "lion8bit", None),
        ("--optim adamw_torch_4bit", "adamw4bit", None),
    ],
)
def test_optimizers_of_transformers(words: str, name: str, rank: int | None) -> None:
    """The name, whether it steps layer by layer, and the rank that gradients are projected to."""
    job = read(f"{HF} {words}").job
    assert (job.optimizer, job.optimizer_rank) == (name, rank)


def test_llamafactory_has_keys_of_its_own_for_galore(tmp_path: Path) -> None:
    """Its rank is 16 unasked; layer by layer, one gradient lives at a time."""
    text = "model_name_or_path: meta-llama/Llama-3.1-8B\nfinetuning_type: full\nuse_galore: true\n"
    path = tmp_path / "galore.yaml"
    path.write_text(text, encoding="utf-8")
    found = read(str(path)).job
    assert (found.optimizer, found.optimizer_rank) == ("galore", 16)
    path.write_text(f"{text}galore_layerwise: true\ngalore_rank: 256\n", encoding="utf-8")
    found = read(str(path)).job
    assert (found.optimizer, found.optimizer_rank) == ("galore_in_backward", 256)


def test_dropout_of_an_adapter_is_told() -> None:
    """A rate above 0 says that inputs are dropped out; none stated, or 0, that they are not."""
    adapted = f"{HF} --use_peft --lora_r 8"
    for words, dropped in (("--lora_dropout 0.05", True), ("--lora_dropout 0", False), ("", False)):
        adapter = read(f"{adapted} {words}").job.adapter
        assert adapter is not None
        assert adapter.dropout is dropped


def test_an_emptied_cache_is_told() -> None:
    """Steps between emptied caches say that nothing of typical batches stays cached."""
    assert read(f"{HF} --torch_empty_cache_steps 10").job.cache_emptied
    assert not read(HF).job.cache_emptied


@pytest.mark.parametrize(
    "flag", ["--use_badam", "--freeze_trainable_layers", "--ddp_bucket_cap_mb", "--lisa_layers"]
)
def test_what_trains_a_part_is_named_where_it_is_not_read(flag: str) -> None:
    """Block-wise training, frozen layers and buckets change the peak, and no table holds them."""
    assert any(flag.strip("-") in line for line in read(f"{HF} {flag} 4").unread)
