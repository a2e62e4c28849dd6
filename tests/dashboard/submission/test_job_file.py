"""Job files are untrusted: every field is checked, and none of them can name a GPU."""

import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from submission_cases import job_table, make_job

from dashboard.submission.job.job_file import JobFile, load_job_file, read_job
from data.base.errors import ChangeRefusedError, ImpossibleProblemError, TrimtabError
from data.store.engine.record_json import from_json, to_json

WHOLE_FILE = """
name = "llama-run"
command = ["python", "train.py", "--batch", "{micro_batch}"]
image = "registry.example/train:1"
workdir = "/srv/run"
log = "/srv/run/%j.log"
deadline = 2026-12-01T08:00:00+01:00
time_limit_hours = 20
supports = ["recompute", "sharding"]
[model]
name = "llama3-8b"
[data]
path = "/srv/data"
claim = "math-data"
tokens = 1_000_000_000
[training]
global_batch = 64
sequence_length = 4096
method = "adapter"
adapter_rank = 16
adapter_targets = ["q", "v"]
quantization = "nf4"
[environment]
WANDB_MODE = "offline"
[host]
cpus_per_gpu = 8
memory_gib_per_gpu = 48.5
[on_out_of_memory]
resubmit = true
retries = 2
"""


TRAINING = {"global_batch": 8, "sequence_length": 8}


@pytest.mark.parametrize(
    ("precision", "framework", "policy"),
    [
        ("bf16-mixed", "", "amp"), ("bf16", "transformers", "amp"), ("fp16", "accelerate", "amp"),
        ("float32", "", "fp32"), ("pure_bf16", "torchtitan", "bf16-true"), ("zero", "", "zero"),
        ("bf16", "", ""), ("fp16", "torchtitan", ""), ("BFloat16", "", ""), ("int8", "", ""),
    ],
)  # fmt: skip
def test_a_precision_is_taken_in_the_words_of_the_field(
    precision: str, framework: str, policy: str
) -> None:
    """One name of two things is asked back, with the names of both."""
    training = TRAINING | {"precision": precision, "framework": framework}
    if policy:
        assert make_job(training=training).precision == policy
        return
    with pytest.raises(ImpossibleProblemError) as refusal:
        make_job(training=training)
    assert ("bf16-mixed" in refusal.value.hint) == (precision != "int8")


def written(tmp_path: Path, text: str) -> Path:
    """A job file."""
    path = tmp_path / "job.toml"
    path.write_text(text)
    return path


def test_every_field_is_read(tmp_path: Path) -> None:
    """A whole file becomes a job, times in UTC, memory in MiB."""
    job = load_job_file(written(tmp_path, WHOLE_FILE))
    assert job.deadline == datetime(2026, 12, 1, 7, tzinfo=UTC)
    assert (job.memory_mib_per_gpu, job.cpus_per_gpu) == (49_664, 8)
    assert (job.resubmit_on_oom, job.oom_retries) == (True, 2)
    assert job.supports == ("sharding", "recompute")
    assert job.environment == (("WANDB_MODE", "offline"),)
    adapter = job.training_job.adapter
    assert adapter is not None
    assert (adapter.rank, adapter.targets) == (16, ("q", "v"))


def test_a_job_survives_the_store() -> None:
    """What is kept of a job file is the job file."""
    job = make_job(deadline=datetime(2026, 12, 1, tzinfo=UTC))
    assert from_json(JobFile, to_json(job)) == job


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gpus": 8}, "names gpus"),
        ({"nodes": 2}, "names nodes"),
        ({"host": {"gpu_type": "h100"}}, r"names host\.gpu_type"),
        ({"training": job_table()["training"] | {"tensor": 2}}, r"names training\.tensor"),
        ({"environment": {"CUDA_VISIBLE_DEVICES": "0"}}, "sets CUDA_VISIBLE_DEVICES"),
        ({"environment": {"NVIDIA_VISIBLE_DEVICES": "all"}}, "sets NVIDIA_VISIBLE_DEVICES"),
        ({"environment": {"SLURM_CONF": "/x"}}, "sets SLURM_CONF"),
        ({"environment": {"A=B; rm": "x"}}, "variable name"),
        ({"environment": {"LINE": "a\nb"}}, r"environment\.LINE"),
        ({"name": "Evil Name"}, "name of the job file"),
        ({"name": "x\n#SBATCH --uid=0"}, "name of the job file"),
        ({"name": "-rf"}, "name of the job file"),
        ({"name": "a" * 41}, "name of the job file"),
        ({"workdir": "relative"}, "workdir"),
        ({"workdir": "/srv/../etc"}, "workdir"),
        ({"workdir": "/srv/a b"}, "workdir"),
        ({"log": "/srv/%x.log"}, "log"),
        ({"log": "/srv/x\n#SBATCH --uid=0"}, "log"),
        ({"image": "x y"}, "image"),
        ({"image": "--privileged"}, "image"),
        ({"command": []}, "lacks command"),
        ({"command": "train.py; rm -rf /"}, "list of texts"),
        ({"command": ["a\x00b"]}, "command"),
        ({"deadline": "tomorrow"}, "deadline"),
        ({"training": {"global_batch": -1, "sequence_length": 8}}, "global_batch"),
        ({"training": {"global_batch": 1.5, "sequence_length": 8}}, "global_batch"),
        ({"training": {"global_batch": True, "sequence_length": 8}}, "global_batch"),
        ({"training": {"global_batch": 8}}, r"lacks training\.sequence_length"),
        ({"training": TRAINING | {"quantization": "nf4"}}, "no use without method"),
        ({"training": TRAINING | {"adapter_rank": 8, "method": "full"}}, "no use without method"),
        ({"training": TRAINING | {"adapter_targets": ["q"]}}, "no use without method"),
        ({"on_out_of_memory": {"retries": 6}}, "retries"),
        ({"on_out_of_memory": {"retrys": 1}}, "unknown key"),
        ({"time_limit": 3}, "unknown key"),
        ({"data": {"claim": "../x"}}, "claim"),
        ({"launcher": "bash"}, "launcher"),
        ({"supports": ["magic"]}, "supports"),
    ],
)
def test_what_is_wrong_is_refused_and_named(changes: dict[str, Any], said: str) -> None:
    """Every field has one way to be right; a misspelt or forbidden one is named."""
    with pytest.raises(ChangeRefusedError, match=said):
        make_job(**changes)


@pytest.mark.parametrize("field", ["framework", "optimizer", "precision", "quantization"])
def test_a_word_that_no_table_holds_is_refused_with_the_known_ones(field: str) -> None:
    """As `trimtab estimate` does: a misspelt word would be estimated as if nothing was known."""
    with pytest.raises(ImpossibleProblemError, match="known are: "):
        make_job(training=TRAINING | {"method": "adapter", field: "magic"})


@pytest.mark.parametrize(
    "model", [{}, {"name": "llama3-8b", "config": "x.json"}, {"config": "no-such.json"}]
)
def test_a_model_is_named_once_and_exists(model: dict[str, str]) -> None:
    """Neither no model nor two, and a config that can be read."""
    with pytest.raises(ImpossibleProblemError):
        make_job(model=model)


@pytest.mark.parametrize("text", ["[", "\ufeff\x00", "name = 1e999999999x", "a.b.c = 1"])
def test_a_file_that_is_no_job_is_refused(tmp_path: Path, text: str) -> None:
    """Broken TOML and foreign TOML are errors that a person can act on."""
    with pytest.raises(TrimtabError):
        load_job_file(written(tmp_path, text))


_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30)
_VALUES = (
    _LEAVES
    | st.lists(_LEAVES, max_size=3)
    | st.dictionaries(st.text(max_size=12), _LEAVES, max_size=3)
)
_KEYS = st.sampled_from(
    ["name", "command", "image", "model", "training", "environment", "host", "data", "deadline"]
)


@given(key=_KEYS, value=_VALUES)
def test_no_value_breaks_the_reader(key: str, value: Any) -> None:
    """Whatever stands in a job file, the answer is a job or an error of ours."""
    with suppress(TrimtabError):
        assert read_job(job_table(**{key: value}), folder=Path("/nonexistent")).name


def kept_by_bash(name: str) -> bool:
    """Whether a batch script can set a variable for the program that it starts."""
    done = subprocess.run(
        ["/bin/bash", "-c", f"set -euo pipefail; export {name}=mine; exec /usr/bin/env"],
        env={},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode == 0 and f"{name}=mine" in done.stdout.splitlines()


def test_no_variable_of_bash_itself_is_taken() -> None:
    """What bash has in an empty environment is refused, or reaches the program as it was stated."""
    listed = subprocess.run(
        ["/bin/bash", "-c", "compgen -v"], env={}, capture_output=True, text=True, check=True
    )
    for name in {"_", *listed.stdout.split()}:
        try:
            make_job(environment={name: "mine"})
        except ChangeRefusedError:
            continue
        assert kept_by_bash(name), name
