"""Memory that will run out becomes a recommendation; freed memory makes room for a slice."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from factories import make_job
from planning_cases import A100, AS_OF, H100, L40S, boards, case

from data.facts.jobs import Job, Platform, WorkloadKind
from data.records.actions import FOR_MEMORY, Action, Risk
from data.records.memory import MemoryAdvice, MemoryFinding, MemoryOutlook, MemoryRemedy
from data.records.recommendations import Recommendation
from data.settings.all_settings import PlanningSettings
from data.settings.fleet import Pin
from planner.advise import Advice, advise
from planner.plan import build_plan
from planner.problem.planning_problem import PlanningProblem

MI300X = "MI300X-192GB"
SHORT = PlanningSettings(slot_minutes=60, horizon_slots=4)
IN_PROGRAM = (
    MemoryAdvice(remedy=MemoryRemedy.RECOMPUTE, text="recompute activations"),
    MemoryAdvice(remedy=MemoryRemedy.SMALLER_MICRO_BATCH, text="a smaller micro-batch"),
)


def training(job_id: str = "ml/job/train", **changes: Any) -> Job:
    """A training job that can be suspended, on one L40S."""
    values: dict[str, Any] = {
        "kind": WorkloadKind.TRAINING,
        "gpu_model": L40S,
        "gpu_memory_mib": 49_152.0,
    }
    return make_job(job_id, **(values | changes))


def runs_out(job: Job, *, needed_mib: float = 60_000.0, **changes: Any) -> MemoryFinding:
    """The memory of a job passes its device in two hours."""
    values: dict[str, Any] = {
        "job_id": job.job_id,
        "outlook": MemoryOutlook.RUNS_OUT,
        "gpu_model": job.gpu_model,
        "limit_mib": job.gpu_memory_mib,
        "now_mib": 40_000.0,
        "largest_mib": 40_000.0,
        "peak_q50_mib": needed_mib - 1000,
        "peak_q95_mib": needed_mib,
        "horizon_hours": 4.0,
        "probability": 0.9,
        "at": AS_OF + timedelta(hours=2),
        "room_mib": 0.0,
        "why": "GPU memory runs out within 4 h with a chance of at least 90 %",
        "advice": IN_PROGRAM,
        "evidence": ("48 slots with memory, forecast by mix",),
    }
    return MemoryFinding(**(values | changes))


def problem_of(job: Job, *more: Any, planning: PlanningSettings = SHORT) -> PlanningProblem:
    """One busy job, and these boards beside its own."""
    own = boards(job.gpu_model, job.gpu_count)
    others = [board for model, count in more for board in boards(model, count)]
    return case((job, 0.9, 40_000.0, 250.0), gpus=[*own, *others], planning=planning)


def advised(problem: PlanningProblem, memory: Sequence[MemoryFinding]) -> Advice:
    """The advice of a plan of the problem."""
    plan = build_plan(problem, budget_seconds=10, created_at=AS_OF)
    return advise(plan, problem, memory=memory)


def only(problem: PlanningProblem, memory: Sequence[MemoryFinding]) -> Recommendation:
    """The one recommendation about memory."""
    (found,) = (
        recommendation
        for recommendation in advised(problem, memory).recommendations
        if recommendation.action in FOR_MEMORY
    )
    return found


def test_the_cheapest_device_that_holds_it_is_proposed() -> None:
    """Of two models with 80 GB the cheaper; its rent and the hours of the move are a loss."""
    job = training()
    found = only(problem_of(job, (H100, 1), (A100, 1)), [runs_out(job)])
    assert (found.action, found.proposed.gpu_model) == (Action.LARGER_GPU, A100)
    assert found.savings.cost is not None
    assert found.savings.gpu_hours is not None
    assert found.savings.cost.central < 0
    assert found.savings.gpu_hours.central < 0
    assert (found.risk, found.transition is not None) == (Risk.MEDIUM, True)


@pytest.mark.parametrize(
    ("own", "free", "larger"),
    [(H100, MI300X, False), (H100, "H200-SXM-141GB", True), (MI300X, "MI325X-256GB", True),
     (MI300X, "B300-SXM-270GB", False)],
)  # fmt: skip
def test_a_larger_device_is_of_the_same_vendor(own: str, free: str, larger: bool) -> None:
    """A program for the boards of one does not run on those of another."""
    memory = {H100: 81_559.0, MI300X: 196_592.0}[own]
    job = training(gpu_model=own, gpu_memory_mib=memory)
    found = only(problem_of(job, (free, 2)), [runs_out(job, needed_mib=1.01 * memory)])
    assert (found.action is Action.LARGER_GPU) is larger


def test_it_says_when_with_which_chance_and_expires_before() -> None:
    """Limit, forecast, chance and time are evidence; after the time it is of no use."""
    job = training()
    found = only(problem_of(job, (H100, 1)), [runs_out(job)])
    factors = dict(found.evidence.factors)
    assert factors["chance to run out"] == "at least 90 %, first likely at 2026-01-05 14:00 UTC"
    assert "48.0 on the device" in factors["memory per device"]
    assert "58.6 with 95 %" in factors["memory forecast"]
    assert "not counted" in factors["an avoided out-of-memory"]
    assert found.expires_at == AS_OF + timedelta(hours=2)
    assert found.confidence.startswith("strong")
    limit = float(dict(found.details)["memory_limit_mib"])
    assert limit == pytest.approx(0.985 * 81_920, rel=0.01)


def test_without_a_free_larger_device_it_is_spread() -> None:
    """More of the same, as many as hold it if shared out evenly, and that is said to be unsure."""
    job = training()
    found = only(problem_of(job, (L40S, 3)), [runs_out(job)])
    assert (found.action, found.proposed.gpu_count) == (Action.SPREAD, 2)
    assert found.confidence.startswith("weak")
    hours, change = found.savings.gpu_hours, found.transition
    assert hours is not None
    assert change is not None
    assert hours.central < -4
    # Its range is that of the seconds that the change takes; both boards are held for most of it.
    width = (change.seconds.high - change.seconds.low) / 3600
    assert width < hours.high - hours.low < 2 * width + 0.01


def test_what_trimtab_sent_is_not_spread_from_outside() -> None:
    """A recipe says that the command names its GPUs: more of them would stand idle."""
    job = training()
    recipe = MemoryAdvice(remedy=MemoryRemedy.SPREAD, text="over 2 GPUs", expected_mib=30_000.0)
    found = only(problem_of(job, (L40S, 3)), [runs_out(job, advice=(recipe, *IN_PROGRAM))])
    assert found.action is Action.LESS_MEMORY


def test_a_slice_grows_to_a_larger_slice() -> None:
    """A job on a slice gets the smallest slice of its board that suffices."""
    job = training(gpu_model=H100, mig_profile="1g.10gb", gpu_memory_mib=9_984.0)
    problem = case((job, 0.9, 9_000.0, 90.0), gpus=boards(H100, 2, cut=True), planning=SHORT)
    found = only(problem, [runs_out(job, needed_mib=15_000.0)])
    assert (found.action, found.proposed.mig_profile) == (Action.LARGER_GPU, "2g.20gb")


@pytest.mark.parametrize(
    ("job", "changes", "reason"),
    [
        (training("ml/pod-7"), {}, "cannot be restarted"),
        (training(), {"protected_jobs": "ml/*"}, "protected"),
        (training(platform=Platform.UNKNOWN), {}, "platform is unknown"),
        (
            training(),
            {"pins": (Pin(job="ml/*", gpu_model=L40S, gpu_count=1),)},
            "planning.pins",
        ),
    ],
)
def test_what_cannot_be_changed_gets_advice_alone(
    job: Job, changes: dict[str, Any], reason: str
) -> None:
    """The remedies of its own program, with nothing to apply and nothing claimed."""
    planning = replace(SHORT, **changes)
    found = only(problem_of(job, (H100, 2), planning=planning), [runs_out(job)])
    assert found.action is Action.LESS_MEMORY
    assert found.now == found.proposed
    assert reason in found.why
    assert found.summary == "in its own program: recompute activations, or a smaller micro-batch"
    assert (found.savings.cost, found.savings.gpu_hours) == (None, None)


def test_the_likeliest_gets_the_last_large_board() -> None:
    """Two jobs, one H100: the likelier takes it, the other spreads over what that frees.

    The node of these boards is not powered down, whatever the plan thought.
    """
    first, second = training("ml/job/a"), training("ml/job/b")
    problem = case(
        *((job, 0.9, 40_000.0, 250.0) for job in (first, second)),
        gpus=[*boards(L40S, 2), *boards(H100, 1)],
        planning=SHORT,
    )
    found = advised(problem, [runs_out(second), runs_out(first, probability=0.2)])
    actions = {
        recommendation.job_id: recommendation.action for recommendation in found.recommendations
    }
    assert actions == {"ml/job/b": Action.LARGER_GPU, "ml/job/a": Action.SPREAD}


def test_memory_takes_the_place_of_what_the_plan_would_save() -> None:
    """A job that runs out is not made smaller, and its loss is no part of the plan's saving."""
    job = training(gpu_model=H100, gpu_count=4, gpu_memory_mib=81_559.0)
    idle = case((job, 0.1, 20_000.0, 800.0), gpus=boards(H100, 8), planning=SHORT)
    before = advised(idle, ())
    assert [recommendation.action for recommendation in before.recommendations] == [
        Action.FEWER_GPUS
    ]
    found = advised(idle, [runs_out(job, needed_mib=90_000.0)])
    assert [recommendation.action for recommendation in found.recommendations] == [Action.SPREAD]
    part = found.portfolio
    assert part.recommended == 0
    assert part.for_memory < 0
    rest = part.not_recommended + part.timing + part.service + part.shared
    assert part.recommended + rest == pytest.approx(before.portfolio.total)
    assert found.kept == {}


def freed(problem_changes: dict[str, Any]) -> Advice:
    """A quiet job that once took 60 GB and stays at 8 GB."""
    job = training(gpu_model=H100, gpu_memory_mib=81_559.0)
    problem = case((job, 0.1, 60_000.0, 150.0), gpus=boards(H100, 2, cut=True), **problem_changes)
    return advised(problem, ())


def test_freed_memory_opens_a_slice() -> None:
    """While the largest reading counts no slice fits; once the phase is over one is proposed."""
    held = {"held_memory_mib": {"ml/job/train": 8_000.0}, "planning": SHORT}
    assert all(
        recommendation.action is not Action.MIG_SLICE
        for recommendation in freed({"planning": SHORT}).recommendations
    )
    (found,) = freed(held).recommendations
    assert found.action is Action.MIG_SLICE
    assert dict(found.evidence.factors)["memory"] == (
        "the phase that took 58.6 GiB is over: at most 7.8 with 95 %"
    )
