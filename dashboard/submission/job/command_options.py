"""Options of a program for a plan: the test that it would run what was planned.

A plan is a micro-batch, a number of accumulated micro-batches, parallel degrees, sharding and
recomputation. A program that is not told one of them runs its own: tensor parallelism of 2 that a
Hugging Face Trainer never hears of runs as plain data parallelism at twice the global batch. So a
plan is offered only when the command names what it asks for, or when the framework is known to do
it unasked (`_CONFIG_FIELDS`).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from data.base.errors import ChangeRefusedError, scrub
from planner.memory.step.training_job import Recompute, Sharding, TrainingJob

COUNT_OPTIONS = (
    "gpus", "nodes", "gpus_per_node", "data_parallel", "tensor_parallel", "pipeline_parallel",
    "sharding", "micro_batch", "gradient_accumulation", "recompute", "global_batch",
    "sequence_length",
)  # fmt: skip
DATA_PATH = "data_path"
IN_BRACES = re.compile(r"(?<!\$)\{([a-z_]+)\}")
"""A name of ours in a command; ${name} is a variable of somebody else's."""
_SIMILARITY_CUTOFF = 0.8

_LAUNCHERS = (
    "torchrun", "accelerate", "deepspeed", "srun", "mpirun", "mpiexec", "horovodrun", "colossalai",
    "torch.distributed.run", "torch.distributed.launch",
)  # fmt: skip
"""Programs that start the processes of a job themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkDefaults:
    """Defaults of a framework.

    `derives` says that it computes the accumulated micro-batches from the global batch, so that
    the command must name either; elsewhere accumulation is 1 unless the command names it.
    """

    sharding: Sharding = Sharding.NONE
    recompute: Recompute = Recompute.NONE
    derives: bool = False


_CONFIG_FIELDS = {
    # training.global_batch_size; data_parallel_shard_degree = -1 is FSDP over what is left of the
    # GPUs; activation_checkpoint.mode is "selective".
    "torchtitan": FrameworkDefaults(
        sharding=Sharding.FSDP, recompute=Recompute.OPERATORS, derives=True
    ),
    # Its releases of 2024 have training.batch_size alone.
    "torchtitan_2024": FrameworkDefaults(sharding=Sharding.FSDP, recompute=Recompute.OPERATORS),
    # train.global_batch_size and train.micro_batch_size; FSDPStrategy on more than one device.
    "litgpt": FrameworkDefaults(sharding=Sharding.FSDP, derives=True),
    # --global-batch-size and --micro-batch-size; the distributed optimizer is an option.
    "megatron": FrameworkDefaults(derives=True),
    # global_train_batch_size and device_train_microbatch_size; FSDP is an option of its YAML.
    "llm_foundry": FrameworkDefaults(derives=True),
    # train.py of answer.ai: FSDP throughout, --gradient_accumulation_steps.
    "fsdp_qlora": FrameworkDefaults(sharding=Sharding.FSDP),
}
_PLAIN = FrameworkDefaults()


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One thing that a program must be told, and the names by which it can be; any way will do."""

    what: str
    ways: tuple[frozenset[str], ...]

    def is_met(self, values: Iterable[str]) -> bool:
        """Return whether a program that is told these values can run it."""
        heard = frozenset(values)
        return any(way <= heard for way in self.ways)

    def __str__(self) -> str:
        """Return the ways as a person would write them into a command."""
        return " or ".join(" and ".join(f"{{{name}}}" for name in sorted(way)) for way in self.ways)


def needs(layout: TrainingJob, *, launcher: str = "torchrun") -> tuple[Need, ...]:
    """Return the needs of a layout from a program: the one test of what can be submitted."""
    unasked, spread = _CONFIG_FIELDS.get(layout.framework, _PLAIN), layout.parallelism
    accumulated = layout.gradient_accumulation or 1
    recompute = layout.recompute or Recompute.NONE
    rows = [_need("micro_batch", layout.micro_batch or 1)]
    if unasked.derives:
        rows.append(_need("gradient_accumulation", accumulated, "global_batch"))
    elif accumulated > 1:
        rows.append(_need("gradient_accumulation", accumulated))
    if spread.tensor > 1:
        rows.append(_need("tensor_parallel", spread.tensor))
    if spread.pipeline > 1:
        rows.append(_need("pipeline_parallel", spread.pipeline))
    if spread.data > 1 and spread.sharding is not unasked.sharding:
        rows.append(_need("sharding", spread.sharding))
    if recompute is not unasked.recompute:
        rows.append(_need("recompute", recompute))
    if launcher == "none" and spread.gpus > 1:
        both = frozenset({"nodes", "gpus_per_node"})
        rows.append(Need(what=f"gpus={spread.gpus}", ways=(frozenset({"gpus"}), both)))
    return tuple(rows)


def _need(name: str, value: object, *others: str) -> Need:
    ways = tuple(frozenset({way}) for way in (name, *others))
    return Need(what=f"{name}={value}", ways=ways)


def named_in(words: Iterable[str]) -> frozenset[str]:
    """Return the values of a plan that the words of a command name in braces."""
    return frozenset(
        name for word in words for name in IN_BRACES.findall(word) if name in COUNT_OPTIONS
    )


def check_command(words: Sequence[str], *, launcher: str, has_data_path: bool) -> None:
    """Refuse a command that would not run as planned, whatever the plan.

    Errors: ChangeRefusedError for a misspelt name in braces, for {data_path} without a path, for
    options in the place of the program, and for a launcher that torchrun would start per GPU.
    """
    for name in (name for word in words for name in IN_BRACES.findall(word)):
        if name == DATA_PATH and not has_data_path:
            raise ChangeRefusedError(
                "the command names {data_path}, and the job file states no data.path",
                "Add path to [data] of the job file.",
            )
        alike = get_close_matches(name, (*COUNT_OPTIONS, DATA_PATH), n=1, cutoff=_SIMILARITY_CUTOFF)
        if alike and alike[0] != name:
            raise ChangeRefusedError(
                f"the command names {{{scrub(name, limit=40)}}}, which is not known",
                f"Did you mean {{{alike[0]}}}? Known: {', '.join(COUNT_OPTIONS)}.",
            )
    if words[0].startswith("-"):
        raise ChangeRefusedError(
            f"the command begins with {scrub(words[0], limit=40)!r}, which its launcher would take "
            "for an option of its own",
            "Give the training program as the first word of the command.",
        )
    first = words[0].rpartition("/")[2]
    if first.startswith("python") and "-m" in words[:-1]:
        first = words[words.index("-m") + 1]
    starts = first if first in _LAUNCHERS else ""
    if launcher == "torchrun" and starts:
        raise ChangeRefusedError(
            f"the command starts {starts}, and Trimtab would start it once per GPU by torchrun",
            'Set launcher = "none", or give the training program itself as the command.',
        )
