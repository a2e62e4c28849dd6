"""Boards that pods claim (dynamic resource allocation): known by UUID, and never counted twice."""

from pathlib import Path
from typing import Any

import pytest
from beds.kubernetes_lists import (
    CLAIMS,
    GPU,
    NODES,
    PODS,
    SLICES,
    facts,
    node,
    only,
    pod,
    thing,
    told,
)

from data.boards.board_shares import SHARED_BOARDS
from data.facts.gpu_resources import UNREAD_SUFFIX
from data.records.feasible_changes import UNREAD_REQUEST, configuration_refusal
from data.records.plans import Configuration


def claim(name: str, *devices: str, **more: Any) -> dict[str, Any]:
    """A claim that was given these devices of n1."""
    results = [
        {"driver": "gpu.nvidia.com", "pool": "n1", "device": device} | more for device in devices
    ]
    return thing("ResourceClaim", name, status={"allocation": {"devices": {"results": results}}})


def claiming(name: str, claimed: str) -> dict[str, Any]:
    """A pod with a claim and no resource."""
    document = pod(name, limits={})
    document["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claimed}]
    return dict(document)


@pytest.mark.parametrize("place", [(), ("basic",)])
def test_a_claimed_board_is_known_by_its_uuid(tmp_path: Path, place: tuple[str, ...]) -> None:
    """The driver names boards by minor number, no index; its slices tell UUIDs, in lower case."""
    uuid = "650f49e1-eb8f-4d88-8756-776ef8f06151"
    told_of: Any = {
        "attributes": {
            "uuid": {"string": f"gpu-{uuid}"},
            "productName": {"string": "NVIDIA H200"},
        }
    }
    for name in place:
        told_of = {name: told_of}
    spec = {
        "driver": "gpu.nvidia.com",
        "nodeName": "n1",
        "pool": {"name": "n1"},
        "devices": [{"name": "gpu-5"} | told_of],
    }
    lists = {
        PODS: [claiming("a", "c")],
        CLAIMS: [claim("c", "gpu-5")],
        SLICES: [{"metadata": {"name": "s"}, "spec": spec}],
    }
    found = told(lists, tmp_path)
    rows = found.allocations[["gpu_uuid", "gpu_index", "gpu_count"]].drop_duplicates()
    assert rows.to_numpy().tolist() == [[f"GPU-{uuid}", "", 1.0]]
    assert only(found).gpu_model == "H200-SXM-141GB"


def test_an_instance_that_is_claimed_is_no_board(tmp_path: Path) -> None:
    """Else the boards of a node would be the pod's as soon as it holds as many instances."""
    names = ["gpu-0-mig-19-0-1", "gpu-0-mig-19-1-1"]
    found = told({PODS: [claiming("a", "c")], CLAIMS: [claim("c", *names)]}, tmp_path)
    assert (only(found).gpu_count, only(found).mig_profile) == (2, "")
    assert found.allocations["gpu_count"].isna().all()


def test_a_monitor_with_admin_access_holds_nothing(tmp_path: Path) -> None:
    """The claim of an exporter names every board and takes none."""
    lists = {PODS: [claiming("exporter", "c")], CLAIMS: [claim("c", "gpu-0", adminAccess=True)]}
    found = told(lists, tmp_path)
    assert (found.jobs, len(found.allocations)) == ((), 0)


BOARD = {"deviceClassName": "gpu.nvidia.com"}
NOT_UNDERSTOOD: list[tuple[dict[str, Any], str]] = [
    ({"exactly": BOARD | {"allocationMode": "All"}}, "allocationMode All"),
    ({"exactly": BOARD | {"allocationMode": "Half"}}, "allocationMode Half"),
    ({"exactly": BOARD | {"allocationMode": 5}}, "allocationMode 5"),
    ({"exactly": BOARD | {"count": "two"}}, "count two"),
    ({"exactly": BOARD | {"count": 1.5}}, "count 1.5"),
    ({"exactly": BOARD | {"count": 0}}, "count 0"),
    ({"exactly": BOARD | {"adminAccess": "maybe"}}, "adminAccess maybe"),
    ({"exactly": BOARD | {"capacity": {"requests": {"memory": "20Gi"}}}}, "capacity"),
    ({"exactly": BOARD | {"ofLaterReleases": {"any": 1}}}, "ofLaterReleases"),
    ({"exactly": BOARD, "ofLaterReleases": 1}, "ofLaterReleases"),
    ({"firstAvailable": [BOARD | {"name": "a", "count": 2}, BOARD | {"name": "b"}]}, "firstAvail"),
    ({"exactly": {"deviceClassName": "h100.example.com"}}, "deviceClassName h100.example.com"),
    ({"exactly": {}}, "deviceClassName"),
]


def waiting(request: dict[str, Any]) -> dict[str, list[Any]]:
    """A pod that waits for a claim with one request, written as in v1 or before it."""
    made = thing("ResourceClaim", "c", spec={"devices": {"requests": [{"name": "r"} | request]}})
    document = claiming("a", "c")
    document["spec"].pop("nodeName", None)
    document["status"] = {"phase": "Pending"}
    return {PODS: [document], CLAIMS: [made]}


@pytest.mark.parametrize("before_v1", [False, True])
@pytest.mark.parametrize(("request_of", "word"), NOT_UNDERSTOOD)
def test_a_request_that_is_not_understood_is_told_and_counts_nothing(
    tmp_path: Path, request_of: dict[str, Any], word: str, before_v1: bool
) -> None:
    """One board, the default, would be a number that nobody asked for."""
    if before_v1:
        request_of = request_of | request_of.get("exactly", {})
        request_of.pop("exactly", None)
    found = told(waiting(request_of), tmp_path)
    assert (found.jobs, dict(found.report.dropped)) == ((), {"request-not-understood": 1})
    (text,) = [line for line in found.report.warnings if UNREAD_SUFFIX in line]
    assert "ml/a" in text
    assert word in text
    assert text in found.report.reason


@pytest.mark.parametrize(
    ("request_of", "count"),
    [
        ({"exactly": BOARD}, 1),
        ({"exactly": BOARD | {"allocationMode": "ExactCount", "count": 3, "selectors": [{}]}}, 3),
        ({"exactly": BOARD | {"adminAccess": False, "tolerations": []}}, 1),
        ({"exactly": BOARD | {"adminAccess": True}}, 0),
        ({"exactly": {"deviceClassName": "compute-domain-daemon.nvidia.com"}}, 0),
        (BOARD | {"count": 2}, 2),
    ],
)
def test_a_request_that_is_understood_is_counted(
    tmp_path: Path, request_of: dict[str, Any], count: int
) -> None:
    """Fields that choose among boards change no number of them."""
    found = told(waiting(request_of), tmp_path)
    assert sum(job.gpu_count for job in found.jobs) == count
    assert not [line for line in found.report.warnings if UNREAD_SUFFIX in line]


@pytest.mark.parametrize(("request_of", "_word"), NOT_UNDERSTOOD)
def test_what_a_claim_was_given_counts_whatever_it_asked_for(
    tmp_path: Path, request_of: dict[str, Any], _word: str
) -> None:
    """With `All` as many boards as the node had."""
    held = claim("c", "gpu-0", "gpu-1", "gpu-2")
    held["spec"] = {"devices": {"requests": [{"name": "r"} | request_of]}}
    found = told({PODS: [claiming("a", "c")], CLAIMS: [held]}, tmp_path)
    assert only(found).gpu_count == 3
    assert not [line for line in found.report.warnings if UNREAD_SUFFIX in line]


def test_one_request_that_is_not_understood_beside_another_holds_back_every_change(
    tmp_path: Path,
) -> None:
    """The number of GPUs is then that of a part."""
    lists = waiting({"exactly": BOARD | {"count": 2}})
    lists[CLAIMS][0]["spec"]["devices"]["requests"].append(
        {"exactly": NOT_UNDERSTOOD[0][0]["exactly"]}
    )
    job = only(told(lists, tmp_path))
    assert "allocationMode All" in job.extra[UNREAD_REQUEST]
    fewer = Configuration(gpu_model=job.gpu_model, gpu_count=1)
    assert "is not understood" in configuration_refusal(job, fewer)


@pytest.mark.parametrize("mark", [{"shareID": "s"}, {"consumedCapacity": {"memory": "20Gi"}}])
def test_a_device_that_claims_have_parts_of_is_no_board_of_either(
    tmp_path: Path, mark: dict[str, Any]
) -> None:
    """Two claims of one device would count as two boards."""
    pods = [claiming("a", "c"), claiming("b", "d")]
    claims = [claim("c", "gpu-0", **mark), claim("d", "gpu-0", **mark)]
    found = told({PODS: pods, CLAIMS: claims}, tmp_path)
    assert len(found.jobs) == 2
    assert (found.allocations["gpu_count"] < 1).all()
    assert {dict(job.extra)[SHARED_BOARDS] for job in found.jobs} == {"n1:0"}


@pytest.mark.parametrize("kind", ["mig", "partition"])
@pytest.mark.parametrize("described", [True, False])
def test_a_part_of_a_device_is_no_board(tmp_path: Path, kind: str, described: bool) -> None:
    """Devices that can be parted name their parts as they like."""
    devices = [{"name": "half-0", "attributes": {"type": {"string": kind}}}] * described
    spec = {"driver": "gpu.nvidia.com", "nodeName": "n1", "pool": {"name": "n1"}}
    slices = [{"metadata": {"name": "s"}, "spec": spec | {"devices": devices}}]
    lists = {PODS: [claiming("a", "c")], CLAIMS: [claim("c", "half-0")], SLICES: slices}
    assert told(lists, tmp_path).allocations["gpu_count"].isna().all()


@pytest.mark.parametrize(
    ("limits", "spec", "notes"),
    [
        ({GPU: "1", "nvidia.com/gpumem": "20000"}, {}, {}),
        ({GPU: "1", "nvidia.com/gpucores": "30"}, {}, {}),
        ({}, {"schedulerName": "kai-scheduler"}, {"gpu-fraction": "0.5"}),
    ],
)
def test_a_piece_of_a_board_is_no_board(
    tmp_path: Path, limits: Any, spec: Any, notes: dict[str, str]
) -> None:
    """HAMi counts pieces under the name of boards; KAI asks for them by annotation."""
    document = pod("a", limits=limits)
    document["spec"] |= spec
    document["metadata"]["annotations"] = notes
    found = told({PODS: [document], NODES: [node("n1", "1")]}, tmp_path)
    assert only(found).gpu_count == 1
    assert "sharing" in dict(facts(found).extra)
    assert (found.allocations["gpu_count"] < 1).all()
