"""Rows of a table of measurements become the jobs that were measured. Rows here are made up."""

from typing import Any

import pandas as pd
import pytest

from benchmarks.memory import report
from benchmarks.memory_rows import read_rows
from planner.memory.step.training_job import Method, Recompute, Sharding

GIB = 2**30
COLUMNS: dict[str, Any] = {
    "id": 1, "source": "example/lab", "path": "README.md", "section": "", "task": "finetune",
    "model": "Llama 2 7B", "method": "full", "quant": "none", "precision": "bf16",
    "optimizer": "AdamW", "micro_batch": 1.0, "grad_accum": None, "global_batch": None,
    "seq_len": 1024.0, "seq_note": "", "n_gpus": 1.0, "gpu": "A100-80GB", "parallelism": "none",
    "cpu_offload": None, "act_ckpt": "full", "flash_attn": "2", "compile": "", "lora_rank": None,
    "lora_targets": "", "trainable_params": None, "oom": False, "train_peak_gib": 60.0,
    "unit_ambiguous": False, "time_note": "",
}  # fmt: skip


def table(*rows: dict[str, Any]) -> pd.DataFrame:
    """A table of made-up rows."""
    return pd.DataFrame([{**COLUMNS, "id": index, **row} for index, row in enumerate(rows)])


@pytest.mark.parametrize(
    ("printed", "gpus", "degrees", "sharding"),
    [
        ("none", 1, (1, 1, 1, 1), Sharding.NONE),
        ("FSDP8+TP8+PP8", 512, (8, 8, 8, 1), Sharding.FSDP),
        ("pp=4,tp=2,dp=4", 32, (4, 2, 4, 1), Sharding.NONE),
        ("zero1=-1,tp=4,pp=1,fsdp=False", 4, (1, 4, 1, 1), Sharding.ZERO1),
        ("zero1=-1,tp=1,pp=1,fsdp=True", 4, (4, 1, 1, 1), Sharding.FSDP),
        ("FSDP 4, CP 2", 8, (4, 1, 1, 2), Sharding.FSDP),
        ("zero2 (no zero3)", 4, (4, 1, 1, 1), Sharding.ZERO2),
        ("zero3", 4, (4, 1, 1, 1), Sharding.ZERO3),
        ("naive MP (device_map auto)", 2, (1, 1, 2, 1), Sharding.NONE),
    ],
)
def test_printed_parallelism_is_read(
    printed: str, gpus: int, degrees: tuple[int, int, int, int], sharding: Sharding
) -> None:
    """Data, tensor, pipeline and context degrees, and what is sharded, as tables print them."""
    (row,) = read_rows(table({"parallelism": printed, "n_gpus": float(gpus)}))
    assert row.job is not None
    spread = row.job.parallelism
    assert (spread.data, spread.tensor, spread.pipeline, spread.context) == degrees
    assert spread.sharding is sharding


def test_a_row_becomes_its_job() -> None:
    """Model, method, batch, length, card and recomputation of a printed row."""
    (row,) = read_rows(table({"method": "lora", "lora_targets": "['q_proj', 'v_proj']"}))
    job = row.job
    assert job is not None
    assert (job.shape.name, job.method, job.micro_batch) == ("llama2-7b", Method.ADAPTER, 1)
    assert (job.sequence_length, job.recompute) == (1024, Recompute.FULL)
    assert job.adapter is not None
    assert job.adapter.targets == ("q", "v")
    assert row.peak_bytes == 60 * GIB


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "NoSuch 3B"}, "NoSuch 3B"),
        ({"parallelism": "tp=3", "n_gpus": 3.0}, "32 heads over 3"),
        ({"micro_batch": None}, "micro-batch"),
    ],
)
def test_a_row_without_a_job_says_why(changes: dict[str, Any], words: str) -> None:
    """A model that is not known, parallelism that cannot be, a batch that is not printed."""
    (row,) = read_rows(table(changes))
    assert words in row.reason


def test_the_report_holds_for_any_table() -> None:
    """One source, several sources, runs out of memory and rows without a job are all reported."""
    one = table({})
    many = table(
        {},
        {"source": "example/other", "train_peak_gib": 55.0},
        {"model": "NoSuch 3B"},
        {"oom": True, "train_peak_gib": None, "model": "Llama 2 70B"},
    )
    assert "| estimates per CPU second" in report(read_rows(one))
    words = report(read_rows(many))
    assert words.count("| 1 of 1 | 0 of 2 |") == 3
    assert words.index("left out: framework not told") < words.index("in-sample")
    assert "NoSuch 3B" in words


def test_a_peak_below_its_states_contradicts_itself() -> None:
    """8 bytes per parameter are the least of Adam; offloaded states may be anywhere."""
    low, high, moved, small = read_rows(
        table(
            {"train_peak_gib": 49.0},
            {"train_peak_gib": 51.0},
            {"train_peak_gib": 49.0, "cpu_offload": "True"},
            {"train_peak_gib": 49.0, "method": "lora"},
        )
    )
    assert "weights, gradients and Adam" in low.contradiction
    assert not high.contradiction + moved.contradiction + small.contradiction
