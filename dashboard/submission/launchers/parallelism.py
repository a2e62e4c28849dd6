"""How a launch spreads a job over GPUs, and the batch that each of them gets."""

from dataclasses import dataclass
from typing import Any

from dashboard.submission.launchers.fields import translated
from dashboard.submission.launchers.told import Told
from data.base.errors import ChangeRefusedError
from planner.memory.models.model_shape import ModelShape
from planner.memory.step.training_job import Parallelism, Sharding

_ZERO = (Sharding.NONE, Sharding.ZERO1, Sharding.ZERO2, Sharding.ZERO3)
_DEGREES = ("tensor", "pipeline", "context")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The parallel degrees with the micro-batch and how many of them make a step."""

    parallelism: Parallelism
    micro_batch: int | None
    accumulation: int | None


def spread_of(told: Told, shape: ModelShape, *, gpus: int | None) -> Layout:
    """Return the layout of a launch; `gpus` is what the person says where the launcher does not.

    Errors: ChangeRefusedError for degrees or a batch that do not divide, and for a job that is
    shared out over a number of GPUs that nobody states.
    """
    degrees: dict[str, Any] = {name: told.value(name) or 1 for name in _DEGREES}
    inner = degrees["tensor"] * degrees["pipeline"] * degrees["context"]
    sharding, hybrid = _sharding(told)
    total = _gpus(told, gpus)
    if total is None:
        total = _from_replicas(told, inner, sharded=sharding is not Sharding.NONE)
    if total % inner:
        raise ChangeRefusedError(
            f"{total} GPUs over {_degrees_text(degrees)}",
            f"Give a number of GPUs that {inner} divides, or other degrees.",
        )
    data = total // inner
    group = _shard_group(told, data, hybrid=hybrid)
    if told.spoken.name in {"vllm", "sglang"}:
        sharding, group = Sharding.NONE, None
    expert = data if told.stated("spread_experts") else told.value("expert") or 1
    if expert > total:
        raise ChangeRefusedError(
            f"{told.named('expert')} is more than the {total} GPUs",
            f"Give at most {total}, or more GPUs.",
        )
    batch, accumulation = _batch(told, data)
    return Layout(
        parallelism=Parallelism(
            data=data,
            **degrees,
            expert=expert,
            virtual_stages=_virtual_stages(told, shape, degrees["pipeline"]),
            sequence=bool(told.value("sequence")) and degrees["tensor"] > 1,
            sharding=sharding if data * degrees["context"] > 1 or sharding in _ZERO else _ZERO[0],
            shard_group=group,
        ),
        micro_batch=batch,
        accumulation=accumulation,
    )


def _degrees_text(degrees: dict[str, int]) -> str:
    return " x ".join(f"{name} {value}" for name, value in degrees.items() if value > 1)


def _sharding(told: Told) -> tuple[Sharding, bool]:
    """Return what is shared out, and whether only inside a node (HYBRID_SHARD)."""
    zero = told.value("zero_stage")
    words = str(told.stated("fsdp_words") or "").lower().replace(",", " ").split()
    words = ["true" if word.startswith("fsdp2") else word for word in words]
    words = [word for word in words if word not in {"auto_wrap", "offload", "false", "none"}]
    by_fsdp = bool(words) or told.stated("fsdp") or told.stated("distributed") == "fsdp"
    by_fsdp = by_fsdp or told.stated("fsdp_version") is not None or told.value("sharding")
    if zero and by_fsdp:
        other = next(
            name
            for name in ("fsdp_words", "fsdp", "distributed", "fsdp_version", "sharding")
            if told.stated(name)
        )
        raise ChangeRefusedError(
            f"{told.named('zero_stage')} contradicts {told.named(other)}",
            "Take either DeepSpeed or FSDP out.",
        )
    if zero is not None:
        return _ZERO[zero], False
    if told.stated("deepspeed") or told.stated("distributed") == "deepspeed":
        told.assumed.append("ZeRO stage = 2, what accelerate does unasked")
        return Sharding.ZERO2, False
    if not by_fsdp:
        shards = told.value("shards")
        return (Sharding.FSDP if shards not in (None, 1) else Sharding.NONE), False
    strategy = str(told.value("sharding") or (words[0] if words else "true"))
    return _strategy(strategy)


def _strategy(word: str) -> tuple[Sharding, bool]:
    found = translated("sharding", word.lower())
    if found == "hybrid" or found.startswith("hybrid"):
        return Sharding.FSDP, True
    known = {entry.value: entry for entry in Sharding}
    if found not in known:
        raise ChangeRefusedError(
            f"the sharding {word[:40]!r} is not known",
            "Known are FULL_SHARD, SHARD_GRAD_OP, HYBRID_SHARD and NO_SHARD.",
        )
    return known[found], False


def _gpus(told: Told, given: int | None) -> int | None:
    """Return the number of GPUs that the launcher or the person states."""
    each, nodes = told.stated("processes_per_node"), told.stated("nodes") or 1
    counted = each * nodes if each else None
    stated = told.stated("gpus")
    if stated and counted and stated != counted:
        raise ChangeRefusedError(
            f"{told.named('gpus')} contradicts {told.named('processes_per_node')} "
            f"on {nodes} nodes, which makes {counted}",
            "Give one number of GPUs.",
        )
    found: int | None = stated or counted
    if given and found and given != found:
        raise ChangeRefusedError(
            f"--gpus {given} contradicts the {found} GPUs of the launcher", "Take --gpus out."
        )
    return given or found


def _from_replicas(told: Told, inner: int, *, sharded: bool) -> int:
    """Return the GPUs where only degrees are stated. Errors: ChangeRefusedError."""
    shards, replicas = told.stated("shards") or 0, told.stated("replicas") or 1
    if shards > 0:
        return int(inner * shards * replicas)
    if sharded:
        raise ChangeRefusedError(
            "nothing that was read says over how many GPUs the states are shared out",
            "Add --gpus N before the --, or the launcher's own number of processes.",
        )
    told.assumed.append(
        f"GPUs = {inner * replicas}: nothing that was read states a number; "
        "add --gpus N before the --"
    )
    return int(inner * replicas)


def _shard_group(told: Told, data: int, *, hybrid: bool) -> int | None:
    """Return how many data-parallel ranks share one copy, None for all of them."""
    shards, replicas = told.value("shards"), told.stated("replicas")
    if hybrid:
        shards = told.stated("processes_per_node") or min(8, data)
    if shards in (None, -1) and replicas:
        shards = max(1, data // replicas)
    if shards in (None, -1):
        return None
    if data % shards:
        raise ChangeRefusedError(
            f"{shards} shards for {data} data-parallel ranks",
            f"Give a number of shards that divides {data}, or -1 for all.",
        )
    return int(shards) if shards < data else None


def _virtual_stages(told: Told, shape: ModelShape, pipeline: int) -> int:
    layers, stages = told.stated("virtual_layers"), told.stated("virtual_stages")
    if layers:
        stages = shape.layers // (pipeline * layers)
    return max(1, int(stages or 1)) if pipeline > 1 else 1


def _batch(told: Told, data: int) -> tuple[int | None, int | None]:
    """Return micro-batch and accumulation; with the whole batch stated either may be computed."""
    whole, micro = told.stated("global_batch"), told.value("micro_batch")
    accumulation: int | None = told.stated("accumulation")
    if whole is None:
        return micro, accumulation or told.value("accumulation")
    if accumulation and told.stated("micro_batch") is None:
        micro = max(1, whole // (accumulation * data))
    steps, left = divmod(whole, (micro or 1) * data)
    if left or not steps or (accumulation and accumulation != steps):
        raise ChangeRefusedError(
            f"{told.named('global_batch')} contradicts a micro-batch of {micro or 1} on {data} "
            f"data-parallel ranks" + (f" accumulated {accumulation} times" if accumulation else ""),
            f"Give a whole batch of {(micro or 1) * data * (accumulation or 1)}, or another one "
            f"that {(micro or 1) * data} divides.",
        )
    return micro, steps
