"""Runs on nodes: never over, stay where they are, gangs on whole nodes."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from data.base.errors import ImpossibleProblemError
from planner.packing.placement import PlacementNode, Run, place_on_nodes

EIGHT = tuple(PlacementNode(name=f"n{index}", gpus=8) for index in range(3))


Places = list[dict[str, int]]
"""The GPUs of each run by the name of the node, none where it has no room."""


def placed(runs: Sequence[Run], nodes: Sequence[PlacementNode] = EIGHT, *, seed: int = 1) -> Places:
    """The placement, with time to spare."""
    rows = place_on_nodes(runs, nodes, budget_seconds=30, seed=seed)
    return [{nodes[number].name: gpus for number, gpus in row.items()} for row in rows]


def moved(runs: Sequence[Run], places: Places) -> list[str]:
    """The runs that have to leave a node that they are on now."""
    return [
        run.run_id
        for run, place in zip(runs, places, strict=True)
        if place and not set(run.current_nodes) <= place.keys()
    ]


def excesses(runs: Sequence[Run], nodes: Sequence[PlacementNode], places: Places) -> list[object]:
    """Every (node, slot, resource) above what the node has, slot by slot."""
    used: dict[tuple[str, int, str], float] = defaultdict(float)
    for run, place in zip(runs, places, strict=True):
        assert sum(place.values()) == (run.gpus if place else 0)
        for name, gpus in place.items():
            for slot in range(run.start, run.end):
                used[name, slot, "gpus"] += gpus
                used[name, slot, "cpu"] += (run.cpu_milli or 0) * gpus / run.gpus
                used[name, slot, "memory"] += (run.memory_bytes or 0) * gpus / run.gpus
    room = {
        (node.name, what): amount
        for node in nodes
        for what, amount in (
            ("gpus", node.gpus),
            ("cpu", node.cpu_milli),
            ("memory", node.memory_bytes),
        )
        if amount is not None
    }
    return [key for key, amount in used.items() if amount > room.get((key[0], key[2]), amount)]


def run(name: str, gpus: int, start: int = 0, end: int = 4, **more: object) -> Run:
    """A run; its job has the same name unless said otherwise."""
    fields: dict[str, object] = {"job_id": name} | more
    return Run(run_id=name, gpus=gpus, start=start, end=end, **fields)  # type: ignore[arg-type]


RUNS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.integers(1, 5),
        st.sampled_from([1, 2, 3, 4, 8, 12, 16]),
        st.sampled_from([None, 4_000, 20_000]),
        st.sampled_from([(), ("n0",), ("n2",)]),
    ),
    max_size=14,
)


@settings(max_examples=examples(60), deadline=None)
@given(RUNS)
def test_no_node_is_over_in_any_slot(
    drawn: list[tuple[int, int, int, int | None, tuple[str, ...]]],
) -> None:
    """GPUs, CPU and memory hold, a run has all its GPUs or none."""
    nodes = [
        PlacementNode(name=f"n{index}", gpus=8, cpu_milli=64_000, memory_bytes=500_000)
        for index in range(3)
    ]
    runs = [
        run(
            f"r{index}",
            gpus,
            start,
            start + length,
            cpu_milli=None if cpu is None else cpu * gpus,
            memory_bytes=10_000 * gpus,
            current_nodes=current,
        )
        for index, (start, length, gpus, cpu, current) in enumerate(drawn)
    ]
    assert excesses(runs, nodes, placed(runs, nodes)) == []


def test_a_feasible_present_stays_as_it_is() -> None:
    """Nothing moves that need not."""
    runs = [
        run("a", 4, current_nodes=("n2",)),
        run("b", 4, current_nodes=("n1",)),
        run("c", 2, current_nodes=("n2",)),
        run("d", 8, current_nodes=("n0",)),
    ]
    found = placed(runs)
    assert found == [{"n2": 4}, {"n1": 4}, {"n2": 2}, {"n0": 8}]


def test_a_run_moves_only_to_let_another_in() -> None:
    """Two halves on two nodes make room for a whole one by a single move."""
    runs = [
        run("a", 4, current_nodes=("n0",)),
        run("b", 4, current_nodes=("n1",)),
        run("new", 8),
    ]
    found = placed(runs, EIGHT[:2])
    assert all(found)
    assert len(moved(runs, found)) == 1


def test_the_next_run_of_a_job_stays_on_its_node() -> None:
    """A job that shrinks keeps its node where that is possible."""
    runs = [
        run("other", 4, 0, 8),
        run("j1", 4, 0, 4, job_id="j", current_nodes=("n2",)),
        run("j2", 2, 4, 8, job_id="j"),
    ]
    assert placed(runs)[1:] == [{"n2": 4}, {"n2": 2}]


def test_a_gang_takes_whole_nodes_and_a_part() -> None:
    """Twenty GPUs are two nodes of eight and four GPUs of a third."""
    gang, small = placed([run("gang", 20), run("small", 4)])
    assert list(gang.values()) == [8, 8, 4]
    assert small == {list(gang)[2]: 4}


def test_a_gang_without_all_its_nodes_has_none() -> None:
    """Half a gang is of no use, and its room goes to others."""
    runs = [run("gang", 24), run("stay", 1, current_nodes=("n0",)), run("other", 8)]
    assert [bool(place) for place in placed(runs)] == [False, True, True]


@pytest.mark.parametrize(
    "one",
    [
        run("r", 1, gpu_model="H100"),
        run("r", 100),
        run("r", 1, cpu_milli=9_000),
        run("r", 1, memory_bytes=9_000),
    ],
)
def test_what_no_node_could_hold_has_no_node(one: Run) -> None:
    """For its model, its size, its CPU or its memory."""
    nodes = [
        PlacementNode(name=name, gpus=8, gpu_model="A100", cpu_milli=8_000, memory_bytes=8_000)
        for name in "ab"
    ]
    assert placed([one], nodes) == [{}]


def test_no_nodes_and_no_runs_are_no_error() -> None:
    """Nothing is placed nowhere."""
    assert placed([]) == []
    assert placed([run("a", 1)], []) == [{}]


def test_the_model_that_a_run_names_is_the_model_that_it_gets() -> None:
    """A run that takes any model leaves the wanted one to the other."""
    nodes = [
        PlacementNode(name="a", gpus=1, gpu_model="A100"),
        PlacementNode(name="h", gpus=1, gpu_model="H100"),
    ]
    found = placed([run("any", 1), run("picky", 1, gpu_model="A100")], nodes)
    assert found == [{"h": 1}, {"a": 1}]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: placed([run("a", 1, current_nodes=("x",))]), "run a is on node 'x'"),
        (lambda: placed([run("a", 1)], [EIGHT[0], EIGHT[0]]), "2 nodes have 1 names"),
        (lambda: run("a", 0), "run a has 0 GPUs"),
        (lambda: run("a", 1, 3, 3), r"slots \[3, 3\)"),
    ],
)
def test_contradictions_are_refused(make: object, message: str) -> None:
    """The error names the run or node."""
    with pytest.raises(ImpossibleProblemError, match=message):
        make()  # type: ignore[operator]


def full_fleet(seed: int, nodes: int = 12) -> list[Run]:
    """Runs of 1, 2, 4, 8 GPUs that fill the nodes exactly in some slots."""
    rng = np.random.default_rng(seed)
    load = np.zeros(60, dtype=np.int64)
    runs = []
    for index in range(400):
        start, length = int(rng.integers(0, 55)), int(rng.integers(2, 20))
        gpus = int(rng.choice([1, 2, 4, 8]))
        end = min(60, start + length)
        if (load[start:end] + gpus <= 8 * nodes).all():
            load[start:end] += gpus
            runs.append(run(f"r{index}", gpus, start, end))
    assert load.max() == 8 * nodes
    return runs


@pytest.mark.parametrize("seed", range(4))
def test_counts_that_suffice_per_slot_are_placed_without_a_move(seed: int) -> None:
    """With 1, 2, 4, 8 of 8, what the counts allow finds nodes for its whole life."""
    nodes = [PlacementNode(name=f"n{index:02}", gpus=8) for index in range(13)]
    runs = full_fleet(seed)
    found = placed(runs, nodes)
    assert all(found)
    assert excesses(runs, nodes, found) == []


def test_the_same_seed_gives_the_same_nodes() -> None:
    """Nothing but the input and the seed decides."""
    runs = full_fleet(9)
    nodes = [PlacementNode(name=f"n{index:02}", gpus=8) for index in range(12)]
    assert placed(runs, nodes, seed=4) == placed(runs, nodes, seed=4)
