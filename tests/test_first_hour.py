"""Every line that docs/first-hour.md shows for a real stack, run as a newcomer runs it."""

import json
import re
import shlex
import time
from pathlib import Path

import pytest
import requests
from beds.exposition import metrics_server
from beds.kubernetes import running_kubernetes
from beds.nvml import H100, stub_library
from beds.prometheus import running_prometheus
from beds.slurm import running_slurm

from dashboard.cli import main

pytestmark = [pytest.mark.slow]
PAGE = (Path(__file__).parents[1] / "docs/first-hour.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^### (.+?)\n.*?^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
STEP = 5
DCGM = (
    "DCGM_FI_DEV_GPU_UTIL{{{0}}} 35\nDCGM_FI_DEV_FB_USED{{{0}}} 20480\n"
    "DCGM_FI_DEV_POWER_USAGE{{{0}}} 310\n"
)
BOARD = (
    'gpu="{0}",UUID="GPU-0000000{0}-1111-2222-3333-444444444444",device="nvidia{0}",'
    'modelName="NVIDIA H100 80GB HBM3",Hostname="k1"{1}'
)
HOLDER = ',container="c",namespace="search",pod="ranker-0"'
SLURM_BOARD = (
    'user="ada",account="vision",slurmjobid="{0}",gpu="{1}",gpu_type="NVIDIA H100",'
    'instance="h100-01:9798"'
)
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "ranker-0", "namespace": "search"},
    "spec": {
        "nodeName": "k1",
        "containers": [
            {"name": "c", "image": "ranker", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
        ],
    },
}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder and a short step: two minutes of readings are enough."""
    monkeypatch.setenv("TRIMTAB_PROMETHEUS_STEP_SECONDS", str(STEP))
    monkeypatch.setenv("TRIMTAB_STORE_URL", f"duckdb:///{tmp_path}/first.duckdb")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def walk(
    title: str, stands_for: dict[str, str],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Run the block of a title; what the page writes for the reader's own is replaced."""
    counted = 0
    for line in BLOCKS[title].splitlines():
        command, _, figure = line.partition("#")
        words = shlex.split(command)
        for ours, real in stands_for.items():
            words = [word.replace(ours, real) for word in words]
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            monkeypatch.setenv(name, value)
            continue
        assert words.pop(0) == "trimtab"
        code = main([*words, "--format", "json"])
        told = capsys.readouterr()
        assert code in (0, 3), (line, told)
        if figure:
            assert len(json.loads(told.out)) == int(figure), (line, told.out)
            counted += 1
    assert counted


def await_boards(url: str, metric: str) -> None:
    """Wait until the server has told of a board for three steps."""
    for _attempt in range(900):
        query = {"query": f"count({metric} offset {3 * STEP}s)"}
        answer = requests.get(f"{url}/api/v1/query", params=query, timeout=30).json()
        if answer["data"]["result"]:
            return
        time.sleep(0.2)
    raise AssertionError(f"no {metric} in 180 s")


@pytest.mark.prometheus
@pytest.mark.kubernetes
def test_kubernetes_with_the_operator(
    world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """dcgm-exporter's series and a real API."""
    text = "".join(
        DCGM.format(BOARD.format(place, HOLDER if place < 2 else "")) for place in range(8)
    )
    with (
        metrics_server(text) as port,
        running_prometheus(world, scrape=f"127.0.0.1:{port}") as url,
        running_kubernetes() as bed,
    ):
        bed.add_gpu_node("k1")
        bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "search"}}, POD)
        bed.until("the pod runs", lambda: bed.pods()[0]["status"].get("phase") == "Running")
        await_boards(url, "DCGM_FI_DEV_GPU_UTIL")
        own = {"http://prometheus:9090": url, "reader.kubeconfig": str(bed.kubeconfig("reader"))}
        walk("Kubernetes with the GPU operator", own, monkeypatch, capsys)


@pytest.mark.prometheus
@pytest.mark.slurm
def test_slurm_with_its_exporter(
    world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """slurm-job-exporter's series and a real Slurm."""
    with running_slurm(accounting=True) as bed:
        job = bed.submit("--gres=gpu:h100:2", "-w", "h100-01", "-J", "train")
        bed.until("it runs", lambda: bed.states().get(job) == "RUNNING")
        text = "".join(
            f"slurm_job_utilization_gpu{{{SLURM_BOARD.format(job, place)}}} 35\n"
            f"slurm_job_memory_usage_gpu{{{SLURM_BOARD.format(job, place)}}} 10737418240\n"
            for place in range(2)
        )
        with (
            metrics_server(text) as port,
            running_prometheus(world, scrape=f"127.0.0.1:{port}") as url,
        ):
            await_boards(url, "slurm_job_utilization_gpu")
            monkeypatch.setenv("TRIMTAB_SLURM_CONF_FILE", str(bed.conf))
            for name in ("SLURM_CONF", "MYSQL_UNIX_PORT"):
                monkeypatch.setenv(name, bed.environment[name])
            walk(
                "Slurm with slurm-job-exporter", {"http://prometheus:9090": url},
                monkeypatch, capsys,
            )  # fmt: skip


def test_the_driver_alone(
    world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two boards of the compiled stub."""
    scenario = world / "played.scenario"
    scenario.write_text(H100.format(0) + H100.format(1), encoding="latin-1")
    monkeypatch.setenv("NVML_STUB_SCENARIO", str(scenario))
    monkeypatch.setenv("TRIMTAB_NVML_LIBRARY", str(stub_library()))
    walk("The driver alone", {}, monkeypatch, capsys)


def test_every_block_is_walked() -> None:
    """No stack stands in the page alone."""
    assert set(BLOCKS) == {
        "Kubernetes with the GPU operator", "Slurm with slurm-job-exporter", "The driver alone"
    }  # fmt: skip
