"""MARP as published: Frenzy, arXiv 2412.14479, section on memory-aware resource prediction.

M = 20 W / t + s b h l (10 + 24/t + 5 a s / (h t)) bytes per GPU, with W = V h + l (12 h² + 13 h)
parameters, t tensor-parallel GPUs, s tokens of a sequence, b sequences of a micro-batch. The
activation term is the "tensor parallel" row of Korthikanti et al. (arXiv 2205.05198, table 2).
Data parallelism changes throughput only, so it is absent. The division of the static part by t is
implied by tensor parallelism and was not verified in the paper's text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from data.base.errors import ImpossibleProblemError
from planner.memory.models.model_shape import ModelShape

STATIC_BYTES_PER_PARAMETER = 20
"""16-bit weight and gradient, fp32 gradient and master weight, two fp32 moments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarpPlan:
    """One way to run a job: GPUs, tensor and data parallelism, micro-batch, bytes per GPU."""

    gpus: int
    tensor: int
    data: int
    micro_batch: int
    needed_bytes: float
    gpu_types: tuple[str, ...]


def marp_parameters(shape: ModelShape) -> int:
    """Return the parameters as the paper counts them: a GPT with a square attention and 4 h MLP."""
    hidden = shape.hidden
    return shape.vocab * hidden + shape.layers * (12 * hidden * hidden + 13 * hidden)


def marp_peak_bytes(
    shape: ModelShape, *, sequence_length: int, micro_batch: int, tensor: int = 1
) -> float:
    """Return the peak bytes of one GPU by the published formula."""
    static = STATIC_BYTES_PER_PARAMETER * marp_parameters(shape) / tensor
    scores = 5 * shape.heads * sequence_length / (shape.hidden * tensor)
    per_element = 10 + 24 / tensor + scores
    return static + sequence_length * micro_batch * shape.hidden * shape.layers * per_element


def marp_plans(
    shape: ModelShape,
    *,
    sequence_length: int,
    global_batch: int,
    gpu_memory_bytes: Mapping[str, float],
    gpus_per_node: int,
    max_gpus: int,
) -> tuple[MarpPlan, ...]:
    """Return the published plan list: large micro-batch and little tensor parallelism first.

    Of the plans with the same GPUs, tensor parallelism and admissible GPU types, only that with
    the largest micro-batch stays. Errors: ImpossibleProblemError for a batch below 1.
    """
    if global_batch < 1:
        raise ImpossibleProblemError(
            f"a global batch of {global_batch}", "give a global batch of 1 or more"
        )
    best: dict[tuple[int, int, tuple[str, ...]], MarpPlan] = {}
    tensors = [power for power in _powers_of_two(gpus_per_node) if shape.heads % power == 0]
    for tensor in tensors:
        for micro_batch in _divisors(global_batch):
            needed = marp_peak_bytes(
                shape, sequence_length=sequence_length, micro_batch=micro_batch, tensor=tensor
            )
            types = tuple(name for name, size in gpu_memory_bytes.items() if size >= needed)
            if not types:
                continue
            for data in _divisors(global_batch // micro_batch):
                if tensor * data > max_gpus:
                    continue
                best[tensor * data, tensor, types] = MarpPlan(
                    gpus=tensor * data,
                    tensor=tensor,
                    data=data,
                    micro_batch=micro_batch,
                    needed_bytes=needed,
                    gpu_types=types,
                )
    return tuple(
        sorted(
            best.values(),
            key=lambda plan: (-plan.micro_batch, plan.tensor, plan.gpus, plan.needed_bytes),
        )
    )


def _powers_of_two(largest: int) -> Sequence[int]:
    return [1 << power for power in range(max(largest, 1).bit_length()) if 1 << power <= largest]


def _divisors(number: int) -> Sequence[int]:
    return [index for index in range(1, number + 1) if number % index == 0]
