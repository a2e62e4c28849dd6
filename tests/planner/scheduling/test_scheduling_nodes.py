"""From counts to nodes."""

import pytest
from drawn import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.simulation.rounds.node_mapping import map_to_nodes
from data.base.errors import ImpossibleProblemError

ROOM = dict.fromkeys(range(4), 8)


# The first draws take seconds where other work holds the cores: that is no fault of the input.
@settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from([1, 2, 4, 8, 16]), max_size=10))
def test_what_fits_by_count_fits_on_fewest_nodes(sizes: list[int]) -> None:
    """Powers of two and whole nodes: every job on ceil(GPUs / 8) nodes, none over its room."""
    sizes = [size for index, size in enumerate(sizes) if sum(sizes[: index + 1]) <= 32]
    wanted = {f"job-{index}": size for index, size in enumerate(sizes)}
    placed = map_to_nodes(wanted, {}, ROOM)
    used = [node for nodes in placed.values() for node in nodes]
    assert all(used.count(node) <= 8 for node in ROOM)
    assert {job: len(nodes) for job, nodes in placed.items()} == wanted
    assert all(len(set(nodes)) == -(-wanted[job] // 8) for job, nodes in placed.items())


def test_jobs_stay_where_they_are_when_others_fit_beside_them() -> None:
    """The held nodes come back, however they are numbered."""
    placed = map_to_nodes({"a": 2, "b": 8}, {"a": (3, 3)}, ROOM)
    assert placed["a"] == (3, 3)
    assert len(set(placed["b"])) == 1
    assert 3 not in placed["b"]


def test_only_the_smallest_moves_for_a_job_that_needs_whole_nodes() -> None:
    """Four single GPUs on four nodes bar a whole node: one of them gives way, not all."""
    held = {f"small-{node}": (node,) for node in range(4)}
    placed = map_to_nodes(dict.fromkeys(held, 1) | {"large": 8}, held, ROOM)
    assert sum(placed[name] != held[name] for name in held) == 1


def test_too_many_gpus_are_refused() -> None:
    """More GPUs than the nodes have."""
    with pytest.raises(ImpossibleProblemError, match="33 GPUs"):
        map_to_nodes({"a": 33}, {}, ROOM)
