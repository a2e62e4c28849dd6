"""Runs on nodes: never over, stay where they are, gangs on whole nodes, and reasons."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from data.base.errors import ImpossibleProblemError
from planner.packing.placement import PlacementNode, Run, RunPlacement, place_on_nodes

EIGHT = tuple(PlacementNode(name=f"n{index}", gpus=8) for index in range(3))


def placed(
    runs: Sequence[Run], nodes: Sequence[PlacementNode] = EIGHT, *, seed: int = 1
) -> RunPlacement:
    """The placement, with time to spare."""
    return place_on_nodes(runs, nodes, budget_seconds=30, seed=seed)


def excesses(
    runs: Sequence[Run], nodes: Sequence[PlacementNode], found: RunPlacement
) -> list[object]:
    """Every (node, slot, resource) above what the node has, slot by slot."""
    used: dict[tuple[str, int, str], float] = defaultdict(float)
    for run, answer in zip(runs, found.runs, strict=True):
        assert run.run_id == answer.run_id
        assert len(set(answer.nodes)) == len(answer.nodes)
        assert sum(answer.gpus) == (run.gpus if answer.nodes else 0)
        for name, gpus in zip(answer.nodes, answer.gpus, strict=True):
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
    """GPUs, CPU and memory hold, a run has all its GPUs or none, and says why when none."""
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
    found = place_on_nodes(runs, nodes, budget_seconds=30, seed=1)
    assert excesses(runs, nodes, found) == []
    for entry in found.runs:
        assert bool(entry.nodes) != bool(entry.reason)
    by_name = {entry.run_id: entry for entry in runs}
    for entry in found.runs:
        current = set(by_name[entry.run_id].current_nodes)
        assert entry.moved == (bool(entry.nodes) and not current <= set(entry.nodes))


def test_a_feasible_present_stays_as_it_is() -> None:
    """Nothing moves that need not."""
    runs = [
        run("a", 4, current_nodes=("n2",)),
        run("b", 4, current_nodes=("n1",)),
        run("c", 2, current_nodes=("n2",)),
        run("d", 8, current_nodes=("n0",)),
    ]
    found = placed(runs)
    assert [entry.nodes for entry in found.runs] == [("n2",), ("n1",), ("n2",), ("n0",)]
    assert found.moved == ()


def test_a_run_moves_only_to_let_another_in() -> None:
    """Two halves on two nodes make room for a whole one by a single move."""
    runs = [
        run("a", 4, current_nodes=("n0",)),
        run("b", 4, current_nodes=("n1",)),
        run("new", 8),
    ]
    found = placed(runs, EIGHT[:2])
    assert found.unplaced == ()
    assert len(found.moved) == 1


def test_the_next_run_of_a_job_stays_on_its_node() -> None:
    """A job that shrinks keeps its node where that is possible."""
    runs = [
        run("other", 4, 0, 8),
        run("j1", 4, 0, 4, job_id="j", current_nodes=("n2",)),
        run("j2", 2, 4, 8, job_id="j"),
    ]
    assert [entry.nodes for entry in placed(runs).runs][1:] == [("n2",), ("n2",)]


def test_a_gang_takes_whole_nodes_and_a_part() -> None:
    """Twenty GPUs are two nodes of eight and four GPUs of a third."""
    found = placed([run("gang", 20), run("small", 4)])
    assert found.runs[0].gpus == (8, 8, 4)
    assert len(set(found.runs[0].nodes)) == 3
    assert found.runs[1].nodes == (found.runs[0].nodes[2],)


def test_a_gang_without_all_its_nodes_has_none() -> None:
    """Half a gang is of no use, and its room goes to others."""
    runs = [run("gang", 24), run("stay", 1, current_nodes=("n0",)), run("other", 8)]
    found = placed(runs)
    assert [entry.run_id for entry in found.unplaced] == ["gang"]
    assert found.unplaced[0].reason == "no room found for 24 GPUs in all of slots [0, 4)"


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (run("r", 1, gpu_model="H100"), "no node has GPUs of model H100"),
        (run("r", 100), "it needs 100 GPUs and all nodes have 16"),
        (run("r", 1, cpu_milli=9_000), "no empty node has the CPU and memory"),
        (run("r", 1, memory_bytes=9_000), "no empty node has the CPU and memory"),
    ],
)
def test_what_no_node_could_hold_says_why(one: Run, reason: str) -> None:
    """The reason names what is missing."""
    nodes = [
        PlacementNode(name=name, gpus=8, gpu_model="A100", cpu_milli=8_000, memory_bytes=8_000)
        for name in "ab"
    ]
    (answer,) = placed([one], nodes).runs
    assert answer.nodes == ()
    assert reason in answer.reason


def test_no_nodes_and_no_runs_are_no_error() -> None:
    """Nothing is placed nowhere."""
    assert placed([]).runs == ()
    assert placed([run("a", 1)], []).unplaced[0].reason == "no node has GPUs"


def test_the_model_that_a_run_names_is_the_model_that_it_gets() -> None:
    """A run that takes any model leaves the wanted one to the other."""
    nodes = [
        PlacementNode(name="a", gpus=1, gpu_model="A100"),
        PlacementNode(name="h", gpus=1, gpu_model="H100"),
    ]
    found = placed([run("any", 1), run("picky", 1, gpu_model="A100")], nodes)
    assert [entry.nodes for entry in found.runs] == [("h",), ("a",)]


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
    assert found.unplaced == ()
    assert excesses(runs, nodes, found) == []


def test_the_same_seed_gives_the_same_nodes() -> None:
    """Nothing but the input and the seed decides."""
    runs = full_fleet(9)
    nodes = [PlacementNode(name=f"n{index:02}", gpus=8) for index in range(12)]
    assert placed(runs, nodes, seed=4).runs == placed(runs, nodes, seed=4).runs
