"""Plan partitions on a real Ray cluster on this machine: workers die, the plan does not change."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import ray

from benchmarks.plan_instances import make_instance
from data.errors import SettingsError
from forecasting.ray_pool import LOCAL
from forecasting.ray_workforce import RayWorkforce, shared_out
from planner.partitions.solve_parts import solve_parts
from planner.solver.solved_plan import Effort, SolvedPlan

EFFORT = Effort(price_steps=20, dive_chunks=2, moves=500, label_room=8)


def on_a_cluster(work: Callable[[RayWorkforce], Any]) -> Any:
    """Work on a cluster of this machine, whose start Ray gives up after 30 s on a busy one."""
    for _attempt in range(4):
        try:
            return work(RayWorkforce(LOCAL))
        except SettingsError:
            ray.shutdown()
    raise AssertionError("no Ray cluster started in four attempts")


class Murderous:
    """Workers of which one is killed before each of some rounds."""

    def __init__(self, places: Any, rounds: Sequence[int]) -> None:
        self._places, self._rounds = places, set(rounds)
        self.at_once = places.at_once
        self._count, self.killed = 0, []

    def each(self, function: Callable[[Any, Any], Any], arguments: Sequence[Any]) -> list[Any]:
        """Kill, then ask."""
        self._count += 1
        if self._count in self._rounds:
            # A function of this test module would be looked for by name on the workers.
            places = self._places.each(lambda _thing, _argument: os.getpid(), arguments)
            victim = places[self._count % len(arguments)]
            assert victim != os.getpid()
            os.kill(victim, signal.SIGKILL)
            self.killed.append(victim)
        return self._places.each(function, arguments)


class MurderousWorkforce:
    """A Ray workforce whose workers are killed in rounds 3 and 9."""

    def __init__(self, workforce: RayWorkforce) -> None:
        self._workforce = workforce
        self.killed: list[int] = []

    @contextmanager
    def opened(self, make: Any, items: Any, weights: Any) -> Iterator[Murderous]:
        """Open on Ray."""
        with self._workforce.opened(make, items, weights) as places:
            murderous = Murderous(places, (3, 9))
            yield murderous
            self.killed = murderous.killed


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what Ray itself warns of
def test_killed_workers_change_nothing_of_a_plan() -> None:
    """Two workers are killed in mid-run: paths, cost, bound and prices are the local run's."""
    problem = make_instance(60, 24, seed=5).problem
    here = solve_parts(problem, problem.jobs.tenant, budget_seconds=np.inf, effort=EFFORT)

    def through_murders(workforce: RayWorkforce) -> tuple[SolvedPlan, list[int]]:
        murderous = MurderousWorkforce(workforce)
        plan = solve_parts(
            problem, problem.jobs.tenant, budget_seconds=np.inf, effort=EFFORT, workforce=murderous
        )
        return plan, murderous.killed

    there, killed = on_a_cluster(through_murders)
    assert len(killed) == 2
    assert np.array_equal(there.paths, here.paths)
    assert (there.cost, there.lower_bound) == (here.cost, here.lower_bound)
    assert np.array_equal(there.prices.rows, here.prices.rows)
    assert np.array_equal(there.prices.work, here.prices.work)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what Ray itself warns of
def test_what_ray_gives_up_is_answered_here() -> None:
    """A thing that no worker can answer for is opened and answered by the caller."""
    home = os.getpid()

    def opened(item: int) -> int:
        return 10 * item

    def answer(thing: int, argument: int) -> int:
        if os.getpid() != home and thing == 20:
            raise MemoryError("too little of it on this worker")
        return thing + argument

    def asked_twice(workforce: RayWorkforce) -> tuple[list[int], list[int]]:
        with workforce.opened(opened, [1, 2, 3], [1.0, 1.0, 1.0]) as places:
            return places.each(answer, [1, 2, 3]), places.each(answer, [4, 5, 6])

    assert on_a_cluster(asked_twice) == ([11, 22, 33], [14, 25, 36])


def test_things_are_shared_out_by_weight() -> None:
    """The heaviest goes to who has least; never more workers than things."""
    assert shared_out([5, 1, 1, 3], 2) == [[0], [1, 2, 3]]
    assert shared_out([1, 1], 16) == [[0], [1]]
    assert shared_out([2, 2, 2], 1) == [[0, 1, 2]]


def test_without_ray_the_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names setting, value and extra."""
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with (
        pytest.raises(SettingsError, match=r"ray\.address is 'auto', but Ray is not installed"),
        RayWorkforce("auto").opened(int, [1], [1.0]),
    ):
        pass
