"""Jobs that share boards: against exact packings, drawn futures, and what keeps jobs apart."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawn import examples
from factories import make_job
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_cases import A100, AS_OF, L40S, PLANNING, advised, boards, case

from data.facts.jobs import Job, Platform, WorkloadKind
from data.records.actions import Action
from data.records.plans import IdleCause
from data.settings.all_settings import PlanningSettings
from planner.advise import advise
from planner.plan import build_plan
from planner.problem.planning_problem import PlanningProblem
from planner.sharing.advice import SPEEDS
from planner.sharing.memory_bound import CHANCE
from planner.sharing.shared_boards import (
    MAX_LATE_SHARE,
    MOST_JOBS,
    SharingLimits,
    SharingLoad,
    shared_boards,
)

USABLE = 80.0
LIMITS = SharingLimits(usable_mib=USABLE, window_slots=24, headroom_ratio=0.1)


def drawn_load(random: np.random.Generator, jobs: int, slots: int = 24) -> SharingLoad:
    """Jobs of a few to forty MiB that work for a part of each slot."""
    peak = random.choice([0.0, 0.2, 0.5, 0.9], (jobs, slots)) * random.uniform(0.3, 1, (jobs, 1))
    return SharingLoad(
        memory_mib=random.uniform(4, 45, (jobs, 1)) * random.uniform(0.7, 1, (jobs, slots)),
        mean_ratio=peak * random.uniform(0, 0.4, (jobs, slots)),
        peak_ratio=peak,
        room=np.zeros(jobs, dtype=np.int64),
    )


def late_by_hand(load: SharingLoad, group: tuple[int, ...]) -> float:
    """The late share by listing who works, slot by slot and state by state."""
    total, slots = 0.0, load.peak_ratio.shape[1]
    for slot in range(slots):
        for state in itertools.product((0, 1), repeat=len(group)):
            chance, wanted = 1.0, 0.0
            for works, job in zip(state, group, strict=True):
                level = load.peak_ratio[job, slot]
                share = load.mean_ratio[job, slot] / level if level else 0.0
                chance *= share if works else 1 - share
                wanted += works * level
            total += chance * max(0.0, wanted - 1.0)
    return total / slots


def fewest_boards(load: SharingLoad) -> int:
    """The least number of boards, by dynamic programming over all sets of jobs.

    Of few jobs memory is the sum of maxima; three slots are too few to see growth in.
    """
    jobs = len(load.memory_mib)
    largest = load.memory_mib.max(axis=1)
    fits = [0] * (1 << jobs)
    for members in range(1, 1 << jobs):
        group = tuple(job for job in range(jobs) if members >> job & 1)
        fits[members] = len(group) == 1 or (
            len(group) <= MOST_JOBS
            and largest[list(group)].sum() * 1.1 <= USABLE
            and late_by_hand(load, group) <= MAX_LATE_SHARE
        )
    least = [0] + [jobs] * ((1 << jobs) - 1)
    for members in range(1, 1 << jobs):
        part = members
        while part:
            if fits[part]:
                least[members] = min(least[members], 1 + least[members ^ part])
            part = (part - 1) & members
    return least[-1]


@given(st.integers(0, 10_000), st.integers(2, 6))
@settings(max_examples=examples(25), deadline=None)
def test_a_few_jobs_take_as_few_boards_as_can_be(seed: int, jobs: int) -> None:
    """Against every packing there is; each board keeps both limits, and each job has one board."""
    load = drawn_load(np.random.default_rng(seed), jobs, slots=3)
    found = shared_boards(load, LIMITS)
    assert sorted(job for board in found for job in board.jobs) == list(range(jobs))
    for board in found:
        if len(board.jobs) > 1:
            assert load.memory_mib[list(board.jobs)].max(axis=1).sum() * 1.1 <= USABLE + 1e-9
            assert board.late_share == pytest.approx(late_by_hand(load, board.jobs), abs=1e-9)
            assert board.late_share <= MAX_LATE_SHARE
    assert len(found) == fewest_boards(load)


def test_the_memory_bound_holds_as_often_as_it_says() -> None:
    """Eight fleets of sixty jobs with rare peaks: what comes is of the kind that was."""
    over, shared, used = 0, 0, 0
    for seed in range(8):
        random = np.random.default_rng(seed)
        level = random.uniform(15, 25, (60, 1)) * np.ones((1, 96))
        peaks = (random.random((60, 96)) < 0.03) * random.exponential(8.0, (60, 96))
        memory = np.minimum(level + peaks, 50)
        nothing = np.zeros((60, 48))
        found = shared_boards(
            SharingLoad(
                memory_mib=memory[:, :48],
                mean_ratio=nothing,
                peak_ratio=nothing,
                room=np.zeros(60, dtype=np.int64),
            ),
            LIMITS,
        )
        groups = [list(board.jobs) for board in found if len(board.jobs) > 1]
        over += sum(memory[group, 48:72].sum(axis=0).max() > USABLE for group in groups)
        shared, used = shared + len(groups), used + len(found)
    assert used <= 8 * 32, "peaks seldom fall together: by the sum of maxima it is some 40 boards"
    assert over <= 2 * CHANCE * shared


@given(st.integers(0, 10_000))
@settings(max_examples=examples(10), deadline=None)
def test_who_shares_stays_where_it_fits(seed: int) -> None:
    """The same readings again move nobody, and a leak that fills the board goes apart."""
    load = drawn_load(np.random.default_rng(seed), 8)
    groups = [board.jobs for board in shared_boards(load, LIMITS) if len(board.jobs) > 1]
    again = {board.jobs for board in shared_boards(load, LIMITS, groups)}
    assert all(any(set(group) <= set(other) for other in again) for group in groups)
    if groups:
        memory = load.memory_mib.copy()
        memory[groups[0][0]] = USABLE
        after = shared_boards(replace(load, memory_mib=memory), LIMITS, groups)
        assert (groups[0][0],) in {board.jobs for board in after}


def two(
    first: Job | None = None,
    second: Job | None = None,
    *,
    level: float = 0.3,
    memory: float = 9_000.0,
    planning: PlanningSettings = PLANNING,
) -> PlanningProblem:
    """Two services of one GPU each on L40S boards, which MIG cannot cut."""
    return case(
        (first or make_job("a/x", gpu_model=L40S), 0.3, 9_000.0, 120.0),
        (second or make_job("a/y", gpu_model=L40S), level, memory, 120.0),
        gpus=boards(L40S, 2),
        planning=planning,
    )


def test_two_small_services_share_a_board_that_mig_cannot_cut() -> None:
    """One advice names both and its steps; one board is free after it, the other is needed."""
    problem = two()
    found = advised(problem)
    (advice,) = found.recommendations
    assert advice.action is Action.CO_LOCATE
    assert advice.is_advice
    assert (advice.now.gpu_count, advice.proposed.gpu_count) == (2, 1)
    assert dict(advice.details)["boards"] == "a/x + a/y"
    assert found.portfolio.together == pytest.approx(0.0), "advice is in no sum"
    assert found.portfolio.sharing == pytest.approx(found.portfolio.advised) != 0
    idle = found.idle
    assert (idle["a/x"].after, idle["a/x"].cause) == (0.0, IdleCause.HOST)
    assert idle["a/y"].after == pytest.approx(idle["a/y"].idle)
    assert idle["a/x"].partners == ("a/y",)
    assert idle["a/x"].reason == found.kept["a/x"], "one reason wherever it is told"


@pytest.mark.parametrize(
    ("job", "level", "memory", "planning"),
    [
        (make_job("a/y", gpu_model=L40S), 0.9, 9_000.0, PLANNING),
        (make_job("a/y", gpu_model=L40S), 0.3, 36_000.0, PLANNING),
        (make_job("b/y", gpu_model=L40S), 0.3, 9_000.0, PLANNING),
        (make_job("a/y", gpu_model=L40S, kind=WorkloadKind.TRAINING), 0.3, 9_000.0, PLANNING),
        (make_job("a/y", gpu_model=L40S), 0.3, 9_000.0, replace(PLANNING, board_sharing="none")),
    ],
    ids=["too busy", "too large", "another namespace", "rigid", "not wanted"],
)
def test_what_keeps_two_jobs_from_sharing(
    job: Job, level: float, memory: float, planning: PlanningSettings
) -> None:
    """Each guard by itself; what binds is the reason."""
    found = advised(two(second=job, level=level, memory=memory, planning=planning))
    assert Action.CO_LOCATE not in {row.action for row in found.recommendations}
    assert not any(idle.after for idle in found.idle.values())
    if level == 0.9:
        assert "% of a board's work would be late" in found.kept["a/x"]
    if memory == 36_000.0:
        assert "GiB would be needed" in found.kept["a/x"]


def test_a_slice_is_preferred_to_sharing() -> None:
    """An A100 can be cut: a slice keeps the jobs apart."""
    problem = case(
        (make_job("a/x", gpu_model=A100), 0.2, 9_000.0, 120.0),
        (make_job("a/y", gpu_model=A100), 0.2, 9_000.0, 120.0),
        gpus=boards(A100, 2, cut=True),
    )
    actions = [row.action for row in advised(problem).recommendations]
    assert Action.MIG_SLICE in actions
    assert Action.CO_LOCATE not in actions


def test_advice_that_was_given_keeps_its_boards() -> None:
    """The plan before had other pairs: they are feasible, and nobody is advised anew."""
    jobs = [(make_job(f"a/{name}", gpu_model=L40S), 0.2, 18_000.0, 120.0) for name in "uvwx"]
    problem = case(*jobs, gpus=boards(L40S, 4))
    plan = build_plan(problem, budget_seconds=30, created_at=AS_OF)
    first = advise(plan, problem)
    pairs = [{job.job_id, *first.idle[job.job_id].partners} for job in plan.jobs]
    assert all(len(pair) == 2 for pair in pairs)
    turned = {"a/u": "a/x", "a/x": "a/u", "a/v": "a/w", "a/w": "a/v"}
    before = replace(
        plan,
        jobs=tuple(
            replace(job, idle=replace(first.idle[job.job_id], partners=(turned[job.job_id],)))
            for job in plan.jobs
        ),
    )
    again = advise(plan, problem, last=before)
    assert {job: row.partners for job, row in again.idle.items()} == {
        job: (other,) for job, other in turned.items()
    }


@pytest.mark.parametrize("platform", [Platform.KUBERNETES, Platform.SLURM, Platform.UNKNOWN])
def test_the_steps_are_in_the_words_of_the_platform(platform: Platform) -> None:
    """A ConfigMap and a label, shards, or the command line."""
    jobs = [make_job(f"a/{name}", gpu_model=L40S, platform=platform) for name in "xy"]
    (advice,) = advised(two(*jobs)).recommendations
    steps = dict(advice.details)["steps"]
    words = {
        Platform.KUBERNETES: ("replicas: 2", "nvidia.com/device-plugin.config=shared-2", "HAMi"),
        Platform.SLURM: ("shard:2", "--gres=shard:1"),
        Platform.UNKNOWN: ("nvidia-cuda-mps-control",),
    }
    assert all(word in steps for word in words[platform])


def test_speeds_of_a_shared_board_hold_what_was_measured() -> None:
    """Of 22 pairs of programs that take turns on an H200 and 15 by MPS, none is slower."""
    measured = Path(__file__).parents[2] / "benchmarks/measured/shared_board_h200.json"
    rows = json.loads(measured.read_text(encoding="utf-8"))["rows"]
    fitting = [row for row in rows if sum(row["sm_active"]) <= 1.0]
    assert len(fitting) == 37
    above = 0.0
    for most, low, likely, high in SPEEDS:
        in_turns, by_mps = (
            [
                min(row["speed"])
                for row in fitting
                if row["sharing"] == sharing and above < sum(row["sm_active"]) <= most
            ]
            for sharing in ("time-slicing", "mps")
        )
        above = most
        assert min(in_turns + by_mps) >= low - 0.005
        assert np.median(in_turns) < likely < np.median(by_mps) <= high
