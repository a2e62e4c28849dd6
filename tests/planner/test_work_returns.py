"""Work that comes back: who works in turns keeps its GPUs, who works no more loses them in time."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
from factories import make_job
from hypothesis import given
from hypothesis import strategies as st
from planning_cases import AS_OF, H100, boards, case, day_in_slots

from data.facts.columns import HISTORY, check_frame
from data.facts.fleet import BoardShare
from data.facts.job_history import NO_HISTORY, job_histories
from data.facts.jobs import Job, Platform, SchedulerFacts, WorkloadKind
from data.records.actions import Action
from planner.advise import advise
from planner.jobs.work_returns import (
    Rests,
    Values,
    evidence_of,
    evidence_of_many,
    rests_of,
    return_of,
    similar_rests,
)
from planner.plan import build_plan
from planner.problem.planning_problem import PlanningProblem

TURNS = [1, 2, 4, 6, 8, 12, 24, 168]
"""Hours from one start of work to the next."""


def history_in_turns(
    job: Job, slot_minutes: int, *, turn: float, busy: float, hours: float, rest: float
) -> pd.DataFrame:
    """Work for `busy` hours of every `turn`, for `hours` up to now, the last of it `rest` h ago."""
    slot = timedelta(minutes=slot_minutes)
    times = pd.date_range(end=AS_OF - slot, periods=round(hours * 60 / slot_minutes), freq=slot)
    ago = (AS_OF - times) / timedelta(hours=1)
    # Slots that began `ago` hours before now; the last turn's work ended `rest` hours ago.
    works = (ago > rest) & ((ago - rest - 1e-9) % turn < busy)
    level = np.where(works, 0.6, 0.0)
    frame = pd.DataFrame(
        {
            "job_id": job.job_id,
            "slot_start": times.as_unit("us"),
            "effective_gpus": level * job.gpu_count,
            "utilization_ratio": level,
            "utilization_max_ratio": level,
            "allocated_gpus": float(job.gpu_count),
            "memory_used_mib": 9_000.0,
            "power_watts": np.where(works, 450.0, 90.0),
            "sample_count": 5,
        }
    )
    return check_frame(frame, HISTORY)


def problem_in_turns(slot_minutes: int, job: Job, **turns: float) -> PlanningProblem:
    """A problem of one job that works in turns, forecast to do nothing."""
    return case(
        (job, 0.0, 9_000.0, 90.0),
        gpus=boards(H100, 8),
        planning=day_in_slots(slot_minutes),
        history=history_in_turns(job, slot_minutes, **turns),
    )


def may_be_stopped(problem: PlanningProblem) -> bool:
    """Whether the first job may be left without GPUs."""
    return 0 in [option.configuration.gpu_count for option in problem.jobs[0].options]


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("slot_minutes", [5, 15, 60])
@pytest.mark.parametrize("kind", [WorkloadKind.TRAINING, WorkloadKind.UNKNOWN])
def test_a_job_that_works_in_turns_is_never_stopped(
    turn: int, slot_minutes: int, kind: WorkloadKind
) -> None:
    """At no hour of a rest, once it was seen to come back twice: not even of a week."""
    job = make_job(gpu_count=2, kind=kind)
    busy = max(slot_minutes / 60, turn * 0.2)
    for share in (0.25, 0.6, 1.0):
        rest = max(slot_minutes / 60, share * (turn - busy))
        problem = problem_in_turns(
            slot_minutes, job, turn=turn, busy=busy, hours=max(24.0, 3.2 * turn), rest=rest
        )
        assert not may_be_stopped(problem), rest


@pytest.mark.parametrize("turn", [1, 4, 24])
@pytest.mark.parametrize("slot_minutes", [15, 60])
def test_a_job_that_works_no_more_is_stopped_within_two_weeks(turn: int, slot_minutes: int) -> None:
    """Its work ended after a week of turns; one that never worked is stopped within two days."""
    job = make_job(gpu_count=2, kind=WorkloadKind.TRAINING)
    busy = max(slot_minutes / 60, turn * 0.2)
    dead = problem_in_turns(slot_minutes, job, turn=turn, busy=busy, hours=21 * 24, rest=14 * 24.0)
    assert may_be_stopped(dead)
    never = problem_in_turns(slot_minutes, job, turn=turn, busy=0.0, hours=40.0, rest=40.0)
    assert may_be_stopped(never)


def test_the_reason_to_keep_it_names_its_own_gaps() -> None:
    """In the words of its owner: when it came back, and how often."""
    job = make_job(gpu_count=1, gpu_model=H100, kind=WorkloadKind.TRAINING)
    problem = problem_in_turns(15, job, turn=8, busy=3.0, hours=64.0, rest=4.5)
    found = advise(build_plan(problem, budget_seconds=0.1, created_at=AS_OF), problem)
    reason = found.kept[job.job_id]
    assert "it has been idle for 4.5 h" in reason
    assert "returned after 4.5 h of rest in 7 of 7 earlier gaps, 7 times within 24 h" in reason
    assert found.idle[job.job_id].reason == reason


def test_a_job_that_comes_back_gets_what_is_safe_instead() -> None:
    """Four GPUs for little work every eight hours: fewer of them, not none."""
    job = make_job("lab/job/fits", gpu_count=4, kind=WorkloadKind.TRAINING)
    problem = problem_in_turns(15, job, turn=8, busy=3.0, hours=64.0, rest=4.5)
    advice = advise(build_plan(problem, budget_seconds=0.1, created_at=AS_OF), problem)
    (found,) = advice.recommendations
    assert (found.action, found.proposed.gpu_count) == (Action.FEWER_GPUS, 1)
    assert "return of work" not in dict(found.evidence.factors)


@pytest.mark.parametrize("kind", ["deployment", "statefulset"])
@pytest.mark.parametrize("facts", [{}, {"scales_to_zero": "yes"}, {"managed_by": ("Argo CD",)}])
def test_a_service_that_comes_back_is_to_start_on_demand(
    kind: str, facts: dict[str, object]
) -> None:
    """Not stopped, and no more than the chance that it rests on is counted; once, and by its owner.

    What scales to zero already, and what another program keeps, gets no such advice.
    """
    managed = facts.get("managed_by", ())
    extra = tuple((name, str(value)) for name, value in facts.items() if name != "managed_by")
    told = SchedulerFacts(managed_by=managed, extra=(("gpus_per_pod", "1"), *extra))  # type: ignore[arg-type]
    job = make_job(f"lab/{kind}/books", gpu_count=1, gpu_model=H100, scheduler=told,
                   platform=Platform.KUBERNETES, kind=WorkloadKind.INFERENCE)  # fmt: skip
    # A week without work makes even a service idle; its work may return at any time.
    planning = replace(day_in_slots(60), max_return_chance=0.01)
    problem = case((job, 0.0, 9_000.0, 90.0), gpus=boards(H100, 8), planning=planning,
                   history=history_in_turns(job, 60, turn=60, busy=2.0, hours=720, rest=172.8),
                   )  # fmt: skip
    advice = advise(build_plan(problem, budget_seconds=0.1, created_at=AS_OF), problem)
    rows = [row for row in advice.recommendations if row.action is Action.SCALE_TO_ZERO]
    assert len(rows) == (not facts)
    assert Action.RECLAIM not in {row.action for row in advice.recommendations}
    for row in rows:
        chance = problem.jobs[0].demand.work_return.chance
        assert row.is_advice
        assert row.savings.gpu_hours is not None
        assert row.savings.cost is not None
        assert (row.savings.cost.low, row.savings.gpu_hours.low) == (0.0, 0.0)
        assert row.savings.gpu_hours.central == pytest.approx((1 - chance) * 24)
        assert dict(row.evidence.factors)["cold start"].startswith("not known")
        assert "start" in row.why


def test_a_stop_says_its_chance_on_card_evidence_and_range() -> None:
    """The work of two weeks ago may return at any time: nothing is the least that is saved."""
    job = make_job(gpu_count=2, kind=WorkloadKind.TRAINING)
    problem = problem_in_turns(60, job, turn=4, busy=1.0, hours=21 * 24, rest=14 * 24.0)
    advice = advise(build_plan(problem, budget_seconds=0.1, created_at=AS_OF), problem)
    (found,) = advice.recommendations
    chance = problem.jobs[0].demand.work_return.describe()
    assert found.action is Action.RECLAIM
    assert f"Risk: {chance}" in found.why
    assert dict(found.evidence.factors)["return of work"] == chance
    assert found.savings.cost is not None
    assert found.savings.cost.low == 0.0


def rests(returned: list[float], unended: list[float], present: float, work: bool = True) -> Rests:
    """Rests of a job that was seen for as long as all of them."""
    span = max(1.0, sum(returned) + sum(unended) + present + len(returned))
    ages = np.arange(1.0, span + 1.0)
    hours = np.array([*returned, *unended, present])
    ended = np.arange(len(hours)) < len(returned)
    return Rests(
        returned=np.array(returned),
        unended=np.array([*unended, present]),
        present=present,
        observed=ages,
        worked=ages[ages > present][:: max(1, round(span / 9))] if work else np.empty(0),
        evidence=evidence_of(hours, ended, np.full(len(hours), int(work)))[0],
        never_worked=not work,
    )


@pytest.mark.parametrize("turn", [1.5, 3.0])
def test_many_rests_of_one_day_are_the_word_of_one_day(turn: float) -> None:
    """That work always returned before the evening tells little of the night; ten days tell it."""
    job = make_job()

    def chance_after(hours: float) -> float:
        frame = history_in_turns(job, 15, turn=turn, busy=0.25, hours=hours, rest=1.0)
        rows = job_histories(frame)[job.job_id]
        return return_of(rests_of(rows, slot_hours=0.25, idle_ratio=0.01), [], 4.0).chance

    assert 0.4 < chance_after(16) < 0.75 < 0.95 < chance_after(240)


hours = st.floats(0.25, 400.0, allow_nan=False)
some_rests = st.builds(rests, st.lists(hours, max_size=12), st.lists(hours, max_size=4), hours)
evidence = st.lists(
    st.builds(
        lambda share, exposure: np.array([share * exposure, exposure]),
        st.floats(0, 3),
        st.floats(0, 200),
    ),
    max_size=2,
)


@given(entry=some_rests, others=evidence, ahead=st.floats(0.5, 300.0))
def test_a_chance_is_never_certain_and_the_same_facts_give_the_same(
    entry: Rests, others: list[Values], ahead: float
) -> None:
    """Between one percent and ninety-nine."""
    found = return_of(entry, others, ahead)
    assert 0.01 <= found.chance <= 0.99
    assert found == return_of(entry, others, ahead)


@given(entry=some_rests, others=evidence, ahead=st.floats(0.5, 200.0), more=st.floats(0.0, 100.0))
def test_a_longer_horizon_never_lowers_the_chance(
    entry: Rests, others: list[Values], ahead: float, more: float
) -> None:
    """What returns within a day returns within two."""
    longer = return_of(entry, others, ahead + more).chance
    assert longer >= return_of(entry, others, ahead).chance - 1e-12


@given(
    returned=st.lists(hours, max_size=12),
    others=evidence,
    beyond=st.floats(2.01, 100.0),
    more=st.floats(0.0, 300.0),
)
def test_beyond_all_earlier_rests_the_chance_falls(
    returned: list[float], others: list[Values], beyond: float, more: float
) -> None:
    """The longer it has rested, the longer it goes on; two slots may be how slots were cut.

    Of a job that was seen for as long: in its first days what was seen of it gains weight.
    """
    present, weeks = max([1.0, *returned]) + beyond, np.arange(1.0, 1200.0)
    chances = [
        return_of(replace(rests(returned, [], age), observed=weeks), others, 24.0).chance
        for age in (present, present + more)
    ]
    assert chances[1] <= chances[0] + 1e-12


@given(
    states=st.lists(st.sampled_from([0.0, 0.5, np.nan]), min_size=1, max_size=60),
    missing=st.sets(st.integers(0, 59), max_size=10),
    slot_minutes=st.sampled_from([5, 15, 60]),
)
def test_rests_add_up_and_end_where_work_was_seen_to_begin(
    states: list[float], missing: set[int], slot_minutes: int
) -> None:
    """Slot by slot: an idle slot is in one rest, and only work right behind it ends it."""
    job = make_job()
    frame = history_in_turns(
        job, slot_minutes, turn=1, busy=0, hours=len(states) * slot_minutes / 60, rest=1
    )
    frame["utilization_max_ratio"] = states
    present = [number for number in range(len(states)) if number not in missing]
    rows = job_histories(frame.iloc[present]).get(job.job_id, NO_HISTORY)
    found = rests_of(rows, slot_hours=slot_minutes / 60, idle_ratio=0.01)
    idle = sum(states[number] == 0.0 for number in present)
    total = float(found.returned.sum() + found.unended.sum())
    assert total == pytest.approx(idle * slot_minutes / 60)
    ends = sum(
        states[number] == 0.5 and number - 1 in present and states[number - 1] == 0.0
        for number in present
    )
    assert len(found.returned) == ends
    assert len(found.worked) == sum(states[number] == 0.5 for number in present)


@given(
    jobs=st.lists(
        st.tuples(
            st.lists(st.sampled_from([0.0, 0.0, 0.5, np.nan]), min_size=1, max_size=60),
            st.sets(st.integers(0, 59), max_size=10),
            st.sampled_from([0, 0, 1, 3]),
        ),
        max_size=4,
    ),
    slot_minutes=st.sampled_from([5, 15, 60]),
)
def test_the_evidence_of_many_is_that_of_each(
    jobs: list[tuple[list[float], set[int], int]], slot_minutes: int
) -> None:
    """Whatever was missing or unknown, and whatever counts as a restart of a service."""
    frames, alone, restarts = [], {}, {}
    for number, (states, missing, restart) in enumerate(jobs):
        job = make_job(f"team/job-{number}")
        hours = len(states) * slot_minutes / 60
        frame = history_in_turns(job, slot_minutes, turn=1, busy=0, hours=hours, rest=1)
        frame["utilization_max_ratio"] = states
        frame = frame.drop(index=[at for at in missing if at < len(states)])
        frames.append(frame)
        restarts[job.job_id] = restart
        rows = job_histories(frame).get(job.job_id)
        if rows is not None:
            alone[job.job_id] = rests_of(
                rows, slot_hours=slot_minutes / 60, idle_ratio=0.01, restart_slots=restart
            ).evidence
    empty = history_in_turns(make_job(), slot_minutes, turn=1, busy=0, hours=0, rest=1)
    together = evidence_of_many(
        pd.concat([empty, *frames], ignore_index=True),
        slot_hours=slot_minutes / 60,
        idle_ratio=0.01,
        restart_slots=restarts,
    )
    assert together.keys() == alone.keys()
    for job_id, evidence in together.items():
        assert evidence == pytest.approx(alone[job_id])


def test_jobs_that_ended_are_evidence_as_others_are() -> None:
    """Of their groups alone."""
    one, two = rests([10.0, 10.0], [], 0.0), rests([], [], 100.0, work=False)
    both = similar_rests({"a": one, "b": two}, {"a": ("kind",), "b": ("kind",)})
    ended = [(("kind",), one.evidence), (("another kind",), one.evidence)]
    alone = similar_rests({"b": two}, {"b": ("kind",)}, ended)
    assert [*alone["b"][0]] == [*both["b"][0]]


def test_what_similar_jobs_did_counts_without_the_job_itself() -> None:
    """Each job's own rests are evidence once."""
    one, two = rests([10.0, 10.0], [], 0.0), rests([], [100.0], 16.0)
    found = similar_rests({"a": one, "b": two}, {"a": ("kind",), "b": ("kind",)})
    assert found["a"][0][0] == pytest.approx(0.0)
    assert found["b"][0][0] == pytest.approx(2.0)
    assert return_of(two, found["b"], 24.0).chance > return_of(two, found["a"], 24.0).chance


@pytest.mark.parametrize("others", [2, 20])
@pytest.mark.parametrize("turn", [3, 8])
@pytest.mark.parametrize("hours", [30.0, 72.0])
def test_a_job_that_never_worked_is_stopped_beside_those_that_work(
    others: int, turn: int, hours: float
) -> None:
    """That those return from their breaks says nothing of boards that are held in case."""
    jobs = [make_job(f"lab/job-{n}", kind=WorkloadKind.TRAINING) for n in range(others + 1)]
    frames = [history_in_turns(jobs[0], 15, turn=turn, busy=0.0, hours=hours, rest=hours)]
    frames += [
        history_in_turns(job, 15, turn=turn, busy=1.0, hours=hours, rest=0.5) for job in jobs[1:]
    ]
    problem = case(
        *((job, 0.0, 9_000.0, 90.0) for job in jobs),
        gpus=boards(jobs[0].gpu_model, 128),
        planning=day_in_slots(15),
        history=pd.concat(frames, ignore_index=True),
    )
    assert may_be_stopped(problem)
    own = problem.jobs[0].demand.work_return
    assert own.chance <= problem.planning.max_return_chance
    assert own.events == 0.0


@pytest.mark.parametrize("others", [2, 20])
@pytest.mark.parametrize("rest", [12.0, 24.0])
def test_a_job_that_never_worked_waits_as_long_as_others_did_before_their_work(
    others: int, rest: float
) -> None:
    """Where such jobs begin to work after a day, one that has not begun yet is kept for longer."""
    late = replace(rests([rest], [], 0.0, work=False), never_worked=False)
    waits = rests([], [], rest, work=False)
    entries = {"waits": waits} | {f"late-{n}": late for n in range(others)}
    found = similar_rests(entries, dict.fromkeys(entries, ("kind", "owner")))["waits"]
    assert found[0][0] == others
    assert return_of(waits, found, 24.0).chance > return_of(waits, (), 24.0).chance


def test_rests_before_any_work_are_told_from_those_after_it() -> None:
    """Of a job that began to work after five hours, and rested for three since then."""
    job = make_job()
    states = [0.0] * 5 + [0.5] * 4 + [0.0] * 3
    frame = history_in_turns(job, 60, turn=1, busy=0, hours=len(states), rest=1)
    frame["utilization_max_ratio"] = states
    rows = job_histories(frame)[job.job_id]
    before, after = rests_of(rows, slot_hours=1.0, idle_ratio=0.01).evidence
    assert [*before[0], *before[2]] == pytest.approx([1.0, np.log(5.0), 1.0, np.log(5.0 / 4)])
    assert [*after[0], *after[1]] == pytest.approx([0.0, np.log(3.0), 0.0, np.log(3.0 / 2)])


@pytest.mark.parametrize(
    ("boards_of", "at_work", "told"),
    [
        (("ab",), "", "ab"),
        (("abc",), "", "abc"),
        (("ab",), "b", ""),
        (("abc",), "c", ""),
        (("ab", "bc"), "", "abc"),
        (("ab", "bc"), "c", ""),
        (("ab", "cd"), "d", "ab"),
    ],
)
@pytest.mark.parametrize("kind", [WorkloadKind.TRAINING, WorkloadKind.UNKNOWN])
def test_idle_holders_of_a_board_stop_together_or_not_at_all(
    boards_of: tuple[str, ...], at_work: str, told: str, kind: WorkloadKind
) -> None:
    """Each letter is a job; whoever shares with one at work stays, and so do those beside it."""
    names = sorted({*"".join(boards_of)})
    jobs = {name: make_job(f"lab/{name}", gpu_model=H100, gpu_count=1, kind=kind) for name in names}
    beside = {name: {*"".join(group for group in boards_of if name in group)} - {name}
              for name in names}  # fmt: skip
    shares = {
        jobs[name].job_id: BoardShare(
            boards=sum(1 / len(group) for group in boards_of if name in group),
            others=tuple(sorted(jobs[other].job_id for other in beside[name])),
            why="it shares its GPUs",
        )
        for name in names
    }
    busy = {name: float(name in at_work) for name in names}
    problem = case(
        *((jobs[name], 0.6 * busy[name], 9_000.0, 90.0) for name in names),
        gpus=boards(H100, 8),
        planning=day_in_slots(15),
        history=pd.concat(
            history_in_turns(jobs[name], 15, turn=1, busy=busy[name], hours=48, rest=0)
            for name in names
        ),
        shares=shares,
    )
    advice = advise(build_plan(problem, budget_seconds=0.1, created_at=AS_OF), problem)
    rows = {row.job_id.partition("/")[2]: row for row in advice.recommendations}
    assert "".join(sorted(rows)) == told
    for name, row in rows.items():
        assert (row.action, row.is_advice) == (Action.SCALE_TO_ZERO, True)
        assert all(jobs[other].job_id in row.change for other in beside[name])
        assert all(f"delete pod {other}" in row.why for other in {name, *beside[name]})
        assert advice.idle[row.job_id].stays == pytest.approx(0.0)
        most = row.savings.gpu_hours
        assert most is not None
        assert (most.low, most.high) == (0.0, pytest.approx(24 * shares[row.job_id].boards))


@pytest.mark.parametrize("unknown", [[0], [7, 8, 9], [39], [0, 20]])
@pytest.mark.parametrize("slot_minutes", [15, 60])
def test_what_was_read_and_is_unknown_may_have_been_work(
    unknown: list[int], slot_minutes: int
) -> None:
    """A counter in another unit shows rest, and work as nothing: the job may have worked."""
    job = make_job()
    frame = history_in_turns(
        job, slot_minutes, turn=1, busy=0, hours=60 * slot_minutes / 60, rest=1
    )
    at_rest = job_histories(frame)[job.job_id]
    frame.loc[unknown, "utilization_max_ratio"] = np.nan
    partly = job_histories(frame)[job.job_id]
    found = [
        rests_of(rows, slot_hours=slot_minutes / 60, idle_ratio=0.01) for rows in (at_rest, partly)
    ]
    assert [entry.never_worked for entry in found] == [True, False]
    assert found[1].evidence[1].any()
    chances = [return_of(replace(entry, present=5.0), (), 24.0).chance for entry in found]
    assert chances[1] > chances[0]
