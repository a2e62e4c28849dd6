"""Flags that are told by words: no spelling and no unknown word is taken for a default."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from dashboard.cli import main
from dashboard.submission.launchers.command_line import read_command
from dashboard.submission.launchers.fields import FIELDS, dialect
from dashboard.submission.launchers.launched_job import LaunchedJob, LaunchOptions, launched_job
from data.base.errors import TrimtabError
from planner.memory.estimate.predictor import predict_peak
from planner.memory.step.training_job import Method

MODEL = "llama3-8b"
STARTS = {
    "transformers": f"torchrun t.py --model_name_or_path {MODEL}",
    "trl": f"trl sft --model_name_or_path {MODEL}",
    "axolotl": f"axolotl train --base_model {MODEL}",
    "llamafactory": f"llamafactory-cli train --model_name_or_path {MODEL} --cutoff_len 512",
    "swift": f"swift sft --model {MODEL}",
    "megatron": f"torchrun pretrain_gpt.py --model {MODEL}",
    "megatron_swift": f"megatron sft --model {MODEL}",
    "torchtitan": "torchtitan --model.name llama3 --model.flavor 8B",
    "verl": f"python -m verl.trainer.main_ppo actor_rollout_ref.model.path={MODEL}",
    "vllm": f"vllm serve --model {MODEL} --max_model_len 512",
    "sglang": f"sglang.launch_server --model_path {MODEL} --context_length 512",
}
"""The beginning of a command in each dialect."""
FILES = {"config_file", "accelerate_file", "fsdp_file", "deepspeed_file", "model_config", "model"}
SAMPLES = {"flag": ("true", "false", "no"), "whole": ("2",), "number": ("0.25",)}
FREE = {"model", "titan_name", "titan_flavor", "reward_model", "saved", "optimizer_arguments",
        "targets"}  # fmt: skip
"""Fields that take any word: names of models and layers, and what only their own reader parses."""
KEYS = [
    (name, key, target)
    for name in STARTS
    for key, target in dialect(name).flags.items()
    if target and target not in FILES
]


def answer(words: list[str]) -> object:
    """What was stated and not read, or the refusal."""
    try:
        launch = read_command(words, Path())
    except TrimtabError as error:
        return str(error)
    stated = {name: (entry.value, entry.raw) for name, entry in launch.facts.items.items()}
    return launch.syntax and launch.syntax.name, stated, launch.facts.unread


def read(line: str, **options: Any) -> LaunchedJob:
    """The job of a command."""
    return launched_job(shlex.split(line), LaunchOptions(**options))


@pytest.mark.parametrize("name", STARTS)
def test_a_blank_means_what_an_equals_sign_means(name: str) -> None:
    """`--x y` is `--x=y` for every key of the dialect and every word that its table has."""
    spoken = dialect(name)
    for key, target in ((key, target) for owner, key, target in KEYS if owner == name):
        own = [word for word in spoken.words.get(key, {}) if word not in ("to", "*")]
        made_up = [] if key in spoken.switches else ["perhaps"]
        for value in (*own, *SAMPLES.get(FIELDS[target].name, ("some_word",)), *made_up):
            start = shlex.split(STARTS[name])
            joined = answer([*start, f"--{key}={value}"])
            assert answer([*start, f"--{key}", value]) == joined, (key, value)


def test_words_that_nobody_knows_are_told_and_no_default() -> None:
    """A made-up word of any key is refused by its name or stands among what was not read."""
    for name, key, target in KEYS:
        if FIELDS[target].name in SAMPLES and key not in dialect(name).words:
            continue
        if target in FREE or "*" in dialect(name).words.get(key, {}):
            continue
        command = [*shlex.split(STARTS[name]), f"--{key}=fnord"]
        try:
            job = launched_job(command, LaunchOptions(gpus=8))
            told = " ".join(job.unread)
            if target in {"optimizer", "framework"}:  # the predictor's own tables refuse these
                told += str(job.job)
        except TrimtabError as error:
            told = str(error)
        assert "fnord" in told, (name, key, told)


@pytest.mark.parametrize(
    ("line", "method"),
    [
        ("llamafactory-cli train --model_name_or_path x --stage sft --finetuning_type {}", "full"),
        ("swift sft --model x --train_type {}", "full"),
        ("swift rlhf --rlhf_type dpo --model x --tuner_type {}", "full"),
        ("megatron sft --model x --train_type {} --micro_batch_size 1", "lora"),
        ("axolotl train --base_model x --adapter {}", "qlora"),
        ("axolotl train --base_model x --adapter {}", "none"),
    ],
)
def test_training_is_full_or_of_an_adapter_as_it_says(line: str, method: str) -> None:
    """Whether all weights are trained follows the word, not what the framework does unasked."""
    model = line.replace("model x", f"model {MODEL}").replace("path x", f"path {MODEL}")
    model = model.replace("model x", MODEL)
    wanted = Method.FULL if method in {"full", "none"} else Method.ADAPTER
    start = "NPROC_PER_NODE=8 " + model.format(method)
    found = read(start.replace("--base_model x", f"--base_model {MODEL}"))
    assert found.job.method is wanted
    assert not any("adapter = " in entry for entry in found.assumed)


def test_a_method_that_is_not_known_is_refused_with_those_that_are() -> None:
    """Neither LoRA nor full training is guessed for another method."""
    with pytest.raises(TrimtabError, match=r"(?s)finetuning_type .*'freeze'.*lora, oft, full"):
        read(f"llamafactory-cli train --model_name_or_path {MODEL} --finetuning_type freeze")


@pytest.mark.parametrize(
    ("line", "kind", "unknown"),
    [
        ("llamafactory-cli train --model_name_or_path {} --finetuning_type oft", "oft", "oft"),
        ("llamafactory-cli train --model_name_or_path {} --use_dora true", "dora", ""),
        ("llamafactory-cli train --model_name_or_path {} --use_dora false", "lora", ""),
        ("llamafactory-cli train --model_name_or_path {} --use_dora hm", "lora", "hm"),
        ("axolotl train --base_model {} --adapter qlora --peft_use_dora true", "dora", ""),
        ("axolotl train --base_model {} --adapter qlora", "qlora", ""),
        ("trl sft --model_name_or_path {} --use_peft --use_dora true", "dora", ""),
        ("swift sft --model {} --use_dora true", "dora", ""),
    ],
)
def test_no_adapter_is_taken_for_low_rank_that_says_otherwise(
    line: str, kind: str, unknown: str
) -> None:
    """DoRA keeps more than LoRA does; of what was never measured the kind is unknown, and told."""
    job = read(line.format(MODEL)).job
    missing = [entry for entry in predict_peak(job).missing if "kind" in entry]
    assert job.adapter is not None
    assert (job.adapter.kind, len(missing)) == (kind, bool(unknown))
    assert all(f"({unknown})" in entry for entry in missing)


@pytest.mark.parametrize("word", ["True", "yes", "1", "on"])
def test_every_word_for_true_switches_a_flag_of_the_table_on(word: str) -> None:
    """`--pure_bf16 1` states the same weights as `--pure_bf16 true`."""
    line = f"llamafactory-cli train --model_name_or_path {MODEL} --finetuning_type full --pure_bf16"
    assert read(f"{line} {word}").job == read(f"{line} true").job


@pytest.mark.parametrize(
    ("options", "gpus"),
    [
        ("--gres=gpu:a40:4,tmpfs:1", 4),
        ("--gres=tmpfs:8,gpu:2", 2),
        ("--gres=gpu:a40", 1),
        ("--gres gpu", 1),
        ("--gpus=a40:2,l4:1", 3),
    ],
)
def test_srun_counts_gpus_and_nothing_beside_them(options: str, gpus: int) -> None:
    """The number is that of the entries for GPUs, 1 where an entry has none."""
    found = read(f"srun {options} python t.py --model_name_or_path {MODEL} --bf16")
    assert found.job.parallelism.gpus == gpus
    assert not found.unread


@pytest.mark.parametrize(
    ("start", "told"),
    [
        ("srun --nodes=2-4", "nodes 2-4"),
        ("srun --gpus-per-task=2", "gpus_per_task 2"),
        ("CUDA_VISIBLE_DEVICES=$BOARDS", "CUDA_VISIBLE_DEVICES $BOARDS"),
    ],
)
def test_a_number_of_gpus_that_is_not_understood_is_told(start: str, told: str) -> None:
    """A range, another unit or a variable of the shell is no 1."""
    found = launched_job(
        [*start.split(), "python", "t.py", "--model_name_or_path", MODEL, "--bf16"], LaunchOptions()
    )
    assert any(told in entry for entry in found.unread)
    assert any(told.split()[-1] in entry for entry in predict_peak(found.job).missing)


@pytest.mark.parametrize(
    ("hosts", "gpus"),
    [("localhost:0,1,2,3", 4), ("worker-0:0,1@worker-1:2,3", 4), ("10.0.0.1:5", 1)],
)
def test_deepspeed_counts_the_boards_that_it_includes(hosts: str, gpus: int) -> None:
    """`--include` names hosts with their boards."""
    found = read(f"deepspeed --include {hosts} t.py --model_name_or_path {MODEL} --bf16")
    assert found.job.parallelism.gpus == gpus
    assert not found.unread


def test_a_host_without_its_boards_leaves_the_number_of_gpus_unknown() -> None:
    """All boards of a host are as many as it has; the estimate names what it does not know."""
    found = read(f"deepspeed --include worker-0 t.py --model_name_or_path {MODEL} --bf16")
    assert "gpus (worker-0)" in predict_peak(found.job).missing


def test_what_follows_a_pipe_belongs_to_another_command() -> None:
    """A pasted line with its log file says what it says without it."""
    line = f"torchrun t.py --model_name_or_path {MODEL} --bf16"
    assert read(f"{line} 2>&1 | tee --fp16 log.txt").job == read(line).job


def test_full_training_of_a_large_model_does_not_fit_in_either_spelling(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The command answers the same for both; a word that it does not know widens the bound."""
    said = []
    for spelling in ("--train_type full", "--train_type=full", "--train_type full --quant_bits 3"):
        line = f"NPROC_PER_NODE=2 swift sft --model llama3-70b {spelling} --max_length 2048"
        store = ["--store", f"duckdb:///{tmp_path}/none.duckdb", "estimate", "--gpu", "t4"]
        main([*store, "--format", "csv", "--", *line.split()])
        said.append(capsys.readouterr())
    assert said[0].out == said[1].out
    assert (",B,False" in said[1].out, ",C,False" in said[2].out) == (True, True)
    assert "warning: not read, though it may matter to memory" in said[2].err
