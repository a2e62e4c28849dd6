"""Accelerators that are not read: counted by name on every door, never passed over in silence."""

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from beds.kubernetes_lists import (
    CLAIMS,
    CLASSES,
    GPU,
    NODES,
    PODS,
    SLICES,
    TEMPLATES,
    node,
    only,
    pod,
    served,
    told,
)
from beds.slurm_replay import RECORDED, command_folder, recorded_commands

from collectors.kubernetes.findings import kubernetes_findings
from collectors.kubernetes.objects import gpu_resources
from collectors.readings.exposition_text import read_dcgm_text
from collectors.readings.metric_names import unread_metrics
from collectors.shared.collector import Window
from collectors.shared.json_parts import quantity
from collectors.slurm.backend import SlurmAnswers, read_nodes, read_queue
from collectors.slurm.jobs import SlurmCollector, slurm_findings
from collectors.slurm.unread import unread_gres
from dashboard.apply.kubernetes.state.pod_spec import profile_of, roles_of
from dashboard.apply.kubernetes.state.quotas import limit_refusal, refusal
from data.base.errors import UnexpectedAnswerError
from data.boards.unplanned_jobs import required_nodes_on
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.gpu_resources import UNREAD_SUFFIX, is_accelerator, resource_of
from data.settings.sources import SlurmSettings

UNREAD = (
    "habana.ai/gaudi",
    "gpu.intel.com/xe",
    "google.com/tpu",
    "aws.amazon.com/neuroncore",
    "huawei.com/Ascend910B",
    "hygon.com/dcunum",
    "aliyun.com/gpu-mem",
    "tencent.com/vcuda-core",
    "nvidia.com/AD102GL_L40S",
    "nvidia.com/GRID_A16-4Q",
    "amd.com/cpx_nps4",
    "gpu.example.org/card",
)
"""Names of resources that plugins of the field offer and no reader here understands."""
OTHERS = (
    "cpu",
    "memory",
    "ephemeral-storage",
    "hugepages-2Mi",
    "nvidia.com/hostdev",
    "nvidia.com/mlnxnics",
    "rdma/hca_shared_devices_a",
    "devices.kubevirt.io/kvm",
    "vpc.amazonaws.com/efa",
    "example.org/input-device",
    "example.org/output",
)
"""Resources that are no accelerators."""


def machine(name: str, offered: dict[str, str], labels: dict[str, str] | None = None) -> Any:
    """A ready node that offers these resources beside its CPUs."""
    found = node(name)
    found["metadata"]["labels"] = labels or {}
    found["status"]["allocatable"] = {"cpu": "64", "memory": "512Gi"} | offered
    return found


def unread_texts(found: Collected) -> list[str]:
    """The warnings of the source about accelerators."""
    return [text for text in found.report.warnings if UNREAD_SUFFIX in text]


def test_names_of_accelerators_are_told_from_other_devices() -> None:
    """Any vendor's board counts, network cards and host resources do not."""
    assert [name for name in UNREAD if not is_accelerator(name)] == []
    assert [name for name in OTHERS if is_accelerator(name)] == []


@pytest.mark.parametrize("seed", range(6))
def test_every_unread_accelerator_is_counted_by_name(tmp_path: Path, seed: int) -> None:
    """Drawn clusters: each name with its nodes and pods, none of what is read, none missing."""
    source = random.Random(seed)  # noqa: S311 # drawn clusters, no secret
    nodes, pods, expected = [node("whole")], [], {}
    for name in source.sample(UNREAD, source.randint(1, len(UNREAD))):
        held, asked = source.randint(1, 5), source.randint(0, 3)
        slug = name.replace("/", "-").replace(".", "-").lower()
        also = {GPU: "4"} if source.random() < 0.3 else {}
        count = source.choice(["8", "80k", "16Ki"])
        nodes += [machine(f"{slug}-{index}", {name: count} | also) for index in range(held)]
        pods += [
            pod(f"{slug}-{index}", at=f"{slug}-0", limits={name: "1"}) for index in range(asked)
        ]
        expected[name] = held, asked
    source.shuffle(nodes)
    found = told({NODES: nodes, PODS: pods}, tmp_path)
    texts = unread_texts(found)
    assert len(texts) == len(expected)
    for name, (held, asked) in expected.items():
        (text,) = [entry for entry in texts if f" {name}, which is {UNREAD_SUFFIX}" in entry]
        assert text.startswith(f"{held} node")
        assert (f"and {asked} pod" in text) == (asked > 0)
        assert text in found.report.reason
    ratio = found.report.completeness_ratio
    assert ratio is not None
    assert ratio <= 1 / (1 + sum(held for held, _asked in expected.values()))
    described = {entry.name: entry for entry in found.nodes}
    assert len(described) == len(nodes)
    assert all(
        (UNREAD_SUFFIX in entry.reason) == (name != "whole") for name, entry in described.items()
    )
    assert required_nodes_on([], [], found.nodes) == set(described) - {"whole"}


def test_doctor_is_not_content_with_a_cluster_that_is_read_in_part(tmp_path: Path) -> None:
    """No line about GPU resources is ok, and one names what is not read."""
    lists = {NODES: [node("n1"), machine("g1", {"habana.ai/gaudi": "8"})]}
    with served(lists, tmp_path) as settings:
        found = kubernetes_findings(settings)
    states = {(what, state) for what, state, _detail in found if "GPU res" in what or "acc" in what}
    assert states == {("GPU resources", "missing"), ("accelerators", "missing")}
    assert any("1 node (g1) holds habana.ai/gaudi" in detail for _what, _state, detail in found)
    with served({NODES: [node("n1")]}, tmp_path) as settings:
        assert not any(
            what == "accelerators" for what, _state, _detail in kubernetes_findings(settings)
        )


def test_pods_whose_request_is_not_understood_are_told_until_they_end(tmp_path: Path) -> None:
    """Nobody offers the resource, and a pod waits for it."""
    waits = pod("waits", at="", limits={"furiosa.ai/warboy": "1"}, phase="Pending")
    ended = pod("ended", limits={"rebellions.ai/ATOM": "1"}, phase="Succeeded")
    found = told({PODS: [waits, ended]}, tmp_path)
    assert unread_texts(found) == [
        f"1 pod (ml/waits) holds furiosa.ai/warboy, which is {UNREAD_SUFFIX}"
    ]


@pytest.mark.parametrize("text", ["8", "8.0", "8k", "2Ki", "1e3", 4])
def test_quantities_of_boards_are_read_in_every_notation(tmp_path: Path, text: str | int) -> None:
    """The API server writes 8000 as "8k": taken as 0, the node had no GPU and the pod no need."""
    count = int(quantity(text) or 0)
    big = machine("g1", {GPU: str(text)})
    found = told({NODES: [big], PODS: [pod("p", at="g1", limits={GPU: text})]}, tmp_path)
    assert gpu_resources(big) == {GPU: count}
    assert [job.gpu_count for job in found.jobs] == [count]
    assert unread_texts(found) == []


@pytest.mark.parametrize("text", ["many", "-2", "500m", "1.5", True])
def test_a_quantity_that_is_not_understood_is_told(tmp_path: Path, text: str | bool) -> None:
    """Neither node nor pod is without GPUs because nobody can read how many."""
    found = told({NODES: [machine("g1", {GPU: text}), node("n2")],
                  PODS: [pod("p", at="g1", limits={GPU: text})]}, tmp_path)  # fmt: skip
    (line,) = unread_texts(found)
    assert line == f"1 node (g1) and 1 pod (ml/p) hold {GPU}, which is {UNREAD_SUFFIX}"


@pytest.mark.parametrize(("limit", "refuses"), [("2", True), ("1k", False), ("plenty", False)])
def test_a_quota_that_is_not_understood_refuses_nothing(limit: str, refuses: bool) -> None:
    """It is no quota of 0, nor is "1k" one."""
    key = f"requests.{GPU}"
    quota = {"metadata": {"name": "gpus"}, "status": {"hard": {key: limit}, "used": {key: "1"}}}
    rule = {"type": "Pod", "max": {GPU: limit}}
    asks = {"containers": [{"resources": {"limits": {GPU: "3"}}}]}
    assert bool(refusal([quota], {GPU: 3})) == refuses
    assert bool(limit_refusal([{"spec": {"limits": [rule]}}], asks)) == refuses


def test_devices_of_another_driver_are_told_by_its_name(tmp_path: Path) -> None:
    """Resource claims of a driver that is not read, and not those of a network card's."""
    slices = [
        {"metadata": {"name": driver}, "spec": {"driver": driver, "nodeName": "n1",
         "pool": {"name": "n1"}, "devices": []}}
        for driver in ("gpu.intel.com", "dra.net", "gpu.nvidia.com")
    ]  # fmt: skip
    claim = {
        "metadata": {"name": "c", "namespace": "ml"},
        "status": {
            "allocation": {"devices": {"results": [{"driver": "gpu.intel.com", "device": "a"}]}},
            "reservedFor": [{"resource": "pods", "name": "sim"}],
        },
    }
    found = told({SLICES: slices, CLAIMS: [claim]}, tmp_path)
    assert unread_texts(found) == [
        f"1 node (n1) and 1 pod (ml/sim) hold gpu.intel.com, which is {UNREAD_SUFFIX}"
    ]


def claims_something(**limits: str) -> Any:
    """A pod that waits for a claim of its own, by which the API is asked for classes."""
    made = pod("p", at="n1", limits=limits)
    made["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimTemplateName": "big"}]
    return made


def device_class(name: str, driver: str, **spec: Any) -> Any:
    """A device class whose devices are those of a driver."""
    selector = {"cel": {"expression": f'device.driver == "{driver}" && true'}}
    return {"metadata": {"name": name}, "spec": {"selectors": [selector], **spec}}


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}, ""),
        ({"exactly": {"deviceClassName": "dra.net"}}, "dra.net of a claim"),
        ({"exactly": {"deviceClassName": "big-gpus"}}, "big-gpus of a claim"),
        ({"exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "All"}}, "All"),
        ({"firstAvailable": [{"deviceClassName": "gpu.nvidia.com"}]}, "firstAvailable"),
    ],
)
def test_a_template_of_claims_that_is_not_understood_is_told(
    tmp_path: Path, request_: Any, text: str
) -> None:
    """Before any pod of it has a claim, so that nothing waits unseen."""
    template = {
        "metadata": {"name": "big", "namespace": "ml"},
        "spec": {"spec": {"devices": {"requests": [{"name": "g", **request_}]}}},
    }
    lines = unread_texts(told({PODS: [claims_something()], TEMPLATES: [template]}, tmp_path))
    assert len(lines) == bool(text)
    assert all(line.startswith("1 claim template (ml/big) holds ") for line in lines)
    assert all(text in line for line in lines)


def test_a_device_class_that_is_not_understood_is_told(tmp_path: Path) -> None:
    """By the driver of its devices, and with who asks for them as for a resource (KEP-5004)."""
    classes = [
        device_class("gpu.nvidia.com", "gpu.nvidia.com"),
        device_class("fast-links", "dra.net", extendedResourceName="example.com/link"),
        device_class("tall", "gpu.example.com"),
        device_class("wide", "gpu.nvidia.com", extendedResourceName="example.com/wide"),
    ]
    pods = [claims_something(**{"example.com/wide": "2", "example.com/link": "1"})]
    assert unread_texts(told({PODS: pods, CLASSES: classes}, tmp_path)) == [
        f"1 pod (ml/p) and 1 device class (wide) hold example.com/wide, which is {UNREAD_SUFFIX}",
        f"1 device class (tall) holds gpu.example.com, which is {UNREAD_SUFFIX}",
    ]


def test_classes_are_asked_for_where_pods_have_claims(tmp_path: Path) -> None:
    """Elsewhere nobody needs the right to list them."""
    plain = told({PODS: [pod("p", at="n1", limits={GPU: "1"})]}, tmp_path, CLASSES, TEMPLATES)
    assert not [line for line in plain.report.warnings if "DeviceClass" in line]
    claims = told({PODS: [claims_something()]}, tmp_path, CLASSES, TEMPLATES)
    assert len([line for line in claims.report.warnings if "forbidden" in line]) == 2


@pytest.mark.parametrize("label", ["amd.com/gpu.product-name", "beta.amd.com/gpu.product-name"])
@pytest.mark.parametrize(
    ("product", "model"),
    [("AMD_Instinct_MI300X_OAM", "MI300X-192GB"), ("AMD_Instinct_MI325X", "MI325X-256GB")],
)
def test_boards_of_amd_are_boards(tmp_path: Path, label: str, product: str, model: str) -> None:
    """Nodes, jobs and their models from AMD's device plugin and labeller, as of NVIDIA's."""
    lists = {
        NODES: [machine("a1", {"amd.com/gpu": "8"}, {label: product})],
        PODS: [pod("train", at="a1", limits={"amd.com/gpu": "4"})],
    }
    found = told(lists, tmp_path)
    (described,) = found.nodes
    assert (described.gpu_model, described.gpu_count, described.reason) == (model, 8, "")
    job = only(found)
    assert (job.gpu_model, job.gpu_count) == (model, 4)
    assert job.scheduler is not None
    assert dict(job.scheduler.extra)["resource"] == "amd.com/gpu"
    assert found.allocations["gpu_count"].tolist() == [4.0, 4.0]
    assert found.report.completeness_ratio is not None
    assert unread_texts(found) == []


@pytest.mark.parametrize("strategy", ["time-slicing", "mps", "another-way", "none", ""])
def test_a_way_of_sharing_that_nobody_knows_is_sharing(tmp_path: Path, strategy: str) -> None:
    """Sixteen replicas of four boards are four boards, whatever the plugin calls it."""
    offers = machine("n9", {GPU: "16"}, {f"{GPU}.count": "4", f"{GPU}.sharing-strategy": strategy})
    (described,) = told({NODES: [offers]}, tmp_path).nodes
    assert described.gpu_count == (16 if strategy in ("none", "") else 4)


@pytest.mark.parametrize("count", ["", "four", "4.5", "-1"])
@pytest.mark.parametrize("resource", [GPU, f"{GPU}.shared"])
def test_replicas_of_a_number_of_boards_that_is_not_known_are_no_boards(
    tmp_path: Path, count: str, resource: str
) -> None:
    """Sixteen time slices are one board, or sixteen: the node is told, and has none until then."""
    labels = {f"{GPU}.sharing-strategy": "time-slicing"} | (
        {f"{GPU}.count": count} if count else {}
    )
    found = told({NODES: [machine("n9", {resource: "16"}, labels)]}, tmp_path)
    assert [described.gpu_count for described in found.nodes] == [0]
    (text,) = unread_texts(found)
    assert "n9" in text
    assert resource in text


@pytest.mark.parametrize("count", ["two", "1.5", "0", "-1"])
def test_a_number_of_boards_of_a_fraction_that_is_not_understood_is_told(
    tmp_path: Path, count: str
) -> None:
    """One board, the default, is not what was asked for."""
    document = pod("a", limits={})
    document["spec"]["schedulerName"] = "kai-scheduler"
    document["metadata"]["annotations"] = {
        "gpu-fraction": "0.5",
        "gpu-fraction-num-devices": count,
    }
    found = told({PODS: [document]}, tmp_path)
    assert found.jobs == ()
    (text,) = unread_texts(found)
    assert f"gpu-fraction-num-devices {count}" in text
    assert "ml/a" in text


def test_an_applier_finds_boards_of_amd_in_a_template() -> None:
    """What the plan proposes for such a job can be made: its containers are counted."""
    container = {"name": "main", "resources": {"limits": {"amd.com/gpu": "4"}}}
    spec = {"replicas": 3, "template": {"spec": {"containers": [container]}}}
    deployment = {"kind": "Deployment", "spec": spec}
    (role,) = roles_of("Deployment", deployment)
    assert (role.gpus_each, role.count) == (4, 3)
    assert profile_of(deployment, [role]) == ""
    assert resource_of("", [("resource", "amd.com/gpu")]) == "amd.com/gpu"


def test_a_node_of_amd_without_its_label_is_named(tmp_path: Path) -> None:
    """Its boards count; doctor says which label is missing."""
    with served({NODES: [machine("a1", {"amd.com/gpu": "8"})]}, tmp_path) as settings:
        found = {what: (state, detail) for what, state, detail in kubernetes_findings(settings)}
    assert found["GPU resources"][1].startswith("8 GPUs")
    assert found["GPU models"][0] == "missing"
    assert "amd.com/gpu.product-name" in found["GPU models"][1]


class SlurmOf:
    """Slurm as these records tell of it."""

    name = "slurm"

    def __init__(self, nodes: list[dict[str, Any]], jobs: list[dict[str, Any]]) -> None:
        self.nodes, self.jobs = nodes, jobs

    def answers(self, _window: Window) -> SlurmAnswers:
        """All of it."""
        dropped: Counter[str] = Counter()
        return SlurmAnswers(
            queue=read_queue(self.jobs, dropped),
            nodes=read_nodes(self.nodes, dropped),
            past=None,
            warnings=(),
            dropped=dropped,
            unread=unread_gres(self.nodes, self.jobs),
        )


def slurm_told(nodes: dict[str, str], jobs: dict[int, dict[str, str]]) -> Collected:
    """What the collector tells of nodes with this gres, and of jobs with these requests."""
    records = [{"name": name, "state": ["IDLE"], "gres": gres} for name, gres in nodes.items()]
    asked = [{"job_id": number, "job_state": ["RUNNING"]} | job for number, job in jobs.items()]
    end = datetime(2026, 5, 4, tzinfo=UTC)
    collector = SlurmCollector(SlurmOf(records, asked), {}, load_gpu_catalogue())
    return collector.collect(Window(start=end - timedelta(hours=1), end=end))


def test_gres_of_other_names_are_counted_with_their_nodes_and_jobs() -> None:
    """In every spelling of a request, and not what is no accelerator, or over."""
    found = slurm_told(
        {
            "a1": "npu:ascend:8(S:0-1)", "a2": "gres/npu:8,tmpfs:100", "g1": "gpu:l4:4,nvme:2",
            "h1": "gpu:t4:2(S:0,1),gaudi:8", "c1": "(null)",
        },
        {
            7: {"tres_per_node": "gres/npu:2"}, 8: {"tres_per_job": "gres:npu:ascend:1"},
            9: {"tres_req_str": "cpu=2,mem=8G,node=1,gres/gaudi=8"},
            10: {"tres_per_node": "gres/nvme:1"}, 11: {"tres_per_node": "gres/gpu:l4:1"},
            12: {"tres_per_node": "gres/npu:1", "job_state": ["COMPLETED"]},
        },
    )  # fmt: skip
    assert unread_texts(found) == [
        f"1 node (h1) and 1 job (9) hold gres/gaudi, which is {UNREAD_SUFFIX}",
        f"2 nodes (a1, a2) and 2 jobs (7, 8) hold gres/npu, which is {UNREAD_SUFFIX}",
    ]
    assert found.report.completeness_ratio is None
    assert all(text in found.report.reason for text in unread_texts(found))


def test_types_without_a_model_are_told_with_the_line_that_names_one() -> None:
    """A type of one board is known; of several, and of none, the node is named with the way out."""
    nodes = {
        "n1": "gpu:l40s:4",
        "n2": "gpu:h100:8",
        "n3": "gpu:4",
        "n4": "gpu:h100:8",
        "n5": "gpu:zz:1",
    }
    warnings = slurm_told(nodes, {}).report.warnings
    assert [text.partition(":")[0] for text in warnings] == [
        "1 node (n3) with gres/gpu of no type",
        "2 nodes (n2, n4) with gres/gpu",
        "1 node (n5) with gres/gpu",
    ]
    assert "slurm.gpu_models to h100=H100-SXM5-80GB or H100-PCIE-80GB" in warnings[1]
    assert "slurm.gpu_models to zz=MODEL" in warnings[2]


def test_doctor_names_what_slurm_holds_and_nobody_reads(tmp_path: Path) -> None:
    """From the commands of a recorded cluster, one of whose nodes has other accelerators too."""
    folder = recorded_commands(tmp_path / "bin", "24.11")
    document = json.loads((RECORDED / "24.11" / "nodes.json").read_text())
    document["nodes"][0]["gres"] += ",dcu:4"
    changed = tmp_path / "nodes.json"
    changed.write_text(json.dumps(document))
    others = (folder / "scontrol").read_text().removeprefix("#!/bin/sh\n").strip()
    command_folder(folder, scontrol=f'case "$*" in *nodes*) cat {changed};; *) {others};; esac')
    found = slurm_findings(SlurmSettings(mode="commands", bin_directory=str(folder)))
    missing = [(what, detail) for what, state, detail in found if state == "missing"]
    assert [what for what, _detail in missing] == ["accelerators", "GPU models"]
    assert "gres/dcu" in missing[0][1]


EXPORTERS = {
    "AMD's device-metrics-exporter": ("rocm_smi_version", "amd_smi_up"),
    "an exporter that is not known": ("gpu_hours_booked",),
    "Intel's Gaudi exporter": ("habanalabs_utilization", "habanalabs_power_mW"),
    "HAMi's monitor": ("vGPU_device_memory_usage_in_bytes", "hami_vgpu_memory_used_bytes"),
    "slurm-job-exporter": ("slurm_job_utilization_gpu",),
}
"""Whose metrics are not read, with some of them."""


def test_metrics_of_accelerators_that_are_not_read_are_counted_by_their_exporter() -> None:
    """Beside what is read, and what is no accelerator's."""
    others = ["up", "node_load1", "DCGM_FI_DEV_GPU_UTIL", "nvidia_smi_power_draw_watts",
              "vllm:gpu_cache_usage_perc", "kube_pod_info"]  # fmt: skip
    texts = unread_metrics([*others, *(name for names in EXPORTERS.values() for name in names)])
    assert len(texts) == len(EXPORTERS)
    for whose, names in EXPORTERS.items():
        assert any(f"{len(names)} metric" in text and f"of {whose}, " in text for text in texts)
    assert unread_metrics(others) == ()


def test_a_recording_of_another_exporter_says_whose_metrics_it_holds(tmp_path: Path) -> None:
    """Alone it is refused, beside readings of GPUs it is a warning."""
    line = '{}{{UUID="GPU-1",gpu="0",Hostname="n1",modelName="NVIDIA L4"}} 50\n'
    path = tmp_path / "metrics.txt"
    path.write_text(line.format("habanalabs_utilization") + line.format("habanalabs_power_mW"))
    at, catalogue = datetime(2026, 5, 4, tzinfo=UTC), load_gpu_catalogue()
    with pytest.raises(UnexpectedAnswerError, match="2 metrics of Intel's Gaudi exporter, such"):
        read_dcgm_text(path, at, catalogue)
    path.write_text(line.format("habanalabs_utilization") + line.format("DCGM_FI_DEV_GPU_UTIL"))
    report = read_dcgm_text(path, at, catalogue).report
    assert len(report.warnings) == 1
    assert f"is {UNREAD_SUFFIX}" in report.warnings[0]
