"""Advice on nodes and on boards that will be short."""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from drawn import examples
from factories import make_job
from fleet_cases import KUBERNETES, gpu, node_of, pods_job, slurm_job
from hypothesis import example, given, settings
from hypothesis import strategies as st
from planning_cases import A100, AS_OF, H100, L40S, advised, boards, case

from data.facts.jobs import JobState, Platform
from data.records.actions import Action
from data.records.forecasts import GroupForecast, GroupKind, QuantilePath, Quantity
from data.records.plans import NodePlan
from data.settings.all_settings import PlanningSettings
from planner.problem.planning_problem import FleetRules
from planner.proposals.fleet_advice import missing_boards


def group(model: str, levels: Sequence[float]) -> GroupForecast:
    """The forecast of boards held, without spread, from the slot after AS_OF on."""
    row = tuple(levels)
    path = QuantilePath(
        quantity=Quantity.ALLOCATED_GPUS, model="mix", q10=row, q50=row, q90=row, backtest=None
    )
    return GroupForecast(
        kind=GroupKind.GPU_MODEL,
        name=model,
        slot_starts=tuple(AS_OF + timedelta(hours=1 + step) for step in range(len(row))),
        paths=(path,),
        known_slots=1000,
    )


def test_boards_that_will_be_short_are_announced_with_their_hour() -> None:
    """Eleven of eight H100 in the evening, and one that a service gets; the A100 are enough."""
    problem = case((make_job(), 0.97, 60_000.0, 690.0), gpus=[*boards(H100, 8), *boards(A100, 8)])
    levels = [7.0] * 6 + [10.5] * 4 + [7.0] * 40
    found = advised(problem, groups=[group(H100, levels), group(A100, [3.0] * 50)])
    one = next(
        recommendation
        for recommendation in found.recommendations
        if recommendation.action is Action.ADD_GPUS
    )
    assert (one.job_id, one.target) == ("", H100)
    assert one.summary == f"4 more {H100} from 2026-01-05 19:00 UTC"
    assert "7 are free now. The recommended changes of jobs take 1 by then." in one.why
    assert one.savings.cost is None


@given(st.integers(1, 4), st.integers(0, 3), st.integers(0, 4), st.floats(1.0, 14.0))
@example(held=4, unread=3, waiting=4, wanted=9.2)
@example(held=4, unread=3, waiting=0, wanted=8.0)
@settings(max_examples=examples(20), deadline=None)
def test_the_forecast_is_compared_with_all_boards_of_the_fleet(
    held: int, unread: int, waiting: int, wanted: float
) -> None:
    """Jobs without readings are in the forecast and on boards; a job that waits is on none."""
    jobs = [slurm_job(1, gpu_count=held)]
    if waiting:
        waits = slurm_job(2, gpu_count=waiting)
        assert waits.scheduler is not None
        facts = replace(waits.scheduler, state=JobState.PENDING)
        jobs.append(replace(waits, scheduler=facts))
    problem = case(
        *((job, 0.97, 60_000.0, None) for job in jobs),
        gpus=boards(H100, 8),
        occupied={("n", H100): unread},
    )
    (*found,) = missing_boards(problem, [group(H100, [wanted] * 24)], ())
    assert bool(found) is (wanted > 8.5)
    for advice in found:
        assert (advice.gpus_now, advice.gpus_then) == (8, math.ceil(wanted))
        assert f"Jobs hold {held + unread} {H100} now" in advice.why
        assert f"the fleet has 8, of which {8 - held - unread} are free now" in advice.why


def test_boards_that_will_be_short_are_announced_once_for_each_model() -> None:
    """By the hour and by the day: the finer forecast of a model says whether, and from when."""
    problem = case((make_job(), 0.97, 60_000.0, 690.0), gpus=boards(H100, 8))
    hourly = group(H100, [7.0] * 6 + [10.5] * 4 + [7.0] * 40)
    starts = tuple(AS_OF + timedelta(days=day) for day in range(30))
    level = tuple([9.5] * 30)
    daily = replace(
        hourly,
        slot_starts=starts,
        paths=(replace(hourly.paths[0], q10=level, q50=level, q90=level),),
    )
    calm = group(H100, [7.0] * 50)
    for groups, at in (((daily, hourly), "19:00"), ((hourly, daily), "19:00"), ((daily, calm), "")):
        found = advised(problem, groups=groups).recommendations
        told = [entry.summary for entry in found if entry.action is Action.ADD_GPUS]
        assert told == ([f"4 more {H100} from 2026-01-05 {at} UTC"] if at else [])


@pytest.mark.parametrize(
    ("minutes_late", "resting", "told"),
    [(0, {}, True), (6 * 60 + 59, {}, True), (7 * 60, {}, False), (0, {H100: "old"}, False)],
)
def test_boards_are_not_asked_for_from_a_time_that_has_passed(
    minutes_late: int, resting: dict[str, str], *, told: bool
) -> None:
    """The readings end at noon and boards are short from 19:00 on; nor while the model rests."""
    problem = case((make_job(), 0.97, 60_000.0, 690.0), gpus=boards(H100, 8))
    short = group(H100, [7.0] * 6 + [10.5] * 4 + [7.0] * 40)
    late = AS_OF + timedelta(minutes=minutes_late)
    found = advised(problem, groups=[short], created_at=late, resting=resting).recommendations
    assert any(entry.action is Action.ADD_GPUS for entry in found) is told


def node(name: str, on: Sequence[bool]) -> NodePlan:
    """Eight L40S."""
    return NodePlan(node=name, gpu_model=L40S, gpus=8, on=tuple(on))


def test_an_emptied_node_saves_its_idle_power_and_only_while_it_is_off() -> None:
    """Ten hours off less ten minutes to boot: idle boards and their server, times the PUE."""
    problem = case(
        (make_job(), 0.97, 60_000.0, 690.0),
        gpus=[*boards(H100, 8), *(gpu(name, i, L40S) for name in "abc" for i in range(8))],
        rules=FleetRules(),
        nodes=[node_of(name, L40S, source="slurm") for name in "abc"],
    )
    nodes = (
        node("a", [True] * 4 + [False] * 10 + [True] * 10),
        node("b", [True] * 24),
        node("c", [True] * 23 + [False]),
    )
    found = advised(problem, nodes=nodes).recommendations
    assert [(entry.action, entry.target) for entry in found if not entry.job_id] == [
        (Action.CONSOLIDATE, "a"),
        (Action.CONSOLIDATE, "c"),
    ]
    one = next(entry for entry in found if entry.target == "a")
    assert (one.details, one.platform) == ((("node", "a"),), Platform.SLURM)
    assert one.starts_at == AS_OF + timedelta(hours=5)
    assert one.ends_at == AS_OF + timedelta(hours=15)
    assert one.change == "power a down from 2026-01-05 17:00 UTC until 2026-01-06 03:00 UTC"
    assert one.savings.energy_kwh is not None
    assert one.savings.energy_kwh.central == pytest.approx(
        8 * (35 + 125) / 1000 * (10 - 1 / 6) * 1.54
    )
    assert one.savings.cost is not None
    assert one.savings.cost.central == pytest.approx(0.2 * one.savings.energy_kwh.central)


@pytest.mark.parametrize(
    ("off", "change"), [(10, "power a down until 2026-01-05 23:00 UTC"), (24, "power a down")]
)
def test_a_node_that_is_empty_already_is_powered_down_at_once(off: int, change: str) -> None:
    """The next plan, which begins later, means the same change."""
    problem = case(
        (make_job(), 0.97, 60_000.0, 690.0),
        gpus=[*boards(H100, 8), *(gpu("a", number, L40S) for number in range(8))],
        rules=FleetRules(),
        nodes=[node_of("a", L40S, source="slurm")],
    )
    found = advised(problem, nodes=(node("a", [False] * off + [True] * (24 - off)),))
    (one,) = (entry for entry in found.recommendations if not entry.job_id)
    assert (one.change, one.starts_at) == (change, None)


@pytest.mark.parametrize(
    ("other", "protected", "advised_nodes"), [(8, "", []), (4, "", ["b"]), (4, "*w2", [])]
)
def test_a_node_is_powered_down_only_on_what_is_recommended(
    other: int, protected: str, advised_nodes: list[str]
) -> None:
    """The plan says that it is empty; its job keeps what it has, and has to fit elsewhere."""
    jobs = [pods_job("w1", gpu_count=other), pods_job("w2", gpu_count=4)]
    problem = case(
        *((job, 0.8, 60_000.0, 600.0 * job.gpu_count) for job in jobs),
        gpus=[
            gpu(name, number, H100, job.job_id if number < job.gpu_count else "")
            for name, job in zip("ab", jobs, strict=True)
            for number in range(8)
        ],
        rules=FleetRules(),
        nodes=[node_of(name, H100, source=KUBERNETES) for name in "ab"],
        planning=PlanningSettings(
            slot_minutes=60, horizon_slots=24, protected_jobs=protected, power_cap_ratios=""
        ),
    )
    off = replace(node("b", [False] * 24), gpu_model=H100)
    on = replace(node("a", [True] * 24), gpu_model=H100)
    found = advised(problem, nodes=(on, off)).recommendations
    assert [entry.target for entry in found if entry.action is Action.CONSOLIDATE] == advised_nodes
