"""Jobs as people launch them: every launcher's words give the job that they describe."""

import json
import random
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.memory_cases import FOLDER, estimated, read_cases
from dashboard.cli import main
from dashboard.submission.launchers.command_line import FRAMEWORKS
from dashboard.submission.launchers.fields import FIELDS, dialect
from dashboard.submission.launchers.launched_job import (
    LaunchedJob,
    LaunchOptions,
    launched_job,
    model_of_name,
)
from data.base.errors import ChangeRefusedError, TrimtabError
from planner.memory.step.framework_traits import framework_traits, known_frameworks, optimizer
from planner.memory.step.training_job import Method, Recompute, Sharding

HF = "--model_name_or_path meta-llama/Llama-3.1-8B --bf16 --per_device_train_batch_size 2"
SWIFT = "megatron sft --model Qwen/Qwen2.5-7B"
ALL = ("q", "k", "v", "o", "gate", "up", "down")


def read(line: str, **given_values: Any) -> LaunchedJob:
    """The job of one command line."""
    return launched_job(shlex.split(line), LaunchOptions(**given_values))


def test_torchrun_with_the_arguments_of_transformers() -> None:
    """Processes, micro-batch, accumulation, checkpointing, optimiser and FSDP are what was said."""
    found = read(
        f"torchrun --nproc-per-node 8 --nnodes=2 train.py {HF} --gradient_accumulation_steps 4 "
        "--gradient_checkpointing true --optim adamw_bnb_8bit --max_seq_length 4096 "
        "--fsdp 'full_shard auto_wrap' --attn_implementation eager"
    )
    job = found.job
    assert (job.parallelism.gpus, job.parallelism.sharding) == (16, Sharding.FSDP)
    assert (job.micro_batch, job.gradient_accumulation, job.sequence_length) == (2, 4, 4096)
    assert (job.optimizer, job.recompute) == ("adamw8bit", Recompute.FULL)
    assert job.flash_attention is False
    assert job.shape.layers == 32
    assert any("per_device_train_batch_size 2: micro_batch = 2" in line for line in found.read)


@pytest.mark.parametrize(
    ("words", "sharding", "offload"),
    [
        ("--use_deepspeed --zero_stage 3", Sharding.ZERO3, set()),
        ("--use_deepspeed --zero_stage=2 --offload_optimizer_device cpu", Sharding.ZERO2,
         {"optimizer"}),
        ("--use_fsdp --fsdp_sharding_strategy SHARD_GRAD_OP", Sharding.FSDP_GRADIENTS, set()),
        ("--use_fsdp --fsdp_version 2 --fsdp_reshard_after_forward false", Sharding.FSDP_GRADIENTS,
         set()),
        ("--use_fsdp --fsdp_offload_params true", Sharding.FSDP, {"optimizer", "parameters"}),
        ("--multi_gpu", Sharding.NONE, set()),
    ],
)  # fmt: skip
def test_accelerate_shares_out_as_its_options_say(
    words: str, sharding: Sharding, offload: set[str]
) -> None:
    """ZeRO stages, FSDP strategies and offload from the launcher's own options."""
    job = read(f"accelerate launch --num_processes 4 {words} sft.py {HF} --max_length 512").job
    assert (job.parallelism.data, job.parallelism.sharding) == (4, sharding)
    assert job.offload == offload


def test_hybrid_shards_stay_inside_a_node() -> None:
    """HYBRID_SHARD over two nodes of four shards over four ranks."""
    job = read(
        f"torchrun --nproc_per_node 4 --nnodes 2 train.py {HF} --fsdp hybrid_shard --block_size 512"
    ).job
    assert (job.parallelism.data, job.parallelism.shard_group) == (8, 4)


def test_a_deepspeed_file_holds_beside_the_script(tmp_path: Path) -> None:
    """Stage and offload come from the JSON, "auto" leaves the script's batch."""
    config = tmp_path / "ds.json"
    config.write_text(json.dumps({
        "train_micro_batch_size_per_gpu": "auto",
        "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}},
    }))  # fmt: skip
    job = read(f"deepspeed --num_gpus 4 train.py {HF} --deepspeed {config} --block_size 1024").job
    assert (job.parallelism.sharding, job.micro_batch) == (Sharding.ZERO3, 2)
    assert job.offload == {"parameters"}
    assert job.framework == "transformers_deepspeed"
    config.write_text(json.dumps({"train_micro_batch_size_per_gpu": 8}))
    with pytest.raises(ChangeRefusedError, match=r"per_device_train_batch_size 2 .*8 of ds.json"):
        read(f"deepspeed --num_gpus 4 train.py {HF} --deepspeed {config} --block_size 1024")


def test_megatron_flags_describe_model_and_layout() -> None:
    """Degrees, experts, batches and the model itself from Megatron's flags."""
    job = read(
        "torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
        "--ffn-hidden-size 14336 --num-attention-heads 32 --num-query-groups 8 --swiglu "
        "--vocab-size 32000 --untie-embeddings-and-output-weights --num-experts 8 "
        "--moe-router-topk 2 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 "
        "--expert-model-parallel-size 4 --sequence-parallel --use-distributed-optimizer "
        "--num-layers-per-virtual-pipeline-stage 4 --micro-batch-size 1 --global-batch-size 64 "
        "--seq-length 4096 --recompute-activations --bf16"
    ).job
    spread = job.parallelism
    assert (spread.data, spread.tensor, spread.pipeline, spread.expert) == (4, 2, 4, 4)
    assert (spread.virtual_stages, spread.sequence) == (2, True)
    assert (spread.sharding, job.gradient_accumulation) == (Sharding.ZERO1, 16)
    assert job.shape.experts is not None
    assert (job.shape.experts.experts, job.shape.experts.experts_per_token) == (8, 2)
    assert (job.recompute, job.length_varies) == (Recompute.ATTENTION, False)


def test_torchtitan_file_with_an_override(tmp_path: Path) -> None:
    """The TOML says the model and degrees; a flag behind the file overrides it."""
    config = tmp_path / "titan.toml"
    config.write_text(
        '[model]\nname = "llama3"\nflavor = "8B"\n'
        "[training]\nlocal_batch_size = 1\nseq_len = 8192\n"
        "[parallelism]\ndata_parallel_shard_degree = -1\ncontext_parallel_degree = 2\n"
        'tensor_parallel_degree = 2\n[activation_checkpoint]\nmode = "full"\n'
    )
    job = read(
        "torchrun --nproc_per_node 8 -m torchtitan.train "
        f"--job.config_file {config} --training.seq_len 16384"
    ).job
    spread = job.parallelism
    assert (spread.data, spread.tensor, spread.context) == (2, 2, 2)
    assert (spread.sharding, job.sequence_length) == (Sharding.FSDP, 16384)
    assert (job.framework, job.shape.name, job.recompute) == (
        "torchtitan", "llama3-8b", Recompute.FULL,
    )  # fmt: skip


def test_files_of_frameworks_are_told_apart(tmp_path: Path) -> None:
    """Axolotl, LLaMA-Factory, ms-swift, TRL and vLLM by the keys that only they have."""
    files = {
        "axolotl": "base_model: meta-llama/Llama-3.1-8B\nadapter: qlora\nload_in_4bit: true\n"
        "lora_r: 32\nlora_target_linear: true\nsequence_len: 4096\nsample_packing: true\n",
        "llamafactory": "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\nfinetuning_type: lora\n"
        "lora_target: all\nlora_rank: 32\ncutoff_len: 4096\nquantization_bit: 4\npacking: true\n",
        "swift": "model: Qwen/Qwen2.5-7B-Instruct\ntrain_type: lora\nlora_rank: 32\n"
        "quant_bits: 4\nmax_length: 4096\npacking: true\n",
        "trl": "model_name_or_path: Qwen/Qwen2.5-7B\nuse_peft: true\nload_in_4bit: true\n"
        "lora_r: 32\nlora_target_modules: all-linear\nmax_length: 4096\npacking: true\n",
    }
    for name, text in files.items():
        path = tmp_path / f"{name}.yaml"
        path.write_text(text)
        found = launched_job([str(path)], LaunchOptions())
        job = found.job
        assert (found.dialect, job.framework, job.method) == (name, name, Method.ADAPTER)
        assert job.adapter is not None
        assert (job.adapter.rank, job.adapter.targets) == (32, ALL)
        assert (job.quantization, job.sequence_length, job.length_varies) == ("nf4", 4096, False)
    path = tmp_path / "serve.yaml"
    path.write_text("model: Qwen/Qwen2.5-7B\nmax_model_len: 4096\ntensor_parallel_size: 2\n")
    served = launched_job([str(path)], LaunchOptions(batch=16)).job
    assert (served.method, served.micro_batch, served.prefill_tokens) == (
        Method.INFERENCE, 16, 8192,
    )  # fmt: skip
    assert served.parallelism.gpus == 2


def test_sampling_shares_the_gpus_with_an_engine_and_other_models() -> None:
    """GRPO has a reference where KL counts; PPO a critic and a reward model; LoRA neither copy."""
    start = f"accelerate launch --num_processes 8 --use_deepspeed --zero_stage 3 grpo.py {HF} "
    full = read(start + "--use_vllm --vllm_mode colocate --beta 0.04 --max_completion_length 1024")
    assert full.engine_share == 0.3
    assert (full.job.companions.frozen, full.job.companions.trained) == (1, 0)
    assert full.job.sequence_length == 512 + 1024
    assert read(start + "--beta 0.0 --max_completion_length 1024").job.companions.frozen == 0
    server = read(start + "--use_vllm --vllm_mode server --max_completion_length 1024")
    assert server.engine_share is None
    lora = read(start + "--beta 0.04 --use_peft --lora_r 8").job
    assert lora.companions.frozen == 0
    ppo = read(start.replace("grpo.py", "ppo.py") + "--reward_model_path some/model").job
    assert (ppo.companions.frozen, ppo.companions.trained) == (2, 1)
    verl = read(
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=gae trainer.n_gpus_per_node=8 "
        "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct data.max_prompt_length=1024 "
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 data.max_response_length=2048 "
        "actor_rollout_ref.rollout.gpu_memory_utilization=0.4"
    )
    assert (verl.engine_share, verl.job.sequence_length) == (0.4, 3072)
    assert (verl.job.framework, verl.job.companions.trained) == ("verl", 1)
    assert verl.job.parallelism.sharding is Sharding.FSDP


FLAGS = {
    "--model_name_or_path": "meta-llama/Llama-3.1-8B",
    "--per_device_train_batch_size": "4",
    "--gradient_accumulation_steps": "2",
    "--max_seq_length": "2048",
    "--optim": "adamw_torch",
    "--bf16": "true",
    "--gradient_checkpointing": "true",
    "--fsdp": "full_shard",
    "--lora_r": "16",
    "--use_peft": "true",
    "--lora_target_modules": "q_proj,v_proj",
    "--save_total_limit": "2",
}


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_order_and_spelling_of_flags_do_not_matter(source: random.Random) -> None:
    """Flags in any order, as --a=b or --a b, with - or _, give the same job."""
    wanted = read(
        "torchrun --nproc_per_node=4 t.py " + " ".join(f"{k} {v}" for k, v in FLAGS.items())
    )
    items = list(FLAGS.items())
    source.shuffle(items)
    words = [
        "torchrun",
        *source.choice((["--nproc-per-node", "4"], ["--nproc_per_node=4"])),
        "t.py",
    ]
    for name, value in items:
        spelt = name if source.random() < 0.5 else "--" + name[2:].replace("_", "-")
        if value == "true" and source.random() < 0.5:
            words.append(spelt)
        else:
            words += [f"{spelt}={value}"] if source.random() < 0.5 else [spelt, value]
    found = launched_job(words, LaunchOptions())
    assert found.job == wanted.job
    assert sorted(found.assumed) == sorted(wanted.assumed)


@pytest.mark.parametrize(
    ("line", "said", "fix"),
    [
        (f"torchrun t.py {HF} --fp16", "bf16 true .* contradicts fp16 true", "one of the two"),
        (f"torchrun t.py {HF} --load_in_4bit", "load_in_4bit true .* quantises", "adapter"),
        (f"torchrun t.py {HF} --per_device_train_batch_size 4", "batch_size 2 .*batch_size 4",
         "one value"),
        (f"torchrun t.py {HF} --gradient_accumulation_steps many", "steps .*'many'",
         "whole number"),
        (f"torchrun t.py {HF} --max_length 1e300", "max_length .*1e300", "from 1 to 1e\\+09"),
        (f"torchrun t.py {HF} --max_length {'9' * 400}", "max_length", "from 1 to 1e\\+09"),
        (f"torchrun t.py {HF} --packing=perhaps", "packing .*'perhaps'", "true or false"),
        (f"torchrun t.py {HF} --fsdp full_shard", "over how many GPUs", "--gpus N"),
        (f"torchrun --nnodes 1:4 t.py {HF}", "nnodes .*1:4", "one number"),
        ("torchrun t.py --bf16", "names the model", "--config"),
        ("torchrun t.py --model_name_or_path some/thing --bf16", "'some/thing' is neither",
         "--config CONFIG.json"),
        ("torchrun --nproc_per_node 8", "names no program to start", "as you would start it"),
        (f"NPROC_PER_NODE=8 {SWIFT} --tensor_model_parallel_size 3",
         "8 GPUs over tensor 3", "that 3 divides"),
        (f"NPROC_PER_NODE=8 {SWIFT} --micro_batch_size 3 --global_batch_size 16",
         "global_batch_size 16 .* contradicts", "that 24 divides"),
        (f"NPROC_PER_NODE=2 {SWIFT} --expert_model_parallel_size 8",
         "expert_model_parallel_size 8 .* more than", "at most 2"),
        ("vllm serve Qwen/Qwen2.5-7B", "how long sequences are", "--max-model-len"),
        (f"accelerate launch --use_fsdp --use_deepspeed --num_processes 2 t.py {HF}",
         "use_deepspeed true .* contradicts use_fsdp true", "one of the two"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_its_flag(line: str, said: str, fix: str) -> None:
    """The error names the flag with its value, and the hint what would be right."""
    with pytest.raises(TrimtabError, match=f"(?s){said}.*{fix}") as refused:
        read(line)
    assert str(refused.value)


def test_a_file_behind_a_switch_is_no_value_of_it(tmp_path: Path) -> None:
    """`--bf16 job.yaml` is a switch and a file; what the file says yields to the flags."""
    path = tmp_path / "job.yaml"
    path.write_text("max_length: 2k\nper_device_train_batch_size: 16\n")
    job = read(f"torchrun t.py --per_device_train_batch_size 2 --model llama3-8b --bf16 {path}").job
    assert (job.sequence_length, job.micro_batch) == (2000, 2)


def test_a_script_called_sft_is_of_whoever_knows_its_flags() -> None:
    """ms-swift's own sft.py has `train_type`, which TRL does not know."""
    start = "torchrun --nproc_per_node 2 cli/sft.py --model Qwen/Qwen2.5-7B --torch_dtype bfloat16"
    swift = read(f"{start} --train_type lora --lora_rank 8 --max_length 512")
    assert (swift.dialect, swift.job.method) == ("swift", Method.ADAPTER)
    assert read(f"{start} --max_length 512").dialect == "trl"


def test_the_number_of_gpus_of_launcher_and_person_must_agree() -> None:
    """--gpus stands in where no launcher says it, and may not contradict it."""
    line = f"t.py {HF} --fsdp full_shard --block_size 512"
    assert read(f"python {line}", gpus=4).job.parallelism.data == 4
    with pytest.raises(ChangeRefusedError, match="--gpus 4 contradicts the 8"):
        read(f"torchrun --nproc_per_node 8 {line}", gpus=4)


def test_what_was_not_read_is_named_where_it_may_matter() -> None:
    """A flag of memory that no table holds is named; harmless ones are not."""
    found = read(f"torchrun t.py {HF} --block_size 512 --quant_blocks 3 --save_steps 4 --seed 1")
    assert found.unread == ("the command line: quant_blocks",)


def test_every_flag_fills_a_field_and_every_default_is_one() -> None:
    """The tables of dialects.toml name only what the reader knows."""
    names = (*FRAMEWORKS, "transformers", "megatron_swift", "sglang", "torchrun", "accelerate",
             "deepspeed", "deepspeed_file", "fsdp_file", "rl")  # fmt: skip
    for name in names:
        assert set(dialect(name).flags.values()) <= {"", *FIELDS}
        assert set(dialect(name).defaults) <= set(FIELDS)
        assert dialect(name).framework in {"", *known_frameworks()}
        stated = dialect(name).defaults.get("optimizer")
        assert stated is None or optimizer(str(stated))


def test_public_names_give_known_models() -> None:
    """Organisation, variant and quantised copies of a model are the model."""
    for name, known in (
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama3-8b"),
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", "qwen2.5-72b"),
        ("unsloth/Qwen3-4B-bnb-4bit", "qwen3-4b"),
        ("mistralai/Mistral-7B-v0.3", "mistral-7b"),
    ):
        found = model_of_name(name)
        assert found is not None
        assert found.shape.name == known
    assert model_of_name("some/Other-8B") is None


def test_the_command_says_what_it_read_and_what_fits(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Rows on stdout with the layout as it is; on stderr what was read, assumed and not read."""
    code = main([
        "--store", f"duckdb:///{tmp_path}/none.duckdb", "estimate", "--gpu", "h100-sxm", "--gpu",
        "t4", "--format", "json", "--", "torchrun", "--nproc-per-node", "8", "train.py",
        *shlex.split(HF), "--fsdp", "full_shard", "--block_size", "1024",
        "--gradient_checkpointing",
    ])  # fmt: skip
    said = capsys.readouterr()
    rows = json.loads(said.out)["plans"]
    assert code == 0
    assert [row["gpus"] for row in rows] == [8, 8]
    assert [row["fits"] for row in rows] == [True, False]
    assert "block_size 1024: sequence_length = 1024" in "".join(json.loads(said.out)["notes"])


def test_an_engine_must_find_room_in_its_share(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A quarter of an H100 holds no 8B model; nine tenths leave the cache that vLLM reports."""
    rows = {}
    for share in ("0.15", "0.9"):
        main([
            "--store", f"duckdb:///{tmp_path}/none.duckdb", "estimate", "--gpu", "h100-sxm",
            "--format", "json", "--", "vllm", "serve", "meta-llama/Meta-Llama-3-8B",
            "--max-model-len", "8192", "--gpu-memory-utilization", share,
        ])  # fmt: skip
        rows[share] = json.loads(capsys.readouterr().out)["plans"][0]
    assert not rows["0.15"]["fits"]
    assert "the engine takes 11.9 GiB" in rows["0.15"]["why_not"]
    assert rows["0.9"]["fits"]
    assert rows["0.9"]["cache_gib"] == pytest.approx(53.29, rel=0.05)
    assert rows["0.9"]["cached_sequences"] > 40


def test_batch_and_length_are_asked_for_where_no_launcher_says_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A model alone says neither."""
    store = ["--store", f"duckdb:///{tmp_path}/none.duckdb"]
    assert main([*store, "estimate", "llama3-8b", "--batch", "8"]) == 1
    assert "--seq is missing" in capsys.readouterr().err


@pytest.mark.parametrize("case", read_cases(), ids=lambda case: str(case["name"]))
def test_cases_of_practitioners_are_estimated(case: dict[str, Any]) -> None:
    """Each of the files in benchmarks/memory_cases gives one row."""
    row = estimated(case)
    assert row["gpu"] == case["gpu"]
    assert row["p50_gib"] > 1
    assert FOLDER.is_dir()


def test_borrowed_traits_lower_the_tier() -> None:
    """A framework of which nothing was measured has another's traits and never tier A."""
    borrowed = [name for name in known_frameworks() if framework_traits(name).borrowed]
    assert {"trl", "axolotl", "verl", "nemo", "unsloth", "vllm", "sglang"} <= set(borrowed)
    near = framework_traits("trl_deepspeed")
    assert replace(near, name="", evidence="", borrowed=False) == replace(
        framework_traits("transformers_deepspeed"), name="", evidence=""
    )
