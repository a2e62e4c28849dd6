"""The rough length of a training run: its arithmetic over the speed of a plan."""

from planner.memory.estimate.training_plans import TrainingPlan
from planner.memory.models.model_shape import ModelShape
from planner.memory.models.parameters import count_parameters
from planner.memory.step.training_job import Method

_FLOPS_PER_SPEED = 155e12
"""Useful arithmetic a second at relative speed 1. Chosen: over the published bf16 runs of MPT 125M
to 70B on 8 to 512 H100 and A100 the middle of measured over estimated time is then 1."""

_UNCERTAINTY = 1.5
"""A run takes from 1/1.5 to 1.5 of the estimate: the input pipeline and the network are unknown."""


def flops_per_token(shape: ModelShape, method: Method, sequence_length: int) -> float:
    """Return the arithmetic of one training token, recomputation left out.

    6 per active parameter (Kaplan et al., arXiv 2001.08361), 4 where weights are frozen, and
    12 l h s for the scores of attention (Chowdhery et al., arXiv 2204.02311, appendix B).
    """
    counted = count_parameters(shape)
    active = counted.total - (counted.embedding if counted.head else 0)
    if shape.experts is not None and counted.expert_layer is not None:
        idle = 1 - shape.experts.experts_per_token / shape.experts.experts
        active -= int(counted.expert_layers * counted.expert_layer.routed * idle)
    per_parameter = 6 if method is Method.FULL else 4
    scores = 12 * shape.layers * shape.heads * shape.head_dim * sequence_length
    return per_parameter * active + scores


def hours_range(plan: TrainingPlan, tokens: float) -> tuple[float, float]:
    """Return the hours that so many tokens take under a plan, at best and at worst."""
    job = plan.job
    work = tokens * flops_per_token(job.shape, job.method, job.sequence_length or 1)
    hours = work / (plan.speed * _FLOPS_PER_SPEED) / 3600
    return hours / _UNCERTAINTY, hours * _UNCERTAINTY
