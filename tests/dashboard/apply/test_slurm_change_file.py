"""Slurm change files: from what the store knows, by the moves of the live change."""

from typing import Any

import pytest
from beds.slurm_apply import MODEL, proposal
from factories import NOW, make_job

from dashboard.apply.worker.change_file import change_for
from data.base.errors import ChangeRefusedError
from data.facts.jobs import Job, JobState, Platform, SchedulerFacts
from data.records.actions import Action
from data.records.plans import Configuration
from data.records.recommendations import Recommendation


def stored(state: JobState = JobState.RUNNING, nodes: int = 1, **extra: str) -> Job:
    """A Slurm job as a collection left it in the store."""
    facts = SchedulerFacts(
        state=state,
        nodes=() if state is JobState.PENDING else tuple(f"n{index}" for index in range(nodes)),
        submitted_at=NOW,
        time_limit_seconds=3600.0,
        extra=tuple({"nodes_requested": str(nodes), **extra}.items()),
    )
    return make_job("slurm:7", platform=Platform.SLURM, namespace="gpu", scheduler=facts)


def commands(recommendation: Recommendation, job: Job) -> list[str]:
    """The lines of the file that change something."""
    text = change_for(recommendation, (), job).text
    changing = ("scontrol update", "scontrol requeuehold", "scontrol release", "scontrol uhold")
    return [line for line in text.splitlines() if line.startswith((*changing, "scancel"))]


def test_a_waiting_job_is_changed_where_it_waits() -> None:
    """In the spelling and with the type name that Slurm itself told."""
    job = stored(JobState.PENDING, nodes=2, gres="gres/gpu:h100-sxm:4", gres_per="node")
    assert commands(proposal("7", 8, 4), job) == ["scontrol update JobId=7 Gres=gpu:h100-sxm:2"]
    total = stored(JobState.PENDING, gres="gres:gpu:4", gres_per="job")
    with pytest.raises(ChangeRefusedError, match="with --gpus, which"):
        commands(proposal("7", 4, 2), total)


def test_a_running_job_of_several_nodes_gives_some_back() -> None:
    """No requeue where whole nodes are enough."""
    job = stored(nodes=4, gres="gres:gpu:h100:4", gres_per="node")
    assert commands(proposal("7", 16, 8), job) == ["scontrol update JobId=7 NumNodes=2"]
    assert commands(proposal("7", 16, 4 * 3 + 2), job)[0] == "scontrol requeuehold 7"


@pytest.mark.parametrize(
    ("action", "details", "expected"),
    [
        (
            Action.TIME_LIMIT,
            (("time_limit_seconds", "1200"),),
            "scontrol update JobId=7 TimeLimit=20",
        ),
        (
            Action.SHIFT_IN_TIME,
            (("begin_at", "2026-01-06T03:00:00+02:00"),),
            "scontrol update JobId=7 StartTime=2026-01-06T01:00:00",
        ),
        (
            Action.CONSOLIDATE,
            (("node", "h100-02"),),
            "scontrol update NodeName=h100-02 State=DRAIN 'Reason=trimtab ",
        ),
    ],
)
def test_other_actions_are_written_as_well(action: Action, details: Any, expected: str) -> None:
    """A limit in minutes, a start in UTC, a node with the reason that marks it as ours."""
    job = stored(JobState.PENDING, gres="gres:gpu:h100:1", gres_per="node")
    lines = commands(proposal("7", 1, 1, action=action, details=details), job)
    assert len(lines) == 1
    assert lines[0].startswith(expected)


def test_a_cut_is_not_written() -> None:
    """Nodes of Slurm are cut by their administrators."""
    nothing = Configuration(gpu_model=MODEL, gpu_count=0)
    cut = proposal("", 2, 0, action=Action.MIG_LAYOUT, details=(("node", "n1"),), proposed=nothing)
    with pytest.raises(ChangeRefusedError, match="by hand"):
        change_for(cut, ())


def test_one_task_is_cancelled_by_its_place() -> None:
    """22.05 ignores `scancel` of a task's raw number."""
    job = stored(array_job="5", array_task="3", gres="gres:gpu:h100:1", gres_per="node")
    nothing = Configuration(gpu_model=MODEL, gpu_count=0)
    reclaim = proposal("7", 1, 0, action=Action.RECLAIM, proposed=nothing)
    assert commands(reclaim, job) == ["scancel 5_3"]


def test_another_type_comes_with_the_warning_about_old_releases() -> None:
    """The file does not know the release: a person has to look."""
    job = stored(JobState.PENDING, gres="gres:gpu:h100:2", gres_per="node")
    smaller = proposal(
        "7",
        2,
        2,
        action=Action.SMALLER_GPU,
        proposed=Configuration(gpu_model="A100-SXM4-80GB", gpu_count=2),
    )
    text = change_for(smaller, (), job).text
    assert "scontrol update JobId=7 Gres=gpu:a100:2" in text
    assert "Slurm before 24.11" in text


@pytest.mark.parametrize(
    "job",
    [
        stored(JobState.PENDING, gres="gpu:h100;reboot:4", gres_per="node"),
        stored(JobState.PENDING, gres="gpu:h100:2,gpu:a100:2", gres_per="node"),
        stored(JobState.PENDING, gres="shard:4", gres_per="node"),
    ],
)
def test_requests_that_cannot_be_read_reach_no_file(job: Job) -> None:
    """A hostile word, two types, a share."""
    with pytest.raises(ChangeRefusedError):
        change_for(proposal("7", 4, 2), (), job)


def test_a_hostile_node_reaches_no_file() -> None:
    """A node's name comes from a recommendation's details."""
    hostile = proposal("7", 1, 1, action=Action.CONSOLIDATE, details=(("node", "x; reboot"),))
    with pytest.raises(ChangeRefusedError, match="name of a node"):
        change_for(hostile, (), stored())


def test_the_way_back_of_a_running_job_that_lost_nodes_is_a_requeue() -> None:
    """Slurm gives nodes back to a waiting job alone: what is shown is what a rollback does."""
    job = stored(nodes=4, gres="gres:gpu:h100:4", gres_per="node")
    text = change_for(proposal("7", 16, 8), (), job).text
    assert "the way back requeues it" in text
    back = text.partition("The way back:\n")[2].splitlines()
    assert [line.removeprefix("#   ").split("|")[0].strip() for line in back] == [
        "scontrol requeuehold 7",
        "until scontrol show job 7",
        "scontrol update JobId=7 NumNodes=4-4",
        "scontrol update JobId=7 Gres=gpu:h100:4",
        "scontrol release 7",
    ]
