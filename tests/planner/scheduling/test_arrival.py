"""A new job among those that wait: the cheapest GPUs that nobody needs more."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulation.rounds.policy import HeterogeneousPolicy
from planner.scheduling.arrival import Offer, WaitingJob, chosen_offer

Floats = npt.NDArray[np.float64]
GIB = 2.0**30
SMALL = Offer(gpu_type="small", gpus=1, memory_bytes=40 * GIB, cost=1.2)
LARGE = Offer(gpu_type="large", gpus=1, memory_bytes=80 * GIB, cost=0.96)


def waits(gpus: int, *types: str, hours: float = 2.0) -> WaitingJob:
    """A job that runs on these types alone."""
    return WaitingJob(name="w", gpus=gpus, speeds=dict.fromkeys(types, 1.0), hours=hours)


@pytest.mark.parametrize(
    ("room", "waiting", "chosen"),
    [
        ({"small": 4, "large": 4}, (), SMALL),
        ({"small": 0, "large": 4}, (), LARGE),
        ({"small": 0, "large": 0}, (), None),
        ({}, (), None),
        ({"small": 2, "large": 4}, (waits(4, "small"),), LARGE),
        ({"small": 2, "large": 4}, (waits(4, "large"),), SMALL),
        ({"small": 1, "large": 4}, (waits(1, "small", "large"),), SMALL),
        ({"small": 0, "large": 1}, (waits(1, "small"),), LARGE),
        ({"small": 1, "large": 1}, (waits(1, "other"), waits(2, "other")), SMALL),
    ],
)
def test_the_type_that_costs_the_others_least_is_taken(
    room: dict[str, int], waiting: tuple[WaitingJob, ...], chosen: Offer | None
) -> None:
    """The smaller memory while nobody needs it, else the other; nothing where nothing is free."""
    assert chosen_offer([SMALL, LARGE], room, waiting) == chosen


@pytest.mark.parametrize(("hours", "chosen"), [(0.5, SMALL), (20.0, None)])
def test_one_gpu_goes_to_the_shorter_of_two(hours: float, chosen: Offer | None) -> None:
    """Against a job of two hours a new one of half an hour starts, one of twenty waits."""
    assert chosen_offer([SMALL], {"small": 1}, [waits(1, "small")], hours=hours) == chosen


@settings(deadline=None, max_examples=examples(60))
@given(
    room=st.fixed_dictionaries({"small": st.integers(0, 12), "large": st.integers(0, 12)}),
    sizes=st.tuples(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8])),
    queue=st.lists(
        st.tuples(st.sampled_from(["small", "large", "other"]), st.integers(1, 100)), max_size=6
    ),
)
def test_a_choice_is_an_offer_that_fits(
    room: dict[str, int], sizes: tuple[int, int], queue: list[tuple[str, int]]
) -> None:
    """Never more than is free, and without a queue whatever fits is taken."""
    offers = [
        Offer(gpu_type=name, gpus=count, memory_bytes=40 * GIB, cost=1.0)
        for name, count in zip(room, sizes, strict=True)
    ]
    found = chosen_offer(offers, room, [waits(count, kind) for kind, count in queue])
    assert found is None or (found in offers and found.gpus <= room[found.gpu_type])
    fits = any(offer.gpus <= room[offer.gpu_type] for offer in offers)
    assert (chosen_offer(offers, room) is not None) == fits


class Asking:
    """A job of a round of the policy, by what an offer or a waiting job says of it."""

    def __init__(self, speeds: dict[str, dict[int, float]], most: int, hours: float) -> None:
        self.speedup_fn = {name: self._rate(by_gpus) for name, by_gpus in speeds.items()}
        self.max_replicas, self.remaining_work = most, 3600 * hours
        self.min_replicas, self.restart_seconds = 1, 0.0

    @staticmethod
    def _rate(by_gpus: dict[int, float]) -> Callable[[Floats, Floats], Floats]:
        return lambda _nodes, gpus: np.array([by_gpus.get(int(count), 0.0) for count in gpus])


@settings(deadline=None, max_examples=examples(40))
@given(
    room=st.fixed_dictionaries({"small": st.integers(1, 9), "large": st.integers(1, 9)}),
    sizes=st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4])),
    queue=st.lists(
        st.tuples(
            st.sampled_from([("small",), ("large",), ("small", "large")]),
            st.integers(1, 12),
            st.sampled_from([0.2, 1.0, 2.0, 30.0]),
        ),
        max_size=5,
    ),
    hours=st.sampled_from([0.5, 2.0, 20.0]),
)
def test_a_choice_is_that_of_the_policy_of_rounds(
    room: dict[str, int],
    sizes: tuple[int, int],
    queue: list[tuple[tuple[str, ...], int, float]],
    hours: float,
) -> None:
    """A round of HAS over the free GPUs, whose jobs are the new one and those that wait."""
    offers = [
        Offer(gpu_type="small", gpus=sizes[0], memory_bytes=40 * GIB, cost=1.2),
        Offer(gpu_type="large", gpus=sizes[1], memory_bytes=80 * GIB, cost=0.96),
    ]
    jobs = {
        f"{number}": Asking(
            {
                name: {size: size / count for size in range(1, count + 1) if name in types}
                for name in room
            },
            count,
            length,
        )
        for number, (types, count, length) in enumerate(queue)
    }
    waste = {"small": 1.2 / 0.96, "large": 2.0}
    speeds = {offer.gpu_type: {offer.gpus: 1 / waste[offer.gpu_type]} for offer in offers}
    jobs["new"] = Asking(speeds, max(sizes), hours)
    nodes = {name: dict.fromkeys(range(count), 1) for name, count in room.items()}
    kind, places = HeterogeneousPolicy(most_nodes=64).optimize(jobs, nodes, {})["new"]
    waiting = [waits(count, *types, hours=length) for types, count, length in queue]
    chosen = chosen_offer(offers, room, waiting, hours=hours)
    if any(offer.gpus <= room[offer.gpu_type] for offer in offers):
        assert (kind, len(places)) == (
            (None, 0) if chosen is None else (chosen.gpu_type, chosen.gpus)
        )


class Flat:
    """A job of one GPU that says how much work it has left."""

    max_replicas = 1
    application = "same"

    def __init__(self, remaining_work: float | None) -> None:
        self.remaining_work = remaining_work
        self.speedup_fn = {"small": lambda _nodes, gpus: gpus}


def test_stated_work_replaces_what_history_tells() -> None:
    """Of two jobs alike the one that says it is short gets the only GPU."""
    jobs = {"long": Flat(1e6), "short": Flat(60.0), "silent": Flat(None)}
    found = HeterogeneousPolicy().optimize(jobs, {"small": {0: 1}}, {})
    assert {name for name, (_kind, nodes) in found.items() if nodes} == {"short"}
