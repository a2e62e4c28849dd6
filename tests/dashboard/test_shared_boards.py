"""A board that several jobs share is one board: in the plan, in idle, in cost and by command."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from beds.board_readings import board_series, pod_labels, write_answer

from dashboard.accounting.savings.idle_bridge import idle_sum
from dashboard.cli import main
from data.records.plans import Plan
from data.store import open_store

MODEL = "L40S-48GB"


def planned(folder: Path, series: list[dict[str, Any]]) -> tuple[str, Plan]:
    """The store after a recording and a cycle, and its plan."""
    url = f"duckdb:///{folder}/t.duckdb"
    path = write_answer(folder / "readings.json", series)
    command = ["--quiet", "--store", url]
    assert main([*command, "import", "--kind", "prometheus-json", str(path)]) == 0
    assert main([*command, "cycle"]) == 0
    with open_store(url) as store:
        plan = store.reader.latest_plan()
    assert plan is not None
    return url, plan


def rows(
    url: str, capsys: pytest.CaptureFixture[str], command: Sequence[str]
) -> list[dict[str, Any]]:
    """What a command lists."""
    capsys.readouterr()
    assert main(["--quiet", "--store", url, *command, "--format", "json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def sliced(*pods: str, uuid: str = "GPU-7a", index: int = 0) -> list[dict[str, Any]]:
    """A board of a node that time slicing gives to these pods, '' for a replica that is free."""
    return [
        entry
        for number, pod in enumerate(pods)
        for entry in board_series(
            uuid,
            "n-shared",
            MODEL,
            index=index,
            percent=30,
            labels={"vgpu": str(number)} | (pod_labels(pod) if pod else {}),
        )
    ]


@pytest.mark.parametrize("pods", [2, 5])
def test_a_time_sliced_board_is_planned_and_paid_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pods: int
) -> None:
    """It costs what a board of one pod costs, no node is invented, and all jobs sit on it."""
    names = [f"nb-{number}" for number in range(pods)]
    for folder in ("one", "several"):
        (tmp_path / folder).mkdir()
    _url, alone = planned(tmp_path / "one", board_series("GPU-7a", "n-shared", MODEL, percent=30,
                                                         labels=pod_labels("nb")))  # fmt: skip
    url, plan = planned(tmp_path / "several", sliced(*names, ""))
    assert [(node.node, node.gpus) for node in plan.nodes] == [("n-shared", 1)]
    assert {(stay.node, stay.gpus) for job in plan.jobs for stay in job.stays} == {("n-shared", 1)}
    assert len(plan.jobs) == pods
    assert idle_sum(plan).held == pytest.approx(1.0)
    assert plan.cost_of_now == pytest.approx(alone.cost_of_now, rel=0.01)
    (board,) = rows(url, capsys, ["gpus"])
    assert {board["job_id"], *board["shares_with"].split(", ")} == {f"lab/{n}" for n in names}


def test_nothing_is_proposed_for_one_holder_and_the_reason_names_all(tmp_path: Path) -> None:
    """An idle job beside a busy one keeps its part of the board, and the other is named."""
    _url, plan = planned(tmp_path, sliced("nb-a", "nb-b"))
    for job in plan.jobs:
        (other,) = {"lab/nb-a", "lab/nb-b"} - {job.job_id}
        assert job.shares_with == (other,)
        assert set(job.steps) == {job.now}
        assert job.idle is not None
        assert f"shares its GPUs with {other}" in job.idle.reason


def test_a_board_of_its_own_beside_a_shared_one_is_a_whole_one(tmp_path: Path) -> None:
    """A job on a shared and on a whole board has one and a half of them."""
    shared = sliced("big", "nb-b")
    own = board_series("GPU-7b", "n-shared", MODEL, index=1, labels=pod_labels("big"))
    _url, plan = planned(tmp_path, [*shared, *own])
    held = {job.job_id: job.idle.held for job in plan.jobs if job.idle}
    assert held == {"lab/big": pytest.approx(1.5), "lab/nb-b": pytest.approx(0.5)}
    assert [(node.node, node.gpus) for node in plan.nodes] == [("n-shared", 2)]
