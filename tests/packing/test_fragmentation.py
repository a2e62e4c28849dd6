"""Online placement: what fits and what does not, what a residual is worth, ends and releases."""

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks._fragmentation import (
    ANY_MODEL,
    FragmentationPlacer,
    Pods,
    model_prices,
    node_state,
    prices_of,
    residual_losses,
)
from benchmarks._fragmentation_kernel import NodeState
from benchmarks._online_placement import OnlinePlacer
from dashboard.submission.job.fleet import SubmissionNode
from dashboard.submission.job.least_stranding import least_stranding
from data.base.errors import ImpossibleProblemError

ROW = tuple[int, int, int, int, int]


def pods(*rows: ROW) -> Pods:
    """Pods of (cpu, memory, gpus, milli, models)."""
    table = np.array(rows, dtype=np.int64).reshape(-1, 5)
    return Pods(
        cpu=table[:, 0], memory=table[:, 1], gpus=table[:, 2], milli=table[:, 3], models=table[:, 4]
    )


def nodes(*rows: tuple[int, int, int, int]) -> NodeState:
    """Nodes of (cpu, memory, gpus, model)."""
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    return node_state(table[:, 0], table[:, 1], table[:, 2], table[:, 3])


USUAL = pods(
    (10_000, 10, 1, 1000, ANY_MODEL),
    (5_000, 10, 1, 500, ANY_MODEL),
    (80_000, 10, 8, 1000, ANY_MODEL),
)


@pytest.mark.parametrize(
    "row",
    [
        (9_000, 1, 1, 1000, ANY_MODEL),
        (1, 99, 1, 1000, ANY_MODEL),
        (1, 1, 3, 1000, ANY_MODEL),
        (1, 1, 1, 1000, 0b10),
    ],
)
def test_cpu_memory_gpus_and_model_are_all_checked(row: ROW) -> None:
    """A pod that lacks one of the four is not placed, and nothing is taken."""
    placer = FragmentationPlacer(nodes((8_000, 50, 2, 0)), USUAL)
    assert placer.place(pods(row).pod(0)) is None
    assert placer.nodes.gpu[0] == 2000


def test_a_share_fits_one_gpu_not_the_sum_of_two() -> None:
    """Halves left on two GPUs are no whole one."""
    placer = FragmentationPlacer(nodes((90_000, 90, 2, 0)), USUAL)
    share = pods((1, 1, 1, 600, ANY_MODEL)).pod(0)
    assert placer.place(share) is not None
    assert placer.place(share) is not None
    assert placer.place(share) is None
    assert placer.nodes.gpu[0] == 800


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=40), st.integers(0, 99))
def test_what_is_taken_and_given_back_adds_up(steps: list[tuple[bool, int]], seed: int) -> None:
    """No board is below 0 or above 1000, sums agree, and all released is all free."""
    kinds = pods(
        (4_000, 4, 1, 1000, ANY_MODEL),
        (2_000, 2, 1, 300, ANY_MODEL),
        (9_000, 2, 2, 1000, ANY_MODEL),
        (6_000, 2, 0, 0, ANY_MODEL),
        (100, 2, 1, 810, 0b1),
    )
    empty = nodes((32_000, 64, 4, 0), (16_000, 32, 2, 1), (64_000, 64, 0, 2))
    placer = FragmentationPlacer(empty, kinds)
    before = [part.copy() for part in empty]
    rng = np.random.default_rng(seed)
    held = []
    for place, kind in steps:
        if place:
            pod = kinds.pod(kind)
            found = placer.place(pod)
            if found is not None:
                held.append((pod, *found))
        elif held:
            placer.release(*held.pop(int(rng.integers(len(held)))))
        state = placer.nodes
        assert (state.boards >= 0).all()
        assert (state.boards <= 1000).all()
        assert (state.cpu >= 0).all()
        assert (state.memory >= 0).all()
        assert (state.boards.sum(axis=1) == state.gpu).all()
        assert ((state.boards == 1000).sum(axis=1) == state.full).all()
    for entry in held:
        placer.release(*entry)
    assert all((now == then).all() for now, then in zip(placer.nodes, before, strict=True))


def test_a_pod_goes_where_it_strands_no_gpu() -> None:
    """CPU-hungry pods go where CPU is in excess, not where GPUs would be left without."""
    placer = FragmentationPlacer(nodes((20_000, 90, 2, 0), (60_000, 90, 2, 0)), USUAL)
    placed = placer.place(pods((20_000, 1, 1, 1000, ANY_MODEL)).pod(0))
    assert placed is not None
    assert placed[0] == 1


def test_a_share_completes_a_shared_gpu() -> None:
    """The half goes beside the half, not onto a whole GPU."""
    placer = FragmentationPlacer(nodes(*[(90_000, 90, 2, 0)] * 2), USUAL)
    half = pods((5_000, 1, 1, 500, ANY_MODEL)).pod(0)
    first, second = placer.place(half), placer.place(half)
    assert first is not None
    assert second is not None
    assert first[0] == second[0]
    assert (first[1] == second[1]).all()


def test_residuals_that_no_share_fits_are_lost_and_whole_gpus_are_not() -> None:
    """No residual loses more than it is; below the smallest share all is lost."""
    losses = residual_losses(
        pods(*[(1, 1, 1, 810, ANY_MODEL)] * 5, *[(1, 1, 1, 470, ANY_MODEL)] * 4)
    )
    assert losses[1000] == losses[0] == 0
    assert (losses[:470] == np.arange(470)).all()
    assert losses[810] < 810
    assert (losses <= np.arange(1001) + 1e-9).all()


def test_without_shares_a_residual_is_lost() -> None:
    """Only a whole GPU is worth anything then."""
    losses = residual_losses(pods((1, 1, 1, 1000, ANY_MODEL)))
    assert losses[1000] == 0
    assert losses[999] == 999


def test_a_model_has_a_price_when_many_ask_for_it_by_name() -> None:
    """The scarcer, the dearer; none has a price when few are picky."""
    empty = nodes((1, 1, 8, 0), (1, 1, 2, 1))
    picky = pods(*[(1, 1, 1, 1000, 0b10)] * 4, *[(1, 1, 1, 1000, ANY_MODEL)] * 6)
    prices = model_prices(picky, empty)
    assert prices[1] > prices[0] == 0
    easy = pods((1, 1, 1, 1000, 0b10), *[(1, 1, 1, 1000, ANY_MODEL)] * 9)
    assert (model_prices(easy, empty) == 0).all()


@pytest.mark.parametrize("row", [(1, 1, 2, 500, ANY_MODEL), (1, 1, 1, 0, 1), (1, 1, 1, 1001, 1)])
def test_shares_that_are_none_are_refused(row: ROW) -> None:
    """A share is of one GPU and at most all of it."""
    with pytest.raises(ImpossibleProblemError, match=f"pod 0 asks for {row[3]} milli"):
        pods(row)


def test_typical_pods_without_gpus_are_refused() -> None:
    """No price can be made from them."""
    with pytest.raises(ImpossibleProblemError, match="none of the typical pods"):
        prices_of(pods((1, 1, 0, 0, ANY_MODEL)), nodes((1, 1, 1, 0)))


def test_a_pod_goes_where_the_node_is_busy_anyway() -> None:
    """It ends before the node's last pod, so no node is busy for longer."""
    placer = OnlinePlacer(nodes(*[(90_000, 90, 4, 0)] * 3), USUAL)
    one = pods((10_000, 1, 2, 1000, ANY_MODEL)).pod(0)
    long = placer.place(one, now=0, end=100)
    short = placer.place(one, now=10, end=90)
    next_one = placer.place(one, now=10, end=50)
    assert long is not None
    assert short is not None
    assert next_one is not None
    assert long.node == short.node != next_one.node


def test_of_empty_nodes_that_cost_alike_the_larger_is_opened() -> None:
    """Its room serves the next pods at no further cost; paid by the GPU, the fuller one is."""
    sizes = nodes((90_000, 90, 2, 0), (90_000, 90, 8, 0))
    one = pods((10_000, 1, 1, 1000, ANY_MODEL)).pod(0)
    alike = OnlinePlacer(sizes, USUAL, cost=np.ones(2))
    by_gpu = OnlinePlacer(sizes, USUAL)
    assert alike.choose(one, now=0, end=10) == 1
    assert by_gpu.choose(one, now=0, end=10) == 0


def test_a_released_node_is_no_longer_busy() -> None:
    """Its busy time falls back to the pods that are left, and it is taken off once."""
    placer = OnlinePlacer(nodes(*[(90_000, 90, 4, 0)] * 2), USUAL)
    one = pods((10_000, 1, 1, 1000, ANY_MODEL)).pod(0)
    long, short = placer.place(one, now=0, end=100), placer.place(one, now=0, end=10)
    assert long is not None
    assert short is not None
    placer.release(long)
    assert placer.busy_until[short.node] == 10
    placer.release(short)
    assert placer.busy_until[short.node] == -np.inf
    assert (placer.nodes.gpu == 4000).all()
    with pytest.raises(ImpossibleProblemError, match="does not hold"):
        placer.release(short)


def test_a_pod_of_unknown_end_is_placed_by_what_it_strands() -> None:
    """And its node counts as busy without end."""
    placer = OnlinePlacer(nodes(*[(90_000, 90, 4, 0)] * 2), USUAL)
    one = pods((10_000, 1, 1, 1000, ANY_MODEL)).pod(0)
    placed = placer.place(one, now=0, end=None)
    assert placed is not None
    assert placer.busy_until[placed.node] == np.inf
    again = placer.place(one, now=0, end=10**9)
    assert again is not None
    assert again.node == placed.node


def test_a_pod_does_not_end_before_it_begins() -> None:
    """An end in the past is a mistake of the caller."""
    placer = OnlinePlacer(nodes((90_000, 90, 4, 0)), USUAL)
    with pytest.raises(ImpossibleProblemError, match="placed at 5 is said to end at 5"):
        placer.place(USUAL.pod(0), now=5, end=5)


def test_a_full_fleet_gives_none() -> None:
    """No room is an answer."""
    placer = OnlinePlacer(nodes((90_000, 90, 1, 0)), USUAL)
    assert placer.place(USUAL.pod(0), now=0, end=5) is not None
    assert placer.place(USUAL.pod(0), now=0, end=5) is None


@settings(max_examples=examples(60), deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from([2, 4, 8]), st.integers(0, 8), st.sampled_from([None, 16, 96])),
        min_size=1,
        max_size=8,
    ),
    gpus=st.sampled_from([1, 2, 4]),
    cpus=st.integers(1, 40),
    count=st.integers(1, 3),
)
def test_a_submitted_job_goes_where_pods_of_its_size_would(
    rows: list[tuple[int, int, int | None]], gpus: int, cpus: int, count: int
) -> None:
    """One share to a node, each where the placer puts the next; none where a share has no node."""
    fleet = [
        SubmissionNode(
            name=f"n{number}",
            gpu_type="A",
            word="a",
            gpus=size,
            free_gpus=min(free, size),
            cpus=node_cpus,
        )
        for number, (size, free, node_cpus) in enumerate(rows)
    ]
    fleet.sort(key=lambda node: (node.free_gpus, node.name))
    typical = pods(
        *[
            (int((node.cpus or node.gpus) * 1000 // node.gpus), 0, 1, 1000, ANY_MODEL)
            for node in fleet
        ]
    )
    left = (int((node.cpus or 10**6) * 1000 * (node.free_gpus / node.gpus)) for node in fleet)
    empty = nodes(
        *[
            (max(cpu, cpus * 1000), 0, node.free_gpus, 0)
            for cpu, node in zip(left, fleet, strict=True)
        ]
    )
    placer = FragmentationPlacer(empty, typical)
    share = pods((cpus * 1000, 0, gpus, 1000, ANY_MODEL)).pod(0)
    names: list[str] = []
    while len(names) < count and (place := placer.place(share)) is not None:
        placer.nodes.full[place[0]] = 0
        names.append(fleet[place[0]].name)
    chosen = least_stranding(fleet, count, gpus=gpus, cpus=cpus)
    assert chosen == (tuple(names) if len(names) == count else ())
