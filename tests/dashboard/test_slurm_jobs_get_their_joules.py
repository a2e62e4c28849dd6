"""Real Slurm jobs hold the simulated boards: every joule finds the job that Slurm ran."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from beds.slurm import SlurmBed, running_slurm

from collectors.readings.exposition_text import read_dcgm_text
from collectors.shared.collector import Window
from collectors.slurm.jobs import slurm_collector
from dashboard.cli import main
from data.base.clock import floor_to_slot
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.sources import SlurmSettings
from data.store import Store, open_store

pytestmark = pytest.mark.slurm
BUSY_WATTS, IDLE_WATTS = 500.0, 80.0
MINUTES = 10


@pytest.fixture(scope="module")
def bed() -> Iterator[SlurmBed]:
    """A cluster with a job on two nodes, one of an array, and one that waits."""
    with running_slurm() as running:
        running.submit("--nodes=2", "--gres=gpu:h100:2", "--job-name=train")
        running.submit("--array=0", "--gres=gpu:a100:1", "--job-name=sweep")
        running.submit("--gres=gpu:a100:2", "--job-name=waits")
        running.until("two jobs run", lambda: len(running.mapping()) == 5)
        yield running


def exposition(bed: SlurmBed, *, mapped: bool) -> str:
    """What dcgm-exporters on the nodes would say, with or without --hpc-job-mapping-dir."""
    holder = bed.mapping()
    lines = []
    for node in bed.plan.nodes:
        for index in range(node.gpus):
            job = holder.get(f"{node.name}/{index}", "")
            labels = (
                f'gpu="{index}",UUID="GPU-{node.name}-{index}",Hostname="{node.name}.cluster.local"'
                f',modelName="NVIDIA {node.gpu_type.upper()} 80GB HBM3"'
                + (f',hpc_job="{job}"' if job and mapped else "")
            )
            values = {
                "DCGM_FI_PROF_SM_ACTIVE": 0.7 if job else 0.0,
                "DCGM_FI_DEV_POWER_USAGE": BUSY_WATTS if job else IDLE_WATTS,
                "DCGM_FI_DEV_FB_USED": 40_000 if job else 500,
                "DCGM_FI_DEV_FB_FREE": 41_059 if job else 80_559,
            }
            lines += [f"{name}{{{labels}}} {value}" for name, value in values.items()]
    return "\n".join(lines) + "\n"


def kept(bed: SlurmBed, url: str, folder: Path, *, mapped: bool) -> tuple[Store, datetime]:
    """A store with ten minutes of samples, and what Slurm says of the jobs."""
    start = floor_to_slot(datetime.now(tz=UTC), 300) + timedelta(minutes=5)
    file = folder / "metrics.prom"
    file.write_text(exposition(bed, mapped=mapped))
    store = open_store(url)
    for minute in range(MINUTES + 1):
        at = start + timedelta(minutes=minute)
        store.keep(read_dcgm_text(file, at, load_gpu_catalogue()))
    end = start + timedelta(minutes=MINUTES)
    settings = SlurmSettings(mode="commands", conf_file=str(bed.conf))
    collector = slurm_collector(settings, load_gpu_catalogue())
    store.keep(collector.collect(Window(start=end - timedelta(hours=1), end=end)))
    return store, end


@pytest.mark.parametrize("mapped", [True, False])
def test_energy_reaches_the_jobs_that_slurm_runs(
    bed: SlurmBed, store_url: str, tmp_path: Path, mapped: bool
) -> None:
    """By the prolog's mapping in the labels, and by Slurm's own word alone: the same joules."""
    store, end = kept(bed, store_url, tmp_path, mapped=mapped)
    with store:
        energy = store.reader.energy(start=end - timedelta(hours=1), end=end, by="job")
        jobs = {job.job_id: job for job in store.reader.jobs()}
    found = dict(zip(energy["key"], energy["energy_kwh"], strict=True))
    hours = MINUTES / 60
    by_name = {job.name: job for job in jobs.values()}
    boards = sum(node.gpus for node in bed.plan.nodes)
    assert found == pytest.approx(
        {
            by_name["train"].job_id: 4 * BUSY_WATTS * hours / 1000,
            by_name["sweep"].job_id: BUSY_WATTS * hours / 1000,
            "": (boards - 5) * IDLE_WATTS * hours / 1000,
        }
    )
    assert by_name["train"].gpu_count == 4
    waiting = by_name["waits"].scheduler
    assert waiting is not None
    assert str(waiting.state) == "pending"


def test_collect_reads_slurm(
    bed: SlurmBed, store_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`trimtab collect` with slurm.mode, then `trimtab jobs` and `nodes`, show what runs."""
    file = tmp_path / "trimtab.toml"
    file.write_text(f'[slurm]\nmode = "commands"\nconf_file = "{bed.conf}"\n')
    common = ["--quiet", "--settings", str(file), "--store", store_url]
    assert main([*common, "collect"]) == 0
    capsys.readouterr()
    assert main([*common, "jobs", "--format", "json"]) == 0
    jobs = {load["name"]: load for load in json.loads(capsys.readouterr().out)}
    assert {name: job["state"] for name, job in jobs.items()} == {
        "train": "running",
        "sweep": "running",
        "waits": "pending",
    }
    assert main([*common, "nodes", "--format", "json"]) == 0
    nodes = {load["name"]: load["gpu_count"] for load in json.loads(capsys.readouterr().out)}
    assert nodes == {node.name: node.gpus for node in bed.plan.nodes if node.gpus}
    assert main([*common, "doctor", "--format", "json"]) == 3
    rows = {load["part"]: load["state"] for load in json.loads(capsys.readouterr().out)}
    assert rows["slurm: slurm job mapping"] == "ok"
    assert rows["slurm: slurm accounting"] == "missing"
