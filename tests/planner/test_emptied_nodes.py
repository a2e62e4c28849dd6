"""An emptied node saves what it would have drawn while it is off, less the moves."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from fleet_cases import KUBERNETES, gpu, node_of, pods_job
from planning_cases import AS_OF, H100, case

from data.facts.jobs import Job
from data.records.actions import Action
from data.records.plans import NodePlan
from data.records.recommendations import Recommendation
from data.settings.all_settings import PlanningSettings
from data.settings.fleet import NodeSettings
from planner.advise import advise
from planner.plan import build_plan
from planner.problem.planning_problem import FleetRules
from planner.problem.slot_mapping import move_cost

H100_FREE_WATTS = 0.3 * 60 + 0.4 * 75 + 0.3 * 120
PUE, KWH_PRICE, H100_PRICE = 1.54, 0.2, 2.5
BUSY = 0.8
MOVE_SECONDS = {"deployment": (15, 62, 250), "job": (20, 392, 2170)}
"""A start elsewhere, of a service and of a job with its checkpoint and what is done again."""


def advice_on_b(
    *jobs: Job,
    activity: float = BUSY,
    memory_mib: float = 60_000.0,
    size: int = 8,
    slot_minutes: int = 60,
    hours: int = 24,
    from_hour: int = 0,
    off_hours: int | None = None,
    boot_minutes: float = 10.0,
    **free: float,
) -> Recommendation | None:
    """The advice on node `b`, which a plan empties; the first job is on `a`, another on `b`."""
    homes = dict(zip("ab", jobs, strict=False))
    slots = hours * 60 // slot_minutes
    problem = case(
        *((job, activity, memory_mib, 600.0 * job.gpu_count) for job in jobs),
        gpus=[
            gpu(name, index, H100, job.job_id if job and index < job.gpu_count else "")
            for name in "ab"
            for job in (homes.get(name),)
            for index in range(size)
        ],
        rules=FleetRules(nodes=NodeSettings(boot_minutes=boot_minutes)),
        nodes=[node_of(name, H100, gpus=size, source=KUBERNETES, **free) for name in "ab"],
        planning=PlanningSettings(
            slot_minutes=slot_minutes, horizon_slots=slots, power_cap_ratios=""
        ),
    )
    off = range(from_hour * 60, (hours if off_hours is None else from_hour + off_hours) * 60)
    nodes = tuple(
        NodePlan(
            node=name,
            gpu_model=H100,
            gpus=size,
            on=tuple(name == "a" or slot * slot_minutes not in off for slot in range(slots)),
        )
        for name in "ab"
    )
    plan = build_plan(problem, budget_seconds=30, created_at=AS_OF)
    found = advise(replace(plan, nodes=nodes), problem).recommendations
    return next((entry for entry in found if entry.action is Action.CONSOLIDATE), None)


def empty_kwh(size: int, hours: float) -> float:
    """What a node with free boards draws at the site."""
    return size * (H100_FREE_WATTS + 125) / 1000 * hours * PUE


@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("slot_minutes", [5, 15, 30, 60])
@pytest.mark.parametrize(
    ("off_hours", "boot_minutes", "saved_hours"),
    [(None, 10, 6), (4, 10, 4 - 1 / 6), (4, 0, 4), (4, 90, 2.5)],
)
def test_a_node_that_is_back_by_its_hour_draws_its_power_while_it_boots(
    size: int, slot_minutes: int, off_hours: int | None, boot_minutes: float, saved_hours: float
) -> None:
    """It is off from the first slot: for good, or so that it works again when it is needed."""
    one = advice_on_b(
        pods_job("w1", gpu_count=2),
        size=size,
        slot_minutes=slot_minutes,
        hours=6,
        off_hours=off_hours,
        boot_minutes=boot_minutes,
    )
    assert one is not None
    assert one.savings.energy_kwh is not None
    assert one.savings.cost is not None
    assert one.savings.energy_kwh.central == pytest.approx(empty_kwh(size, saved_hours))
    assert one.savings.cost.central == pytest.approx(KWH_PRICE * empty_kwh(size, saved_hours))
    assert one.savings.gpu_hours is None


@pytest.mark.parametrize("kind", ["deployment", "job"])
@pytest.mark.parametrize("slot_minutes", [15, 60])
def test_what_moves_off_a_node_takes_is_taken_off_what_the_node_saves(
    kind: str, slot_minutes: int
) -> None:
    """Its jobs are kept as they are: they start again on other nodes, and hold boards meanwhile."""
    low, middle, high = (seconds / 3600 for seconds in MOVE_SECONDS[kind])
    jobs = [pods_job(name, kind, gpu_count=4) for name in ("w1", "w2")]
    one = advice_on_b(*jobs, slot_minutes=slot_minutes)
    assert one is not None
    saved, hours = one.savings, 0.3 * low + 0.4 * middle + 0.3 * high
    assert saved.gpu_hours is not None
    assert saved.energy_kwh is not None
    assert saved.cost is not None
    assert saved.gpu_hours.central == pytest.approx(-4 * hours)
    assert saved.gpu_hours.low == pytest.approx(-4 * high, rel=0.01)
    assert saved.gpu_hours.high == pytest.approx(-4 * low, rel=0.03)
    kwh = empty_kwh(8, 24) - 4 * (0.6 - 0.075) * hours * PUE
    assert saved.energy_kwh.central == pytest.approx(kwh)
    assert saved.cost.central == pytest.approx(KWH_PRICE * kwh - 4 * H100_PRICE * hours)
    assert ("starts again elsewhere", jobs[1].job_id) in one.evidence.factors


@pytest.mark.parametrize("kind", ["deployment", "job"])
@pytest.mark.parametrize("boards", [1, 3, 8])
@pytest.mark.parametrize("slot_minutes", [15, 60])
def test_a_plan_counts_for_a_move_what_a_promise_takes_off_for_it(
    kind: str, boards: int, slot_minutes: int
) -> None:
    """Both count the mean seconds of a start elsewhere: rent, and power beyond idle."""
    job = pods_job("w1", kind, gpu_count=boards)
    problem = case(
        (job, BUSY, 60_000.0, 600.0 * boards),
        gpus=[gpu("a", index, H100, job.job_id) for index in range(boards)],
        nodes=[node_of("a", H100, gpus=8, source=KUBERNETES)],
        planning=PlanningSettings(slot_minutes=slot_minutes, horizon_slots=4),
    )
    hours = np.dot([0.3, 0.4, 0.3], MOVE_SECONDS[kind]) / 3600
    taken = boards * (H100_PRICE + KWH_PRICE * PUE * (0.6 - 0.075)) * hours
    assert move_cost(problem, problem.jobs[0]) == pytest.approx(taken)


def test_a_job_that_its_own_change_starts_again_moves_with_it() -> None:
    """Fewer boards are recommended to both: that counts the start, wherever it is."""
    jobs = [pods_job(name, gpu_count=4) for name in ("w1", "w2")]
    one = advice_on_b(*jobs, activity=0.2, memory_mib=5_000.0)
    assert one is not None
    assert one.savings.gpu_hours is None


def test_no_node_is_emptied_at_a_loss() -> None:
    """Of two hours off the moves of a job that works again from a checkpoint cost more."""
    jobs = [pods_job(name, "job", gpu_count=4) for name in ("w1", "w2")]
    assert advice_on_b(*jobs, hours=2) is None
    assert advice_on_b(jobs[0], hours=2) is not None


def test_a_move_counts_as_far_as_its_job_is_likely_to_be_there() -> None:
    """Half of such jobs reach their deadline in twelve hours, and half of the others six."""
    deadline = ("deadline_at", (AS_OF + timedelta(hours=12)).isoformat())
    jobs = [pods_job(name, "job", gpu_count=4, extra=(deadline,)) for name in ("w1", "w2")]
    one = advice_on_b(*jobs, from_hour=6)
    assert one is not None
    assert one.savings.gpu_hours is not None
    hours = np.dot([0.3, 0.4, 0.3], MOVE_SECONDS["job"]) / 3600
    assert one.savings.gpu_hours.central == pytest.approx(-4 * hours * 0.75, rel=0.08)


@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("slot_minutes", [5, 15, 30, 60])
@pytest.mark.parametrize(
    ("cpus", "gib", "fits"), [(16.0, 64, True), (15.9, 64, False), (16.0, 63, False)]
)
def test_no_node_is_emptied_whose_jobs_find_boards_without_cpus_or_memory(
    size: int, slot_minutes: int, cpus: float, gib: int, fits: bool
) -> None:
    """Two pods, each of a GPU, 8 CPUs and 32 GiB, would leave for what the other node has left."""
    extra = (("cpus", "16"), ("memory_mib", str(64 * 1024)))
    jobs = [pods_job(name, gpu_count=2, extra=extra) for name in ("w1", "w2")]
    left = {"free_cpus": cpus, "free_memory_mib": gib * 1024.0}
    found = advice_on_b(*jobs, size=size, slot_minutes=slot_minutes, **left)
    assert (found is not None) == fits
