"""Advice on slow work: what it says, what it costs a day, what to try, and when it is silent."""

from dataclasses import replace
from typing import Any

import pytest
from factories import make_job
from planning_cases import AS_OF, H100, boards, case
from training_cases import STATED

from data.facts.jobs import Job
from data.records.actions import ADVICE, Action
from data.records.recommendations import Range
from data.records.slow_work import SlowCause, SlowWork
from data.settings.all_settings import PlanningSettings
from planner.advise import Advice, advise
from planner.plan import build_plan
from planner.problem.planning_problem import PlanningProblem
from planner.slow_work.remedies import SHORT, WORDS, remedy_of

DAY = PlanningSettings(slot_minutes=60, horizon_slots=24)
JOB = "vision/train"


def slow(**changes: Any) -> SlowWork:
    """A job on four boards that is starved of input for half of its time."""
    values: dict[str, Any] = {
        "job_id": JOB, "cause": SlowCause.STARVED, "boards": 4, "known_slots": 72, "votes": 70,
        "firm_votes": 65, "confidence": "medium", "doubt": "CPU work looks the same",
        "signals": (("engine", 0.5),), "remedy": "`--dataloader_num_workers 8`",
        "lost_ratio": Range(low=0.25, central=0.375, high=0.5, unit="share"),
    }  # fmt: skip
    return SlowWork(**(values | changes))


def job(**changes: Any) -> Job:
    """A training job on four H100."""
    return make_job(JOB, **({"gpu_model": H100, "gpu_count": 4} | changes))


def problem_of(planning: PlanningSettings = DAY, **changes: Any) -> PlanningProblem:
    """The job, busy on boards of its own."""
    told = (job(**changes), 0.9, 60_000.0, 2400.0)
    return case(told, gpus=boards(H100, 4), planning=planning)


def advised(problem: PlanningProblem, *found: SlowWork, **more: Any) -> Advice:
    """The advice of a plan of the problem."""
    plan = build_plan(problem, budget_seconds=10, created_at=AS_OF)
    return advise(plan, problem, slow=found, **more)


def test_it_costs_the_rent_of_the_time_that_is_lost() -> None:
    """Of four boards for a day, as an interval, in GPU-hours and money; energy is unknown."""
    problem = problem_of()
    advice = advised(problem, slow(cause=SlowCause.WAITING))
    (found,) = advice.recommendations
    model = problem.catalogue.find(H100)
    assert model is not None
    assert found.action is Action.SPEED_UP
    assert found.action in ADVICE
    assert found.now == found.proposed
    assert found.change == f"{SHORT[SlowCause.WAITING]} ({SlowCause.WAITING})"
    for lost, each in ((found.savings.gpu_hours, 1.0), (found.savings.cost, model.price_per_hour)):
        assert lost is not None
        assert (lost.low, lost.central, lost.high) == pytest.approx(
            [share * 4 * 24 * each for share in (0.25, 0.375, 0.5)]
        )
    assert found.savings.energy_kwh is None
    assert "A day of it costs 36.00 (24.00–48.00) GPU-h, worth" in found.why
    assert "`--dataloader_num_workers 8`" in found.why
    assert found.confidence == "medium: CPU work looks the same"
    assert advice.portfolio.programs == pytest.approx(found.savings.cost.central)  # type: ignore[union-attr]
    assert advice.portfolio.advised == pytest.approx(advice.portfolio.programs)
    assert advice.portfolio.together == pytest.approx(0.0), "advice is no change"
    assert JOB not in advice.kept


def test_a_cause_that_was_not_measured_carries_no_money() -> None:
    """Activity alone does not tell input from all else that a CPU does."""
    advice = advised(problem_of(), slow())
    (found,) = advice.recommendations
    assert found.change == "more processes that load data (starved of input)"
    assert (found.savings.cost, found.savings.gpu_hours) == (None, None)
    assert "was not measured" in found.why
    assert advice.portfolio is not None
    assert advice.portfolio.together == 0


def test_a_cost_that_boards_do_not_tell_is_unknown() -> None:
    """And said so; it is never 0."""
    lost = slow(cause=SlowCause.THROTTLED, confidence="strong", lost_ratio=None)
    (found,) = advised(problem_of(), lost).recommendations
    assert (found.savings.cost, found.savings.gpu_hours) == (None, None)
    assert "What that costs is unknown" in found.why


def test_money_is_unknown_for_a_model_without_price() -> None:
    """GPU-hours are known all the same."""
    told = (job(gpu_model="Z9-1GB"), 0.9, 500.0, None)
    problem = case(told, gpus=boards("Z9-1GB", 4), planning=DAY)
    for found in advised(problem, slow(cause=SlowCause.WAITING)).recommendations:
        assert found.savings.cost is None
        assert found.savings.gpu_hours is not None
        assert "worth an unknown amount" in found.why


@pytest.mark.parametrize(
    "found",
    [
        slow(confidence="weak"),
        slow(cause=SlowCause.BUSY, confidence="strong", lost_ratio=None),
        slow(cause=SlowCause.UNKNOWN, confidence="", lost_ratio=None),
        slow(job_id="another/job"),
        slow(lost_ratio=Range(low=0.01, central=0.02, high=0.03, unit="share")),
    ],
)
def test_it_is_silent_without_good_evidence_or_loss(found: SlowWork) -> None:
    """The job is kept for its own reason."""
    advice = advised(problem_of(), found)
    assert advice.recommendations == ()
    assert JOB in advice.kept


def test_nothing_is_said_of_a_job_that_rests_or_is_protected() -> None:
    """As of any other advice."""
    assert advised(problem_of(), slow(), resting={JOB: "was changed"}).recommendations == ()
    protected = replace(DAY, protected_jobs=JOB)
    assert advised(problem_of(protected), slow()).recommendations == ()


@pytest.mark.parametrize(
    ("cause", "framework", "flag"),
    [
        (SlowCause.STARVED, "transformers", "`--dataloader_num_workers 8"),
        (SlowCause.STARVED, "megatron", "`--num-workers 8`"),
        (SlowCause.NO_TENSOR, "trl", "`--bf16 true`"),
        (SlowCause.NO_TENSOR, "litgpt", "`--precision bf16-true`"),
        (SlowCause.SMALL_BATCH, "transformers", "`--per_device_train_batch_size 4`"),
        (SlowCause.SMALL_BATCH, "megatron", "`--micro-batch-size 4`"),
        (SlowCause.COMMUNICATION, "axolotl", "`gradient_accumulation_steps: 8`"),
    ],
)
def test_the_flag_is_that_of_the_jobs_framework(
    cause: SlowCause, framework: str, flag: str
) -> None:
    """With numbers twice as large as now."""
    recipe = replace(STATED, framework=framework)
    assert remedy_of(cause, recipe).startswith(flag)
    assert f"of {framework}" in remedy_of(cause, recipe)


def test_without_a_known_flag_it_is_said_in_words() -> None:
    """For every cause that is slow; of others there is nothing to try."""
    recipe = replace(STATED, framework="another")
    for cause in SlowCause:
        assert remedy_of(cause, None) == remedy_of(cause, recipe) == WORDS.get(cause, "")
        assert bool(WORDS.get(cause)) == bool(SHORT.get(cause)) == cause.is_slow
    unknown = replace(STATED, framework="transformers", micro_batch=None)
    assert remedy_of(SlowCause.SMALL_BATCH, unknown) == WORDS[SlowCause.SMALL_BATCH]
