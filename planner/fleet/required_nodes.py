"""The nodes of a fleet on which alone a job may run, as it asked its scheduler."""

from collections.abc import Iterable

from data.facts.cluster_names import named_in
from data.facts.jobs import Job
from data.records.feasible_changes import required_nodes
from planner.fleet.occupied_boards import short_name


def allowed_nodes(job: Job, nodes: Iterable[str]) -> frozenset[str] | None:
    """Return those of the nodes on which alone a job may be, None where it may be on any."""
    names = {named_in(short_name(name), job.cluster) for name in required_nodes(job)}
    return frozenset(name for name in nodes if short_name(name) in names) if names else None
