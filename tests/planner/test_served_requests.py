"""A service whose engines tell its requests keeps what they need, whatever its GPUs show."""

import pytest
from drawn import examples
from factories import make_job
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_cases import AS_OF, H100, L40S, SLOT_LENGTHS, boards, case, day_in_slots

from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.decisions import Action, Recommendation
from data.records.jobs import Job
from planner.plan import build_plan
from planner.recommendations.advise import advise


def proposed(
    job: Job, level: float, peak_load_ratio: float | None, slot_minutes: int = 60
) -> Recommendation | None:
    """What is proposed for a service at a level of activity and a peak of its requests."""
    gpus = [*boards(H100, 8, cut=True), *boards(L40S, 8)]
    loads = {} if peak_load_ratio is None else {job.job_id: peak_load_ratio}
    problem = case(
        (job, level, 5_000.0, 150.0 * job.gpu_count),
        gpus=gpus,
        planning=day_in_slots(slot_minutes),
        peak_loads=loads,
    )
    advice = advise(build_plan(problem, budget_seconds=30, created_at=AS_OF), problem)
    found = [entry for entry in advice.recommendations if entry.job_id]
    return found[0] if found else None


@settings(max_examples=examples(25), deadline=None)
@given(
    count=st.sampled_from([1, 2, 4, 8]),
    level=st.floats(0.02, 1.0),
    load=st.floats(0.0, 3.0),
    slot_minutes=st.sampled_from(SLOT_LENGTHS),
)
def test_nothing_is_proposed_that_carries_less_than_the_peak_of_its_requests(
    count: int, level: float, load: float, slot_minutes: int
) -> None:
    """By the catalogue's speed of what is proposed; what shows less never adds boards."""
    job = make_job(gpu_count=count)
    found = proposed(job, level, load, slot_minutes)
    alone = proposed(job, level, None, slot_minutes)
    if found is None:
        return
    speed = {entry.name: entry.relative_speed for entry in load_gpu_catalogue()}
    to = found.proposed
    carried = to.gpu_count * speed[to.gpu_model] / speed[H100]
    if to.mig_profile:
        profile = load_gpu_catalogue().get(to.gpu_model).mig_profile(to.mig_profile)
        assert profile is not None
        carried *= profile.compute_fraction
    assert carried >= count * min(load, 1 / 1.15) - 1e-9
    if found.action is Action.SCALE_OUT:
        assert alone is not None
        assert alone.action is Action.SCALE_OUT


@pytest.mark.parametrize(("load", "count"), [(None, 2), (0.1, 2), (0.4, 4), (0.9, None), (2, None)])
def test_a_service_that_shows_little_keeps_what_its_requests_take(
    load: float | None, count: int | None
) -> None:
    """A fifth of eight boards is busy. Two are enough unless requests take more of them."""
    found = proposed(make_job(gpu_count=8), 0.19, load)
    assert (None if found is None else found.proposed.gpu_count) == count
    if found is not None:
        assert ("its requests take" in found.why) == (load is not None)


def test_a_service_that_answers_requests_is_not_reclaimed() -> None:
    """Two days without activity, and one request in a thousand of what it carries."""
    job = make_job(gpu_count=2)
    idle = proposed(job, 0.0, None)
    assert idle is not None
    assert idle.action is Action.RECLAIM
    answering = proposed(job, 0.0, 0.001)
    assert answering is None or answering.proposed.gpu_count
    silent = proposed(job, 0.0, 0.0)
    assert silent is not None
    assert silent.action is Action.RECLAIM
