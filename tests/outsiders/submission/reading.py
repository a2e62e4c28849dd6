"""What a rendered command line means to the launcher and the program, read without our code."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

# What each framework's own documentation says of an option that is left out.
SHARDS_ALWAYS = {"torchtitan", "torchtitan_2024", "litgpt", "fsdp_qlora"}
DERIVES_STEPS = {"torchtitan", "litgpt", "megatron", "llm_foundry"}
RECOMPUTES = {"torchtitan": "operators", "torchtitan_2024": "operators"}
_OPTION = re.compile(r"--([a-z_]+)=(.+)", re.DOTALL)


def run_of(words: Iterable[str], framework: str, stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the run that these words start; `stated` is what the program is told otherwise."""
    given = list(words)
    named = [found.groups() for word in given if (found := _OPTION.fullmatch(word))]
    told = dict(stated) | dict(named)
    sizes = dict(word.split("=", 1) for word in given if word.startswith(("--nnodes=", "--nproc-")))
    if sizes:
        world = int(sizes["--nnodes"]) * int(sizes["--nproc-per-node"])
    elif "gpus" in told:
        world = int(told["gpus"])
    else:
        world = int(told.get("gpus_per_node", 1)) * int(told.get("nodes", 1))
    tensor = int(told.get("tensor_parallel", 1))
    pipeline = int(told.get("pipeline_parallel", 1))
    data = world // (tensor * pipeline)
    micro_batch = int(told.get("micro_batch", 0))
    steps = int(told.get("gradient_accumulation", 1))
    if framework in DERIVES_STEPS and "gradient_accumulation" not in told:
        steps = int(told.get("global_batch", 0)) // (micro_batch * data)
    unasked = "fsdp" if framework in SHARDS_ALWAYS and data > 1 else "none"
    return {
        "global_batch": micro_batch * steps * data,
        "spread": (data, tensor, pipeline),
        "sharding": told.get("sharding", unasked),
        "recompute": told.get("recompute", RECOMPUTES.get(framework, "none")),
        "micro_batch": micro_batch,
    }
