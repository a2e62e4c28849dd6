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
