"""Simulated training jobs that are slow for known causes.

Each has a cause, drawn from its number. The shapes are what each cause is said to look like: they
are assumed, not measured.
"""

from collections.abc import Mapping

from collectors.simulated.fleet import SERVING, Shape, uniform
from collectors.simulated.layout import Tenant
from data.facts.jobs import WorkloadKind
from data.records.slow_work import SlowCause

SHAPES: Mapping[SlowCause, Shape] = {
    SlowCause.BUSY: Shape(),
    SlowCause.STARVED: Shape(level=0.45, engine=0.5, nvlink=20.0, pcie=3.0),
    SlowCause.SMALL_BATCH: Shape(level=0.38, engine=0.93, tensor=0.3, dram=0.3, nvlink=10.0),
    SlowCause.WAITING: Shape(others=0.5),
    SlowCause.COMMUNICATION: Shape(level=0.75, tensor=0.15, dram=0.4, nvlink=280.0, pcie=24.0),
    SlowCause.NO_TENSOR: Shape(tensor=0.02, dram=0.2, fp32=0.6, nvlink=30.0),
    SlowCause.THROTTLED: Shape(throttled=0.6, tensor=0.4),
}
_OF_SEVERAL = frozenset({SlowCause.WAITING, SlowCause.COMMUNICATION})


def cause_of(tenant: Tenant) -> SlowCause:
    """Return the cause of a job's slowness; a job that does not train has none of these."""
    if tenant.kind is not WorkloadKind.TRAINING:
        return SlowCause.UNKNOWN
    drawn = [cause for cause in SHAPES if len(tenant.devices) > 1 or cause not in _OF_SEVERAL]
    return drawn[int(uniform(tenant, 0) * len(drawn))]


def slow_shape(tenant: Tenant) -> Shape:
    """Return the shape of a job by its cause."""
    return SHAPES.get(cause_of(tenant), SERVING)
