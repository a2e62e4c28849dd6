"""Pods that share boards: what Kubernetes tells of who is on which, and what that makes of each."""

from pathlib import Path
from typing import Any

import pytest
from beds.kubernetes_lists import CLAIMS, GPU, NODES, PODS, SLICES, node, pod, told

from data.boards.board_shares import board_shares
from data.boards.unplanned_jobs import occupied
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.fleet import BoardShare

UUID = "GPU-5f0c1a2b-0000-4444-8888-00000000000{}"
MIG = "nvidia.com/mig-3g.40gb"


def shares_of(found: Collected) -> dict[str, BoardShare]:
    """The shares by job that the scheduler alone tells."""
    return board_shares((), found.jobs, load_gpu_catalogue())


def slicing(name: str, boards: int, replicas: int, strategy: str = "time-slicing") -> Any:
    """A node whose device plugin hands each board to several pods."""
    made = node(name, str(boards * replicas))
    made["metadata"]["labels"] |= {
        "nvidia.com/gpu.sharing-strategy": strategy,
        "nvidia.com/gpu.count": str(boards),
        "nvidia.com/gpu.replicas": str(replicas),
    }
    return made


def annotated(name: str, limits: Any, notes: dict[str, str]) -> Any:
    """A pod with annotations."""
    made = pod(name, limits=limits)
    made["metadata"]["annotations"] = notes
    return made


@pytest.mark.parametrize("strategy", ["time-slicing", "mps"])
@pytest.mark.parametrize(
    ("boards", "pods", "each", "kept"), [(1, 3, 1 / 3, 1), (2, 5, 0.4, 2), (4, 3, 1.0, 3)]
)
def test_replicas_of_a_board_are_parts_of_it(
    tmp_path: Path, strategy: str, boards: int, pods: int, each: float, kept: int
) -> None:
    """As many boards are in use as pods can be spread over; the pods' parts add up to them."""
    limits = {GPU: "1"}
    lists = {
        NODES: [slicing("n1", boards, 8, strategy)],
        PODS: [pod(f"p{number}", limits=limits) for number in range(pods)],
    }
    found = told(lists, tmp_path)
    shares = shares_of(found)
    assert len(shares) == len(found.jobs) == pods
    assert [share.boards for share in shares.values()] == pytest.approx([each] * pods)
    assert all(strategy in share.why for share in shares.values())
    assert shares["ml/pod/p0"].others == tuple(f"ml/pod/p{number}" for number in range(1, pods))
    used = occupied(found.jobs, (), found.nodes)[found.nodes[0].name, found.nodes[0].gpu_model]
    assert min(used, boards) == kept


def test_a_pod_with_whole_boards_and_a_slice_has_both(tmp_path: Path) -> None:
    """One board and one 3g.40gb are no two slices, and no two boards."""
    offered = node("n1", "4")
    offered["status"]["allocatable"] |= {MIG: "4"}
    lists = {NODES: [offered], PODS: [pod("mixed", limits={GPU: "2", MIG: "1"})]}
    found = told(lists, tmp_path)
    (job,) = found.jobs
    assert (job.gpu_count, job.mig_profile) == (3, "2 × whole + 1 × 3g.40gb")
    assert found.report.dropped == ()
    assert shares_of(found)[job.job_id].boards == pytest.approx(2.5)
    assert occupied(found.jobs, (), found.nodes) == {("n1", job.gpu_model): 2}


def test_hami_says_on_which_boards_its_pods_are(tmp_path: Path) -> None:
    """Two pods are on one board, the third is alone on another."""
    limits = {GPU: "1", "nvidia.com/gpumem-percentage": "25", "nvidia.com/gpucores": "20"}
    pods = [
        annotated(
            f"h{number}",
            limits,
            {"hami.io/vgpu-devices-allocated": f"{UUID.format(board)},NVIDIA,20390,20:;"},
        )
        for number, board in enumerate((1, 1, 2))
    ]
    found = told({PODS: pods}, tmp_path)
    shares = shares_of(found)
    assert {name[-2:]: share.boards for name, share in shares.items()} == {
        "h0": 0.5, "h1": 0.5, "h2": 1.0,
    }  # fmt: skip
    rows = found.allocations
    assert set(rows["gpu_uuid"]) == {UUID.format(1), UUID.format(2)}
    assert set(rows["gpu_count"]) == {0.25}
    assert occupied(found.jobs, (), found.nodes) == {("n1", found.jobs[0].gpu_model): 2}


def test_what_kai_reserves_is_of_its_group_and_no_job(tmp_path: Path) -> None:
    """The pod that reserves the board is nobody's work; readings of it are its group's."""
    reserving = annotated("reserve-1", {GPU: "1"}, {"run.ai/reserve_for_gpu_index": UUID.format(3)})
    reserving["metadata"]["labels"] = {"runai-gpu-group": "g1"}
    pods = [reserving]
    for name, fraction in (("a", "0.25"), ("b", "0.5")):
        member = annotated(name, {}, {"gpu-fraction": fraction})
        member["metadata"]["labels"] = {"runai-gpu-group": "g1"}
        member["spec"]["schedulerName"] = "kai-scheduler"
        pods.append(member)
    found = told({PODS: pods}, tmp_path)
    assert [job.name for job in found.jobs] == ["a", "b"]
    assert dict(found.report.dropped) == {"board-reservation": 1}
    shares = shares_of(found)
    assert [share.boards for share in shares.values()] == [0.5, 0.5]
    assert "KAI, 0.25 of a GPU" in shares["ml/pod/a"].why
    rows = found.allocations
    assert set(rows["gpu_uuid"]) == {UUID.format(3)}
    assert set(rows[rows["label_id"] == "ml/reserve-1"]["gpu_count"]) == {0.25, 0.5}


@pytest.mark.parametrize("users", [1, 2, 3])
def test_a_claim_that_pods_share_is_one_board(tmp_path: Path, users: int) -> None:
    """Each of n pods has 1/n of the device of their claim; alone it has all of it."""
    names = [f"d{number}" for number in range(users)]
    pods = []
    for name in names:
        made = pod(name, limits={})
        made["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": "both"}]
        pods.append(made)
    result = {"driver": "gpu.nvidia.com", "pool": "n1", "request": "r", "device": "gpu-5"}
    claim = {
        "metadata": {"name": "both", "namespace": "ml"},
        "spec": {},
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": name} for name in names],
        },
    }
    uuid = {"uuid": {"string": UUID.format(5).lower()}}
    device = {"name": "gpu-5", "attributes": uuid}
    of_node = {"driver": "gpu.nvidia.com", "nodeName": "n1", "pool": {"name": "n1"}}
    part = {"metadata": {"name": "s"}, "spec": of_node | {"devices": [device]}}
    found = told({PODS: pods, CLAIMS: [claim], SLICES: [part]}, tmp_path)
    assert set(found.allocations["gpu_uuid"]) == {UUID.format(5)}
    assert set(found.allocations["gpu_count"]) == {1 / users}
    shares = shares_of(found)
    assert [share.boards for share in shares.values()] == [1 / users] * (users if users > 1 else 0)
    assert occupied(found.jobs, (), found.nodes) == {("n1", found.jobs[0].gpu_model): 1}
