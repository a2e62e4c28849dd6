"""Exporters of other makers and of schedulers: published series, and what is read of them."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from beds.exposition import metrics_server
from beds.prometheus import running_prometheus

from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.findings import prometheus_findings
from collectors.prometheus.metrics import PrometheusDcgmCollector
from collectors.readings.dcgm_readings import DIVIDED, jobs_of
from collectors.readings.exposition_text import read_dcgm_text
from collectors.readings.metric_names import EXPORTERS, readable_names
from collectors.shared.collector import Window
from data.base.errors import UnexpectedAnswerError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.settings.sources import PrometheusSettings

CATALOGUE = load_gpu_catalogue()
AT = datetime(2026, 11, 2, 12, tzinfo=UTC)
UUID = "ccff74a1-0000-1000-80e0-c6d49f5b0d86"
AMD = (
    'card_model="102-G30211-0C",card_series="AMD Instinct MI300X OAM",card_vendor="AMD",'
    'cluster_name="",container="{pod}",driver_version="6.12.12",'
    'gpu_compute_partition_type="{mode}",gpu_id="2",gpu_memory_partition_type="nps1",'
    'gpu_partition_id="0",gpu_uuid="{uuid}",hostname="tw038",job_id="{job}",job_partition="",'
    'job_user="",namespace="{pod}",pod="{pod}",serial_number="692409005408"'
)
"""Labels as in issues and pull requests of ROCm/device-metrics-exporter."""


def amd(
    *, mode: str = "spx", uuid: str = UUID, job: str = "", pod: str = "", busy: float = 40.0,
    watts: float = 420.0, prefix: str = "", upper: bool = False,
) -> str:  # fmt: skip
    """The exposition of one board."""
    values = {
        "gpu_gfx_activity": busy, "gpu_used_vram": 98_304, "gpu_total_vram": 196_592,
        "gpu_power_usage": watts, "gpu_energy_consumed": 5e12, "gpu_junction_temperature": 61,
        "gpu_ecc_uncorrect_total": 0, "gpu_nodes_total": 8,
    }  # fmt: skip
    labels = AMD.format(mode=mode, uuid=uuid, job=job, pod=pod)
    names = {name: prefix + name for name in values}
    return "".join(
        f"{names[name].upper() if upper else names[name]}{{{labels}}} {value}\n"
        for name, value in values.items()
    )


SLURM_JOB = (
    'user="ada",account="vision",slurmjobid="812",gpu="3",gpu_type="NVIDIA L4",instance="g7:9798"'
)
SLURM = (
    f"slurm_job_utilization_gpu{{{SLURM_JOB}}} 35\n"
    f"slurm_job_memory_usage_gpu{{{SLURM_JOB}}} 10737418240\n"
    f"slurm_job_memory_total_gpu{{{SLURM_JOB}}} 24146608128\n"
    f"slurm_job_power_gpu{{{SLURM_JOB}}} 51000\n"
)
"""Labels as in the source of guilbaults/slurm-job-exporter."""
XPU = 'hw_id="gpu-uuid-0",hw_name="{name}",pci_bdf="0000:03:00.0",instance="x1:8080"'
OPEN_TELEMETRY = (
    'hw_gpu_info{hw_model="Intel(R) Arc(TM) Pro B60 Graphics",hw_vendor="Intel(R) Corporation",'
    + XPU.format(name="gpu-1")
    + "} 1\n"
    'hw_gpu_utilization_ratio{hw_gpu_task="compute-all",' + XPU.format(name="g") + "} 0.35\n"
    'hw_gpu_utilization_ratio{hw_gpu_task="copy-all",' + XPU.format(name="g") + "} 1\n"
    'hw_memory_size_bytes{hw_memory_location="device",' + XPU.format(name="m") + "} 25669140480\n"
    'hw_memory_usage_bytes{hw_memory_location="device",' + XPU.format(name="m") + "} 8589934592\n"
    'hw_memory_usage_bytes{hw_memory_location="system",' + XPU.format(name="m") + "} 99e9\n"
    'hw_power_watts{hw_sensor_location="card",' + XPU.format(name="p") + "} 31.5\n"
)
"""Series as in published samples of Intel's XPU Manager 2."""
HAMI_LABELS = (
    'deviceidx="0",deviceuuid="GPU-59ab1128-3130-b95a-9870-4bd748926e97",nodeid="k1",zone="vGPU"'
)
HAMI = (
    f"HostCoreUtilization{{{HAMI_LABELS}}} 35\nHostGPUMemoryUsage{{{HAMI_LABELS}}} 2147483648\n"
    'Device_utilization_desc_of_container{ctrname="c",podname="p",podnamespace="n",'
    f'vdeviceid="0",{HAMI_LABELS}}} 99\n'
)
"""Series as in the documents of HAMi."""
OMNISTAT_LABELS = 'card="2",instance="m4:8001"'
OMNISTAT = (
    f"rocm_utilization_percentage{{{OMNISTAT_LABELS}}} 35.0\n"
    f"rocm_vram_total_bytes{{{OMNISTAT_LABELS}}} 3.4342961152e+010\n"
    f"rocm_average_socket_power_watts{{{OMNISTAT_LABELS}}} 135.0\n"
    f'rocm_temperature_celsius{{location="edge",{OMNISTAT_LABELS}}} 42.0\n'
    f"rocm_energy_joules{{{OMNISTAT_LABELS}}} 2.6181130255356e+07\n"
)
"""Series as in the source of AMDResearch/omnistat."""
ALL_SMI_LABELS = (
    'gpu="NVIDIA H200",instance="node-0058",'
    'uuid="GPU-6a2b1c0d-1111-2222-3333-444455556666",index="0"'
)
ALL_SMI = (
    f"all_smi_gpu_utilization{{{ALL_SMI_LABELS}}} 35\n"
    f"all_smi_gpu_memory_used_bytes{{{ALL_SMI_LABELS}}} 8589934592\n"
    f"all_smi_gpu_memory_total_bytes{{{ALL_SMI_LABELS}}} 150754820096\n"
    f"all_smi_gpu_power_consumption_watts{{{ALL_SMI_LABELS}}} 400.5\n"
)
"""Series as in the tests of all-smi."""
XPU_1_LABELS = (
    'uuid="00000000-0000-0000-f957-23bfb9a79a7a",dev_name="Intel(R) Data Center GPU Max 1550",'
    'pci_dev="0xbd5",vendor="Intel(R) Corporation",pci_bdf="0000:29:00.0",dev_file="card1",'
    'node="x2",kube_pod="p",kube_namespace="vision",kube_container="c"'
)
XPU_1 = (
    f"xpum_engine_ratio{{{XPU_1_LABELS}}} 0.35\n"
    f'xpum_engine_ratio{{{XPU_1_LABELS},sub_dev="1"}} 0.99\n'
    f"xpum_memory_used_bytes{{{XPU_1_LABELS}}} 8589934592\n"
    f"xpum_power_watts{{{XPU_1_LABELS}}} 310.5\n"
    'xpum_power_watts{node="x2",card="2147483649"} 621\n'
    f"xpum_energy_joules_total{{{XPU_1_LABELS}}} 2.6e7\n"
    f'xpum_temperature_celsius{{{XPU_1_LABELS},location="mem"}} 199\n'
)
"""Names, labels and scales as in the source of intel/xpumanager, rest/."""


def amd_smi(place: int, busy: float = 35.0, power: float = 135e6) -> str:
    """The exposition of one board, as in stand-ins of amd/amd_smi_exporter and its dashboards."""
    return "".join(
        f'amd_{name}{{{name}="{place}",productname="AMD Instinct MI300X OAM",instance="m7:2021"}} '
        f"{value}\n"
        for name, value in (
            ("gpu_use_percent", busy), ("gpu_memory_use_percent", 20), ("gpu_power", power),
            ("gpu_current_temperature", 42_000), ("gpu_SCLK", 2.1e9),
        )
    )  # fmt: skip


BOARDS = {
    "AMD's device-metrics-exporter": (
        amd(pod="vision", busy=35.0),
        (f"GPU-{UUID}", "tw038", "MI300X-192GB", "vision/vision", 0.35, 98_304, 420.0),
    ),
    "slurm-job-exporter": (
        SLURM, ("g7/gpu3", "g7", "L4-24GB", "slurm:812", 0.35, 10_240, 51.0),
    ),
    "OpenTelemetry's hardware metrics": (
        OPEN_TELEMETRY,
        ("x1/gpu-uuid-0", "x1", "Intel(R) Arc(TM) Pro B60 Graphics", "", 0.35, 8192, 31.5),
    ),
    "HAMi's monitor": (
        HAMI,
        ("GPU-59ab1128-3130-b95a-9870-4bd748926e97", "k1", "", "", 0.35, 2048, None),
    ),
    "Omnistat": (OMNISTAT, ("m4/gpu2", "m4", "", "", 0.35, None, 135.0)),
    "all-smi": (
        ALL_SMI,
        (
            "GPU-6a2b1c0d-1111-2222-3333-444455556666", "node-0058", "H200-SXM-141GB", "",
            0.35, 8192, 400.5,
        ),
    ),
    "Intel's XPU Manager 1": (
        XPU_1,
        (
            "x2/00000000-0000-0000-f957-23bfb9a79a7a", "x2", "Intel(R) Data Center GPU Max 1550",
            "vision/p", 0.35, 8192, 310.5,
        ),
    ),
    "amd_smi_exporter": (
        amd_smi(3), ("m7/gpu3", "m7", "MI300X-192GB", "", 0.35, None, 135.0)
    ),
}  # fmt: skip
COLUMNS = [
    "gpu_uuid", "node", "gpu_model", "job_id", "utilization_ratio", "memory_used_mib", "power_watts"
]  # fmt: skip


def recording(folder: Path, text: str) -> Collected:
    """The samples of an exposition text."""
    path = folder / "metrics.prom"
    path.write_text(text, encoding="utf-8")
    return read_dcgm_text(path, AT, CATALOGUE)


def rows(collected: Collected) -> set[tuple[object, ...]]:
    """The readings, a tuple a board."""
    frame = collected.samples[COLUMNS].round(6).astype(object)
    return set(frame.where(frame.notna(), None).itertuples(index=False, name=None))


@pytest.mark.parametrize("exporter", BOARDS)
def test_a_published_exposition_is_read(tmp_path: Path, exporter: str) -> None:
    """Board, node, model, holder, utilization, memory and power; nothing else of it is told."""
    text, board = BOARDS[exporter]
    collected = recording(tmp_path, text)
    assert rows(collected) == {board}
    assert collected.report.warnings == ()


@pytest.mark.parametrize("exporter", BOARDS)
def test_a_real_prometheus_scrapes_it(tmp_path: Path, exporter: str) -> None:
    """The same board comes from the query API, and the doctor sees it."""
    text, board = BOARDS[exporter]
    with (
        metrics_server(text) as port,
        running_prometheus(tmp_path, scrape=f"127.0.0.1:{port}") as url,
    ):
        settings = PrometheusSettings(url=url, step_seconds=1)
        client = PrometheusClient(settings)
        source = PrometheusDcgmCollector(client, settings, CATALOGUE)
        for _attempt in range(300):
            now = datetime.now(tz=UTC)
            if readable_names(client.metric_names()) >= readable_names(_names(text)):
                collected = source.collect(Window(start=now - timedelta(seconds=20), end=now))
                if board in rows(collected):
                    break
            threading.Event().wait(0.2)
        findings = {
            what: state for what, state, _text in prometheus_findings(client, settings, now)
        }
    assert board in rows(collected)
    assert {job.job_id for job in jobs_of(collected.samples, "x")} == {board[3]} - {""}
    assert findings["fresh samples"] == "ok"
    assert "GPU exporter" not in findings


def _names(text: str) -> set[str]:
    return {line.partition("{")[0] for line in text.splitlines()}


@pytest.mark.parametrize("prefix", ["", "amd_"])
@pytest.mark.parametrize("upper", [False, True])
def test_amd_names_in_every_spelling(tmp_path: Path, prefix: str, upper: bool) -> None:
    """Releases write them in either case, and installations with a prefix."""
    collected = recording(tmp_path, amd(job="5", prefix=prefix, upper=upper))
    assert [row[:4] for row in rows(collected)] == [
        (f"GPU-{UUID}", "tw038", "MI300X-192GB", "slurm:5")
    ]
    assert collected.samples["energy_joules"].tolist() == [5e6]


@pytest.mark.parametrize("uuid", ["", "00000000-0000-0000-0000-000000000000"])
def test_boards_without_a_uuid_are_told_by_node_and_index(tmp_path: Path, uuid: str) -> None:
    """Virtual machines show zeros for each board: two of them would be one."""
    second = amd(uuid=uuid).replace('gpu_id="2"', 'gpu_id="3"')
    collected = recording(tmp_path, amd(uuid=uuid) + second)
    assert sorted(collected.samples["gpu_uuid"]) == ["tw038/gpu2", "tw038/gpu3"]


@pytest.mark.parametrize("mode", ["cpx", "dpx", "QPX", "<b>"])
def test_divided_boards_are_told_and_not_read(tmp_path: Path, mode: str) -> None:
    """Power and activity are those of the first part: the board would look idle."""
    whole = amd(uuid="aaff74a1-0000-1000-80e0-c6d49f5b0d86")
    collected = recording(tmp_path, whole + amd(mode=mode))
    assert len(collected.samples) == 1
    assert [text for text in collected.report.warnings if DIVIDED in text and UUID in text]
    with pytest.raises(UnexpectedAnswerError):
        recording(tmp_path, amd(mode=mode))


def test_an_activity_of_zero_is_not_believed_where_power_contradicts_it(tmp_path: Path) -> None:
    """Issues 135 and 160 of the exporter: 0 % of boards at work."""
    lines = "".join(amd(busy=0.0, watts=690.0))
    samples = recording(tmp_path, lines).samples
    assert samples["utilization_ratio"].isna().all()
    rest = recording(tmp_path, amd(busy=0.0, watts=140.0)).samples
    assert rest["utilization_ratio"].tolist() == [0.0]


def test_one_board_of_two_exporters_is_counted_once(tmp_path: Path) -> None:
    """An exporter that names no UUID is read only where no other tells of the boards."""
    labels = 'UUID="GPU-1",gpu="3",Hostname="g7",modelName="NVIDIA L4",hpc_job="812"'
    collected = recording(tmp_path, SLURM + f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} 35\n")
    assert collected.samples["gpu_uuid"].tolist() == ["GPU-1"]


def test_boards_that_each_metric_numbers_in_a_label_of_its_own_are_told_apart(
    tmp_path: Path,
) -> None:
    """A power in watts, where the exporter's releases before gave microwatts, is unknown."""
    collected = recording(tmp_path, amd_smi(0) + amd_smi(1, busy=0.0, power=140.0))
    assert rows(collected) == {
        ("m7/gpu0", "m7", "MI300X-192GB", "", 0.35, None, 135.0),
        ("m7/gpu1", "m7", "MI300X-192GB", "", 0.0, None, None),
    }
    assert [text for text in collected.report.warnings if "amd_gpu_power" in text]


def test_an_instance_without_its_board_is_not_read(tmp_path: Path) -> None:
    """slurm-job-exporter tells instances by their UUID alone."""
    instance = SLURM.replace('gpu="3"', 'gpu="MIG-77"')
    collected = recording(tmp_path, SLURM + instance)
    assert collected.samples["gpu_uuid"].tolist() == ["g7/gpu3"]
    assert dict(collected.report.dropped)["other-device"] == 4


def test_every_exporter_is_tried_here_or_as_a_dialect_of_the_fleet() -> None:
    """A further table of exporters.toml has a published exposition."""
    fleet = {"dcgm-exporter", "dcgm-exporter 1", "nvidia_gpu_exporter", "jobstats"}
    assert {exporter.name for exporter in EXPORTERS} == fleet | set(BOARDS)
