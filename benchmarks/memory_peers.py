"""Published formulas of training memory, as peers: DeepSpeed's estimators and Megatron's report.

DeepSpeed: documentation of memory requirements, ZeRO-2 and ZeRO-3 (model states only). Megatron-LM:
its report of the theoretical memory footprint (weights and optimiser, activations with sequence
parallelism and selective recomputation). Accelerate: four times the size of the weights.
"""

from planner.memory.models.model_shape import ModelShape
from planner.memory.models.parameters import count_parameters
from planner.memory.step.training_job import Sharding, TrainingJob


def deepspeed_zero2_bytes(parameters: float, *, gpus: int, offload: bool = False) -> float:
    """Return bytes per GPU: 2 Ψ with the optimiser in host memory, else 4 Ψ + 16 Ψ / n."""
    return 2 * parameters if offload else 4 * parameters + 16 * parameters / gpus


def deepspeed_zero3_bytes(
    parameters: float, largest_layer: float, *, gpus: int, offload: str = ""
) -> float:
    """Return bytes per GPU: 4 P of the largest layer, and 18 Ψ / n unless it is in host memory.

    `offload` is "", "optimizer" or "all".
    """
    states = {"": 18.0, "optimizer": 2.0, "all": 0.0}[offload]
    return 4 * largest_layer + states * parameters / gpus


def deepspeed_bytes(job: TrainingJob) -> float | None:
    """Return DeepSpeed's estimate of a job; None for one that is not sharded by ZeRO or FSDP."""
    spread, count = job.parallelism, count_parameters(job.shape)
    gpus = spread.gpus
    if spread.sharding in (Sharding.ZERO1, Sharding.ZERO2):
        return deepspeed_zero2_bytes(count.total, gpus=gpus)
    if spread.sharding in (Sharding.ZERO3, Sharding.FSDP):
        return deepspeed_zero3_bytes(count.total, count.largest_layer, gpus=gpus)
    return 18.0 * count.total if gpus == 1 else None


def megatron_bytes(
    shape: ModelShape, *, job: TrainingJob, micro_batch: int, sequence_length: int
) -> float:
    """Return Megatron's report of the fullest GPU, with the distributed optimiser as in the job."""
    spread = job.parallelism
    vocabulary = shape.vocab * shape.hidden
    layers = count_parameters(shape).layers + shape.hidden
    outer = vocabulary if shape.tied_embeddings or spread.pipeline > 1 else 2 * vocabulary
    parameters = (layers / spread.pipeline + outer) / spread.tensor
    distributed = spread.sharding is not Sharding.NONE
    states = parameters * (6 + 12 / spread.data if distributed else 18)
    tokens = micro_batch * sequence_length
    layer = tokens * shape.hidden * (18 + 4 * shape.ffn / shape.hidden)
    held = layer * shape.layers
    if spread.pipeline > 1:
        in_flight = min(job.gradient_accumulation or spread.pipeline, spread.pipeline)
        held *= in_flight / spread.pipeline
    logits = 4 * tokens * shape.hidden * (1 + shape.vocab / shape.hidden)
    if spread.pipeline > 1:
        logits = 0.0
    return states + (held + logits) / spread.tensor


def four_weights_bytes(shape: ModelShape) -> float:
    """Return four times the size of the fp32 weights, the rule of accelerate for Adam."""
    return 4.0 * 4.0 * count_parameters(shape).total
