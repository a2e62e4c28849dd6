"""Boards that are not read: no change of their job rests on what the others show."""

from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
from beds.stores import filled
from factories import NOW, make_collected, make_job, make_samples
from planning_cases import AS_OF, H100, L40S, boards, case, day_in_slots, history_of

from data.facts.jobs import WorkloadKind
from planner.problem.planning_problem import PlanningProblem

COUNT = 4
LOADS = {
    "stop": (0.0, 9_000.0, 400.0),
    "shrink": (0.1, 9_000.0, 600.0),
    "cap": (0.9, 60_000.0, 2_760.0),
}
"""Level, memory in MiB and power in W of a job on four boards that is to be changed."""


def problem_of(load: str, history: pd.DataFrame) -> PlanningProblem:
    """A problem of one job with such a load that was read as the history tells."""
    job = make_job("lab/job/x", gpu_count=COUNT, gpu_model=H100, kind=WorkloadKind.TRAINING)
    gpus = [*boards(H100, 8), *boards(L40S, 8)]
    return case((job, *LOADS[load]), gpus=gpus, planning=day_in_slots(60), history=history)


def changes_of(problem: PlanningProblem) -> set[str]:
    """The ways in which its job may be changed."""
    _present, *others = (option.configuration for option in problem.jobs[0].options)
    return {
        "cap" if other.power_cap_watts else "shrink" if other.gpu_count else "stop"
        for other in others
    }


def told(load: str) -> pd.DataFrame:
    """Two days of a job of which all is read."""
    return history_of(make_job("lab/job/x", gpu_count=COUNT), *LOADS[load])


@pytest.mark.parametrize("load", LOADS)
def test_a_job_whose_boards_are_all_read_is_changed(load: str) -> None:
    """Else the tests below show nothing."""
    assert load in changes_of(problem_of(load, told(load)))


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("read", range(1, COUNT))
def test_nothing_is_proposed_where_some_boards_have_no_readings(load: str, read: int) -> None:
    """The scheduler tells of four, and exporters of fewer."""
    history = told(load)
    history["allocated_gpus"] = float(read)
    problem = problem_of(load, history)
    assert not changes_of(problem)
    assert f"{read} of its {COUNT} GPUs were read" in problem.jobs[0].keep_reason


@pytest.mark.parametrize("load", LOADS)
def test_nothing_is_proposed_where_the_activity_of_some_is_unknown(load: str) -> None:
    """Since an hour ago: what came before is what all of them did."""
    history = told(load)
    late = history["slot_start"] >= AS_OF - timedelta(hours=1)
    columns = ["effective_gpus", "utilization_ratio", "utilization_max_ratio"]
    history.loc[late, columns] = np.nan
    problem = problem_of(load, history)
    assert not changes_of(problem)
    assert "utilization" in problem.jobs[0].keep_reason


def test_boards_that_are_read_again_are_judged_again() -> None:
    """One reading of all in the last hour is enough."""
    history = told("shrink")
    history.loc[history.index[:-1], "allocated_gpus"] = 1.0
    assert "shrink" in changes_of(problem_of("shrink", history))


@pytest.mark.parametrize("unread", range(COUNT + 1))
@pytest.mark.parametrize("column", ["power_watts", "utilization_ratio"])
def test_what_a_job_does_is_unknown_while_a_board_of_it_is(
    column: str, unread: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The others' mean stands for none that was not read."""
    frame = make_samples(gpus=COUNT)
    late = frame["gpu_uuid"].isin(sorted(frame["gpu_uuid"].unique())[:unread])
    frame.loc[late, column] = np.nan
    path = tmp_path_factory.mktemp("unread") / "t.duckdb"
    with filled(f"duckdb:///{path}") as store:
        store.keep(make_collected(frame, (make_job(gpu_count=COUNT),)))
        rows = store.reader.job_history(
            "", start=NOW - timedelta(hours=2), end=NOW, slot_seconds=3600
        )
    names = [column] if column == "power_watts" else [column, "effective_gpus"]
    assert len(rows)
    assert rows["allocated_gpus"].eq(COUNT).all()
    for name in names:
        assert rows[name].isna().all() == (unread > 0), name


@pytest.mark.parametrize("others", [0.0, 0.5])
def test_work_that_is_seen_is_work_whatever_is_unread(
    others: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A board at work is work of its job; beside idle ones the unread one may be at work."""
    frame = make_samples(gpus=2)
    first = frame["gpu_uuid"] == frame["gpu_uuid"].iloc[0]
    frame["utilization_ratio"] = np.where(first, np.nan, others)
    path = tmp_path_factory.mktemp("unread") / "t.duckdb"
    with filled(f"duckdb:///{path}") as store:
        store.keep(make_collected(frame, (make_job(gpu_count=2),)))
        rows = store.reader.job_history(
            "", start=NOW - timedelta(hours=2), end=NOW, slot_seconds=3600
        )
    assert rows["utilization_max_ratio"].isna().all() == (others == 0.0)
