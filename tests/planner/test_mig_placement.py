"""Slices on boards: legal starts only, no overlap, boards as full as they can be."""

import numpy as np
import pytest
from drawn import examples
from factories import make_job
from fleet_cases import gpu
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_cases import A100, case

from data.catalogue.gpu_catalogue import load_gpu_catalogue
from planner.fleet.mig_placement import Slice, pack_slices
from planner.plan import build_plan

CATALOGUE = load_gpu_catalogue()
BOARD = CATALOGUE.get(A100)
PROFILES = [profile.name for profile in BOARD.mig_profiles]


def slice_of(profile: str, start: int = 0, end: int = 4, board: str = "") -> Slice:
    """An instance of an A100."""
    known = BOARD.mig_profile(profile)
    assert known is not None
    placement = BOARD.mig_placement(known)
    assert placement is not None
    return Slice(pool=0, start=start, end=end, placement=placement, board=board)


@pytest.mark.parametrize(
    "profiles",
    [
        ["1g.10gb"] * 7,
        ["2g.20gb"] * 3 + ["1g.10gb"],
        ["3g.40gb", "3g.40gb"],
        ["4g.40gb", "3g.40gb"],
        ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"],
        ["7g.80gb"],
    ],
)
def test_what_the_driver_allows_fits_on_one_board(profiles: list[str]) -> None:
    """The usual cuts of a board of seven compute slices."""
    boards, _places = pack_slices([slice_of(profile) for profile in profiles], 4)
    assert len(boards) == 1


@pytest.mark.parametrize(
    "profiles", [["1g.10gb"] * 8, ["4g.40gb"] * 2, ["3g.40gb", "3g.40gb", "1g.10gb"]]
)
def test_what_the_driver_refuses_takes_two(profiles: list[str]) -> None:
    """Eight of 1g, two of 4g, and 3g twice with anything beside."""
    boards, _places = pack_slices([slice_of(profile) for profile in profiles], 4)
    assert len(boards) == 2


@given(st.lists(st.tuples(st.sampled_from(PROFILES), st.integers(0, 5), st.integers(1, 3))))
@settings(max_examples=examples(30), deadline=None, derandomize=True)
def test_a_board_is_cut_only_while_slices_are_on_it(drawn: list[tuple[str, int, int]]) -> None:
    """Between two of its slices a board is whole again: others may have it."""
    slices = [slice_of(profile, start, start + length) for profile, start, length in drawn]
    for early_first in (False, True):
        boards, places = pack_slices(slices, 8, early_first=early_first)
        for number, board in enumerate(boards):
            inside = [entry for entry, at in zip(slices, places, strict=True) if at[0] == number]
            covered = {slot for entry in inside for slot in range(entry.start, entry.end)}
            assert covered == set(range(board.start, board.end))


def test_early_slices_leave_a_late_large_one_its_board() -> None:
    """Two of 2g fill a board that one of 4g, which comes later, would have left half empty."""
    small = [slice_of("2g.20gb", 0, 2), slice_of("2g.20gb", 0, 2)]
    slices = [*small, slice_of("4g.40gb", 1, 2)]
    for early_first, first_slot in ((False, 2), (True, 1)):
        boards, _places = pack_slices(slices, 4, early_first=early_first)
        assert sum(board.start == 0 for board in boards) == first_slot


def test_every_profile_of_the_catalogue_has_its_starts() -> None:
    """No model's slices are without a place, and all lie within the board."""
    for model in CATALOGUE:
        whole = 4 if max((entry.slices for entry in model.mig_profiles), default=7) == 4 else 8
        for profile in model.mig_profiles:
            placement = model.mig_placement(profile)
            assert placement is not None
            assert max(placement.starts) + placement.memory_slices <= whole


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.sampled_from(PROFILES), st.integers(0, 5), st.integers(1, 4)), max_size=12
    )
)
def test_no_two_slices_overlap(drawn: list[tuple[str, int, int]]) -> None:
    """In any slot a memory slice of a board belongs to one instance, which began where it may."""
    slices = [slice_of(name, start, start + length) for name, start, length in drawn]
    boards, places = pack_slices(slices, 10)
    taken = np.zeros((len(boards), 8, 10), dtype=np.int64)
    for entry, (board, position) in zip(slices, places, strict=True):
        assert position in entry.placement.starts
        taken[
            board, position : position + entry.placement.memory_slices, entry.start : entry.end
        ] += 1
        assert boards[board].start <= entry.start
        assert boards[board].end >= entry.end
    assert (taken <= 1).all()


def test_slices_that_are_there_now_stay_on_their_board() -> None:
    """Two boards with a slice each: neither leaves, and a new one joins them."""
    now = [slice_of("3g.40gb", board="x"), slice_of("3g.40gb", board="y")]
    boards, places = pack_slices([*now, slice_of("2g.20gb")], 4)
    assert [board.name for board in boards] == ["x", "y"]
    assert [board for board, _position in places] == [0, 1, 0]


def test_small_jobs_share_a_board_of_a_plan() -> None:
    """Two jobs that need a slice each are planned on one cut board, the second is free."""
    jobs = [make_job(f"a/{name}", gpu_model=A100) for name in "xy"]
    problem = case(
        *((job, 0.05, 5_000.0, None) for job in jobs),
        gpus=[
            *(gpu("n0", index, A100, f"a/{name}") for index, name in enumerate("xy")),
            gpu("n0", 0, A100, mig_instance="1", mig_profile="1g.10gb"),
        ],
    )
    plan = build_plan(problem, budget_seconds=30, created_at=problem.as_of)
    stays = [stay for job in plan.jobs for stay in job.stays]
    assert {stay.mig_board for stay in stays} == {0}
    assert len({stay.mig_position for stay in stays}) == 2
    assert all(step.mig_profile for job in plan.jobs for step in job.steps)
