"""Layout of a launch over GPUs, and the batch of each of them."""

from dataclasses import dataclass
from typing import Any

from dashboard.submission.launchers.fields import SERVING, FieldLookup, translated
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


def spread_of(flags: FieldLookup, shape: ModelShape, *, gpus: int | None) -> Layout:
    """Return the layout of a launch; `gpus` is what the person says where the launcher does not.

    Errors: ChangeRefusedError for degrees or a batch that do not divide, and for a job that is
    shared out over a number of GPUs that nobody states.
    """
    degrees: dict[str, Any] = {name: flags.value(name) or 1 for name in _DEGREES}
    inner = degrees["tensor"] * degrees["pipeline"] * degrees["context"]
    sharding, hybrid = _sharding(flags)
    total = _gpus(flags, gpus)
    if total is None:
        total = _from_replicas(flags, inner, sharded=sharding is not Sharding.NONE)
    if total % inner:
        spread = " x ".join(f"{name} {value}" for name, value in degrees.items() if value > 1)
        raise ChangeRefusedError(
            f"{total} GPUs over {spread}",
            f"Give a number of GPUs that {inner} divides, or other degrees.",
        )
    data = total // inner
    group = _shard_group(flags, data, hybrid=hybrid)
    if flags.syntax.name in SERVING:
        sharding, group = Sharding.NONE, None
    expert = data if flags.stated("spread_experts") else flags.value("expert") or 1
    if expert > total:
        raise ChangeRefusedError(
            f"{flags.named('expert')} is more than the {total} GPUs",
            f"Give at most {total}, or more GPUs.",
        )
    batch, accumulation = _batch(flags, data)
    return Layout(
        parallelism=Parallelism(
            data=data,
            **degrees,
            expert=expert,
            virtual_stages=_virtual_stages(flags, shape, degrees["pipeline"]),
            sequence=bool(flags.value("sequence")) and degrees["tensor"] > 1,
            sharding=sharding if data * degrees["context"] > 1 or sharding in _ZERO else _ZERO[0],
            shard_group=group,
        ),
        micro_batch=batch,
        accumulation=accumulation,
    )


def _sharding(flags: FieldLookup) -> tuple[Sharding, bool]:
    """Return the sharding, and whether it is only inside a node (HYBRID_SHARD)."""
    words = str(flags.stated("fsdp_words") or "").lower().replace(",", " ").split()
    words = ["true" if word.startswith("fsdp2") else word for word in words]
    words = [word for word in words if word not in {"auto_wrap", "offload", "false", "none"}]
    by_fsdp = bool(words) or flags.stated("fsdp") or flags.stated("distributed") == "fsdp"
    by_fsdp = by_fsdp or flags.stated("fsdp_version") is not None or flags.value("sharding")
    zero = flags.stated("zero_stage") if by_fsdp else flags.value("zero_stage")
    if zero and by_fsdp:
        other = next(
            name
            for name in ("fsdp_words", "fsdp", "distributed", "fsdp_version", "sharding")
            if flags.stated(name)
        )
        raise ChangeRefusedError(
            f"{flags.named('zero_stage')} contradicts {flags.named(other)}",
            "Take either DeepSpeed or FSDP out.",
        )
    if zero is not None:
        return _ZERO[zero], False
    if flags.stated("deepspeed") or flags.stated("distributed") == "deepspeed":
        flags.assumed.append("ZeRO stage = 2, what accelerate does unasked")
        return Sharding.ZERO2, False
    if not by_fsdp:
        shards = flags.value("shards")
        return (Sharding.FSDP if shards not in (None, 1) else Sharding.NONE), False
    strategy = str(flags.value("sharding") or (words[0] if words else "true"))
    return _strategy(strategy)


def _strategy(word: str) -> tuple[Sharding, bool]:
    term = translated("sharding", word.lower())
    if term == "hybrid" or term.startswith("hybrid"):
        return Sharding.FSDP, True
    by_name = {entry.value: entry for entry in Sharding}
    if term not in by_name:
        raise ChangeRefusedError(
            f"the sharding {word[:40]!r} is not known",
            "Known are FULL_SHARD, SHARD_GRAD_OP, HYBRID_SHARD and NO_SHARD.",
        )
    return by_name[term], False


def _gpus(flags: FieldLookup, option: int | None) -> int | None:
    """Return the number of GPUs that the launcher or the person states."""
    each, nodes = flags.stated("processes_per_node"), flags.stated("nodes") or 1
    counted = each * nodes if each else None
    stated = flags.stated("gpus")
    if stated and counted and stated != counted:
        raise ChangeRefusedError(
            f"{flags.named('gpus')} contradicts {flags.named('processes_per_node')} "
            f"on {nodes} nodes, which makes {counted}",
            "Give one number of GPUs.",
        )
    count: int | None = stated or counted
    if option and count and option != count:
        raise ChangeRefusedError(
            f"--gpus {option} contradicts the {count} GPUs of the launcher", "Take --gpus out."
        )
    return option or count


def _from_replicas(flags: FieldLookup, inner: int, *, sharded: bool) -> int:
    """Return the GPUs where only degrees are stated. Errors: ChangeRefusedError."""
    shards, replicas = flags.stated("shards") or 0, flags.stated("replicas") or 1
    if shards > 0:
        return int(inner * shards * replicas)
    if sharded:
        raise ChangeRefusedError(
            "nothing that was read says over how many GPUs the states are shared out",
            "Add --gpus N before the --, or the launcher's own number of processes.",
        )
    flags.assumed.append(
        f"GPUs = {inner * replicas}: nothing that was read states a number; "
        "add --gpus N before the --"
    )
    return int(inner * replicas)


def _shard_group(flags: FieldLookup, data: int, *, hybrid: bool) -> int | None:
    """Return the number of data-parallel ranks that share one copy, None for all of them."""
    shards, replicas = flags.value("shards"), flags.stated("replicas")
    if hybrid:
        shards = flags.stated("processes_per_node") or min(8, data)
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


def _virtual_stages(flags: FieldLookup, shape: ModelShape, pipeline: int) -> int:
    layers, stages = flags.stated("virtual_layers"), flags.stated("virtual_stages")
    if layers:
        stages = shape.layers // (pipeline * layers)
    return max(1, int(stages or 1)) if pipeline > 1 else 1


def _batch(flags: FieldLookup, data: int) -> tuple[int | None, int | None]:
    """Return micro-batch and accumulation; with the whole batch stated either may be computed."""
    total, micro = flags.stated("global_batch"), flags.value("micro_batch")
    accumulation: int | None = flags.stated("accumulation")
    if total is None:
        return micro, accumulation or flags.value("accumulation")
    if accumulation and flags.stated("micro_batch") is None:
        micro = max(1, total // (accumulation * data))
    steps, rest = divmod(total, (micro or 1) * data)
    if rest or not steps or (accumulation and accumulation != steps):
        raise ChangeRefusedError(
            f"{flags.named('global_batch')} contradicts a micro-batch of {micro or 1} on {data} "
            f"data-parallel ranks" + (f" accumulated {accumulation} times" if accumulation else ""),
            f"Give a whole batch of {(micro or 1) * data * (accumulation or 1)}, or another one "
            f"that {(micro or 1) * data} divides.",
        )
    return micro, steps
