"""Plan partitions on a real Ray cluster on this machine: parts of it die, answers do not change."""

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from beds.ray_cluster import Fate, added, on_a_cluster, place, tenfold

from benchmarks.plan_instances import make_instance
from data.base.errors import SettingsError
from forecasting.distributed.ray_workers import RayWorkforce, balanced_shares
from planner.partitions.solve_parts import solve_parts
from planner.solver.solved_plan import Effort, SolvedPlan

EFFORT = Effort(price_steps=20, dive_chunks=2, moves=500, label_room=8)


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
            places = self._places.each(place, arguments)
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
def test_killed_workers_change_nothing_of_a_plan() -> None:
    """Two workers are killed in mid-run: paths, cost, bound and prices are the local run's."""
    problem = make_instance(60, 24, seed=5).problem
    here = solve_parts(problem, problem.jobs.tenant, budget_seconds=np.inf, effort=EFFORT)

    def through_murders(address: str) -> tuple[SolvedPlan, list[int]]:
        murderous = MurderousWorkforce(RayWorkforce(address))
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


@contextmanager
def collecting_garbage() -> Iterator[None]:
    """Free objects in another thread, which Ray answered by ending the process."""
    done = threading.Event()

    def collect() -> None:
        while not done.wait(0.005):
            gc.collect()

    thread = threading.Thread(target=collect)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["worker", "raylet", "gcs_server", "driver"])
def test_whatever_dies_of_a_cluster_the_answers_come(
    victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker at every try, its machine's Ray, the head, the driver: answered by the caller."""
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "5")  # a minute by default
    home = os.getpid()
    fates = [Fate(home=home, add=1), Fate(home=home, add=2, victim=victim), Fate(home=home, add=3)]
    later = [Fate(home=home, add=add) for add in (4, 5, 6)]

    def asked_thrice(address: str) -> list[list[int]]:
        with RayWorkforce(address).opened(tenfold, [1, 2, 3], [1.0, 1.0, 1.0]) as places:
            assert home not in places.each(place, later)
            return [places.each(added, each) for each in (later, fates, later)]

    with collecting_garbage():
        answers = on_a_cluster(asked_thrice)
    assert answers == [[14, 25, 36], [11, 22, 33], [14, 25, 36]]
    assert "ray" not in sys.modules


def test_things_are_shared_out_by_weight() -> None:
    """The heaviest goes to who has least; never more workers than things."""
    assert balanced_shares([5, 1, 1, 3], 2) == [[0], [1, 2, 3]]
    assert balanced_shares([1, 1], 16) == [[0], [1]]
    assert balanced_shares([2, 2, 2], 1) == [[0, 1, 2]]


def test_without_ray_the_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names setting, value and extra."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(
            SettingsError,
            match=r"ray\.address is 'auto', and a library for it is not installed: ray",
        ),
        RayWorkforce("auto").opened(int, [1], [1.0]),
    ):
        pass
