"""The policy through the interface of Sia's simulator, by a small stand-in of it."""

from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.simulation.rounds.goodput import GoodputModel
from benchmarks.simulation.rounds.policy import HeterogeneousPolicy
from benchmarks.simulation.sia_policy import SiaPolicy

Perf = namedtuple("Perf", "alpha_c beta_c alpha_n beta_n alpha_r beta_r gamma")
Grad = namedtuple("Grad", "sqr var")
NODES = {
    "t4": {index: SimpleNamespace(resources={"nvidia.com/gpu": 4}) for index in range(6)},
    "a100": {index: SimpleNamespace(resources={"nvidia.com/gpu": 8}) for index in range(2)},
}


class GoodputFunction:
    """The fields of the simulator's goodput function."""

    def __init__(self, slow: float) -> None:
        self._perf_params = Perf(0.05 * slow, 0.002 * slow, 0.2, 0.01, 0.03, 0.002, 1.5)
        self._grad_params = Grad(1.0, 6.0)
        self._init_batch_size = 128


class SpeedUp:
    """The fields of its speed-up function; calling it is an error, for it is not needed."""

    def __init__(self, slow: float) -> None:
        self._goodput_fn = GoodputFunction(slow)
        self._max_batch_size = 2048
        self._atomic_bsz_range = (32, 1024)
        self._accumulation = True
        self.tune_bsz = True


def job_info(*, seen: int = 4, age: float = 600.0, **changes: Any) -> SimpleNamespace:
    """A job as the simulator describes it, profiled on both types."""
    values: dict[str, Any] = {
        "speedup_fn": {"t4": SpeedUp(4.0), "a100": SpeedUp(1.0)},
        "min_replicas": {"t4": 0, "a100": 0},
        "max_replicas": {"t4": 2 * seen, "a100": 2 * seen},
        "attained_service": 100.0,
        "used_gpu_seconds": 80.0,
        "num_restarts": 1,
        "age": age,
        "scaling_underway": False,
        "category": None,
        "cluster_throughput_ratios": {"t4": {"a100": 0.25}, "a100": {"t4": 4.0}},
        "scale_unit": {"t4": 1, "a100": 1},
    }
    return SimpleNamespace(**(values | changes))


def used(given: dict[str, Any]) -> dict[tuple[str, int], int]:
    """GPUs taken of every node."""
    count: dict[tuple[str, int], int] = {}
    for gpu_type, nodes in given.values():
        for node in nodes:
            count[gpu_type, node] = count.get((gpu_type, node), 0) + 1
    return count


@pytest.mark.parametrize("jobs", [1, 5, 40])
def test_no_node_is_over_its_gpus_and_limits_hold(jobs: int) -> None:
    """Every round of a queue: allocations are whole, inside nodes and at most max_replicas."""
    policy, held = HeterogeneousPolicy(), {}
    for turn in range(4):
        infos = {f"cifar10-{index}": job_info(age=60.0 + 60 * turn) for index in range(jobs)}
        held = policy.optimize(infos, NODES, held)
        assert set(held) == set(infos)
        for gpu_type, nodes in held.values():
            assert len(nodes) <= 8
            assert (gpu_type is None) == (not nodes)
        for (gpu_type, _), count in used(held).items():
            assert count <= (4 if gpu_type == "t4" else 8)


def test_the_same_calls_give_the_same_answers() -> None:
    """Two policies, the same rounds."""
    answers = []
    for _ in range(2):
        policy, held = HeterogeneousPolicy(), {}
        for turn in range(5):
            infos = {f"bert-{index}": job_info(age=60.0 * turn + index) for index in range(12)}
            held = policy.optimize(infos, NODES, held)
        answers.append(held)
    assert answers[0] == answers[1]


def test_a_restarting_job_keeps_what_it_holds() -> None:
    """scaling_underway is a hard rule, whatever else would pay."""
    held = {"bert-1": ("t4", (5,))}
    given = HeterogeneousPolicy().optimize({"bert-1": job_info(scaling_underway=True)}, NODES, held)
    assert given["bert-1"] == ("t4", (5,))


def test_a_job_without_a_profile_starts_on_one_gpu() -> None:
    """No speed-up function on any type: the smallest configuration, at once."""
    new = job_info(seen=0, speedup_fn={"t4": None, "a100": None})
    gpu_type, nodes = HeterogeneousPolicy().optimize({"new-1": new}, NODES, {})["new-1"]
    assert gpu_type is not None
    assert len(nodes) == 1


def test_missing_attributes_have_defaults() -> None:
    """A bare object with a speed-up function alone is scheduled."""
    bare = SimpleNamespace(speedup_fn={"a100": SpeedUp(1.0)})
    assert HeterogeneousPolicy().optimize({"x": bare}, NODES, {})["x"][0] is not None
    assert HeterogeneousPolicy().optimize({"x": SimpleNamespace()}, NODES, {})["x"][1] != ()


def test_a_function_that_can_only_be_called_is_called() -> None:
    """A plain speed-up function of nodes and GPUs is enough."""

    def square_root(nodes: Any, gpus: Any) -> Any:
        return np.sqrt(gpus) / nodes

    info = job_info(speedup_fn={"a100": square_root, "t4": None})
    gpu_type, nodes = HeterogeneousPolicy().optimize({"x-1": info}, NODES, {})["x-1"]
    assert gpu_type == "a100"
    assert len(nodes) == 8


def test_memory_keeps_a_job_off_gpus_that_are_too_small() -> None:
    """A need of 20 GiB with one GPU and 10 with two, on cards of 15 and 39 GiB."""
    info = job_info(
        seen=1,
        memory_gib={1: 20.0, 2: 12.0},
        gpu_memory_gib={"t4": 15.0, "a100": 39.0},
    )
    crowd = {f"busy-{index}": job_info(seen=8) for index in range(3)}
    given = HeterogeneousPolicy().optimize(crowd | {"big-1": info}, NODES, {})["big-1"]
    assert given[0] == "a100" or len(given[1]) == 2
    alone = job_info(memory_gib={1: 50.0}, gpu_memory_gib={"t4": 15.0, "a100": 39.0})
    assert HeterogeneousPolicy().optimize({"no-1": alone}, NODES, {})["no-1"] == (None, ())


def test_a_configuration_that_ran_out_of_memory_is_not_tried_again() -> None:
    """Both types failed at one GPU: two it is."""
    failed = job_info(
        seen=1, failed_on={("t4", 1), ("a100", 1)}, speedup_fn={"t4": None, "a100": None}
    )
    assert len(HeterogeneousPolicy().optimize({"x-1": failed}, NODES, {})["x-1"][1]) == 2


def test_an_idle_cluster_gives_a_scalable_job_many_gpus() -> None:
    """Alone, with models on both types: the fastest it may take."""
    given = HeterogeneousPolicy().optimize({"cifar10-1": job_info(seen=8)}, NODES, {})
    assert given["cifar10-1"][0] == "a100"
    assert len(given["cifar10-1"][1]) >= 8


@pytest.mark.parametrize("policy", [HeterogeneousPolicy(), SiaPolicy(shares_speed=True)])
@pytest.mark.parametrize(
    ("name", "most", "category", "grows"),
    [
        ("cifar10-2", {"t4": 1, "a100": 1}, None, True),
        ("cifar10-2", 1, None, False),
        ("cifar10-2", {"t4": 1, "a100": 1}, "rigid", False),
        ("bert-2", {"t4": 1, "a100": 1}, None, False),
    ],
)
def test_a_job_is_as_large_as_its_siblings_where_its_user_set_no_limit(
    policy: Any, name: str, most: Any, category: str | None, *, grows: bool
) -> None:
    """One sibling has run on 8 GPUs: the next job starts as large, without a profile of its own."""
    for turn in range(2):
        policy.optimize({"cifar10-1": job_info(seen=8, age=60.0 * turn)}, NODES, {})
    new = job_info(max_replicas=most, category=category)
    gpus = len(policy.optimize({name: new}, NODES, {})[name][1])
    assert gpus >= 8 if grows else gpus == 1


def test_a_new_job_has_the_speed_of_its_siblings_at_once() -> None:
    """No speed-up function of its own, but a sibling runs: more than one GPU."""
    policy, held = HeterogeneousPolicy(), {"cifar10-1": ("a100", (0,) * 8)}
    policy.optimize({"cifar10-1": job_info(seen=8)}, NODES, held)
    new = job_info(
        speedup_fn={"t4": None, "a100": None}, max_replicas={"t4": 1, "a100": 1}, age=0.0
    )
    assert len(policy.optimize({"cifar10-2": new}, NODES, {})["cifar10-2"][1]) >= 8


def test_a_stated_model_is_taken_as_it_is() -> None:
    """`.model` needs none of the simulator's private fields."""
    stated = GoodputModel(
        step=(0.05, 0.002, 0.2, 0.01, 0.03, 0.002, 1.5),
        noise=(1.0, 6.0),
        initial_batch=128,
        largest_batch=4096,
        least_local_batch=32,
        largest_local_batch=1024,
    )
    info = job_info(speedup_fn={"a100": SimpleNamespace(model=stated), "t4": None})
    assert HeterogeneousPolicy().optimize({"x-1": info}, NODES, {})["x-1"][0] == "a100"


def test_no_jobs_no_answer() -> None:
    """An empty queue is no error."""
    assert HeterogeneousPolicy().optimize({}, NODES, {}) == {}
