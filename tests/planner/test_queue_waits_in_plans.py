"""The wait in the queue is part of what a change takes, weighs against it, and is told."""

from dataclasses import replace
from typing import Any

import pytest
from fleet_cases import slurm_job
from planning_cases import AS_OF, H100, boards, case

from dashboard.web.findings.finding_panel import effect_text
from data.facts.jobs import JobState
from data.facts.queue_waits import QueueWait
from data.records.recommendations import Recommendation
from data.store.engine.record_json import from_json, to_json
from planner.advise import Advice, advise
from planner.costs.cost import change_cost, change_costs
from planner.jobs.expected_value import mean_of
from planner.plan import build_plan
from planner.problem.planning_problem import FleetRules, PlanningProblem

WAIT = QueueWait(low=0, median=240, high=2100, mean=700, starts=52, days=7)
UNKNOWN = QueueWait(days=7)


def problem_of(wait: QueueWait | None, waiting: str = "", **changes: Any) -> PlanningProblem:
    """Return a Slurm job of four GPUs that needs one, and who waits for its nodes."""
    job = slurm_job(
        1,
        gpu_model=H100,
        gpu_count=4,
        extra={"requeue": "yes", "gres_per": "node", "nodes_requested": "1", "waiting": waiting},
    )
    facts = job.scheduler
    assert facts is not None
    job = replace(job, scheduler=replace(facts, state=JobState.RUNNING))
    waits = {} if wait is None else {job.job_id: wait}
    return case((job, 0.2, 10_000.0, None), gpus=boards(H100, 8), queue_waits=waits, **changes)


def advised(problem: PlanningProblem) -> Advice:
    """Return the advice of a plan."""
    return advise(build_plan(problem, budget_seconds=30, created_at=AS_OF), problem)


def the_change(problem: PlanningProblem) -> Recommendation:
    """Return the only recommendation."""
    (found,) = advised(problem).recommendations
    return found


def test_a_wait_is_seconds_and_a_price_but_holds_no_gpu() -> None:
    """Rent of the present boards for the mean wait is its price; money and GPU-hours stay."""
    plain, waits = problem_of(None), problem_of(WAIT)
    (job,), (other,) = plain.jobs, waits.jobs
    fewer = next(option for option in job.options if option.boards == 1)
    without = change_costs(job.demand, job.options[0], fewer, plain.terms)
    with_it = change_costs(other.demand, other.options[0], fewer, waits.terms)
    added = [b - a for a, b in zip(without.seconds, with_it.seconds, strict=True)]
    assert added == pytest.approx([0, 240, 2100])
    assert (with_it.cost, with_it.gpu_hours) == (without.cost, without.gpu_hours)
    rent = 4 * plain.catalogue.get(H100).price_per_hour
    assert with_it.wait_price == pytest.approx(700 / 3600 * rent)
    price = change_cost(other.demand, other.options[0], fewer, waits.terms)
    assert price == pytest.approx(mean_of(*with_it.cost) + with_it.wait_price)


def test_a_long_queue_keeps_a_job_as_it_is() -> None:
    """Who would wait for days is not requeued to save a few GPU-hours."""
    assert advised(problem_of(WAIT)).recommendations
    days = replace(WAIT, median=86_400.0, high=3e5, mean=2e5)
    assert not advised(problem_of(days)).recommendations


def test_the_wait_is_told_with_its_band_and_its_starts() -> None:
    """On the card and in what is kept; a wait that is not known is said to be unknown."""
    one = the_change(problem_of(WAIT))
    assert "Expected wait in the queue 4 (0–35) min, from 52 starts in the last 7 d." in (
        effect_text(one)
    )
    assert from_json(Recommendation, to_json(one)) == one
    unknown = effect_text(the_change(problem_of(UNKNOWN)))
    assert "Expected wait in the queue unknown: no start was seen in the last 7 d." in unknown
    assert "queue" not in effect_text(the_change(problem_of(None)))


def test_what_needs_no_requeue_waits_in_no_queue() -> None:
    """Nothing is requeued where Trimtab may not, and giving a job up starts nothing again."""
    problem = problem_of(WAIT, rules=FleetRules(may_requeue=False))
    assert problem.jobs[0].demand.queue_wait is None
    job = problem_of(WAIT).jobs[0]
    given_up = [option for option in job.options if not option.boards]
    for option in given_up:
        assert not change_costs(job.demand, job.options[0], option, problem.terms).wait_price


def test_whoever_waits_for_its_nodes_is_why_a_job_is_kept() -> None:
    """It would save, were it requeued: 'costs least' alone would not be true."""
    assert advised(problem_of(None)).recommendations
    (why,) = dict(advised(problem_of(None, "job 15 waits (Resources)")).kept).values()
    assert why.startswith("requeued, it might not start again soon: ")
    assert "job 15 waits (Resources)" in why
    behind = FleetRules(behind_others=True)
    assert advised(problem_of(None, "job 15 waits", rules=behind)).recommendations


@pytest.mark.parametrize(
    ("may_requeue", "behind_others", "words"),
    [(False, False, "allow_requeue"), (False, True, "allow_requeue"), (True, False, "behind")],
)
def test_what_no_applier_may_do_is_why_and_no_other_reason(
    may_requeue: bool, behind_others: bool, words: str
) -> None:
    """Its memory would fit on one GPU: no sentence says that it does not, or names what is set."""
    rules = FleetRules(may_requeue=may_requeue, behind_others=behind_others)
    found = advised(problem_of(None, "job 15 waits", rules=rules))
    assert not found.recommendations
    (why,) = dict(found.kept).values()
    (idle,) = found.idle.values()
    for said in (why, idle.reason):
        assert words in said
        assert "memory" not in said
        assert ("requeue_behind_others allows it" in said) == (words == "behind")
    assert why.count(words) == 1
