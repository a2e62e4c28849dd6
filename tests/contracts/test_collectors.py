"""Every registered source exists, is documented, and reads what was recorded of it."""

import importlib
import json
import os
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest
from beds.kubernetes_replay import recorded_collector
from beds.nvml import stub_library
from beds.slurm_replay import answering, recorded_commands
from page_edits import follow

from benchmarks._exporter_dialects import DIALECTS
from collectors import COLLECTORS, FILE_READERS
from collectors.nvml.sampler import NvmlCollector
from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.metrics import PrometheusDcgmCollector
from collectors.readings.exposition_text import read_dcgm_text, read_prometheus_json
from collectors.shared.collector import Source, Window
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from collectors.slurm.jobs import slurm_collector
from collectors.trace.files import Trace, load_map
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.settings.all_settings import Settings
from data.settings.sources import (
    NvmlSettings,
    PrometheusSettings,
    SlurmSettings,
    SourceSections,
    real_source_switches,
)

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "recorded"
AT = datetime(2026, 1, 5, 12, tzinfo=UTC)
Replay = Callable[[Path, Path], Iterator[Collected]]


def texts(folder: Path, _free: Path) -> Iterator[Collected]:
    """Every exposition text."""
    for path in sorted(folder.glob("*.prom")):
        yield read_dcgm_text(path, AT, load_gpu_catalogue())


def answers(folder: Path, _free: Path) -> Iterator[Collected]:
    """Every answer of the query API."""
    for path in sorted(folder.glob("*.json")):
        yield read_prometheus_json(path, load_gpu_catalogue())


def prometheus(folder: Path, _free: Path) -> Iterator[Collected]:
    """The collector against a server that answers what was recorded."""
    for path in sorted(folder.glob("*.json")):
        recorded = json.loads(path.read_text(encoding="utf-8"))

        def answer(asked: str, recorded: dict[str, object] = recorded) -> tuple[int, bytes]:
            url = urllib.parse.urlparse(asked)
            if url.path.endswith("/label/__name__/values"):
                return 200, json.dumps({"status": "success", "data": list(recorded)}).encode()
            if url.path.endswith("/api/v1/query"):
                return 200, b'{"status":"success","data":{"resultType":"vector","result":[]}}'
            query = urllib.parse.parse_qs(url.query)["query"][0]
            return 200, json.dumps(recorded[query]).encode()

        with answering(answer) as url:
            settings = PrometheusSettings(url=url, step_seconds=300)
            collector = PrometheusDcgmCollector(
                PrometheusClient(settings), settings, load_gpu_catalogue()
            )
            yield collector.collect(Window(start=AT - timedelta(minutes=15), end=AT))


def traces(folder: Path, _free: Path) -> Iterator[Collected]:
    """The trace through its map."""
    mapping = load_map(folder / "map.toml")
    yield from Trace(folder / "rows.csv", mapping, now=AT + timedelta(days=1)).pieces()


def fleet(folder: Path, _free: Path) -> Iterator[Collected]:
    """The fleet of the recorded seed, which gives the recorded samples to the last digit."""
    collector = SimulatedFleetCollector(fleet=SimulatedFleet(seed=7, nodes=1), step_seconds=300)
    collected = collector.collect(Window(start=AT - timedelta(minutes=10), end=AT))
    text = collected.samples.to_csv(index=False, float_format="%.6f")
    assert text == (folder / "seed-7.csv").read_text(encoding="utf-8")
    yield collected


def slurm(folder: Path, free: Path) -> Iterator[Collected]:
    """Every release through its recorded commands."""
    for release in sorted(path.name for path in folder.iterdir() if path.is_dir()):
        free.mkdir(exist_ok=True)
        there = recorded_commands(free / release, release)
        settings = SlurmSettings(mode="commands", bin_directory=str(there))
        now = datetime(2026, 11, 21, 12, tzinfo=UTC)
        collector = slurm_collector(settings, load_gpu_catalogue())
        yield collector.collect(Window(start=now - timedelta(days=1), end=now))


def nvml(folder: Path, _free: Path) -> Iterator[Collected]:
    """Every scenario of the compiled stub library, through the real ctypes binding."""
    settings = NvmlSettings(enabled=True, library=str(stub_library()))
    for path in sorted(folder.glob("*.scenario")):
        with mock.patch.dict(os.environ, NVML_STUB_SCENARIO=str(path)):
            collector = NvmlCollector(
                settings, load_gpu_catalogue(), "n1", clock=lambda: AT, gpm_gap_seconds=0.0
            )
            yield collector.collect(Window(start=AT - timedelta(minutes=1), end=AT))


def kubernetes(folder: Path, free: Path) -> Iterator[Collected]:
    """Every release through a server that answers its recorded lists."""
    for there in sorted(path for path in folder.iterdir() if path.is_dir()):
        with recorded_collector(there, free / there.name) as collector:
            now = datetime(2026, 11, 21, 12, tzinfo=UTC)
            yield collector.collect(Window(start=now - timedelta(days=1), end=now))


REPLAYS: dict[str, Replay] = {
    "dcgm-text": texts,
    "prometheus-json": answers,
    "prometheus": prometheus,
    "trace": traces,
    "simulated_fleet": fleet,
    "slurm": slurm,
    "nvml": nvml,
    "kubernetes": kubernetes,
}
REGISTERED = COLLECTORS | FILE_READERS


@pytest.mark.parametrize(("name", "module"), REGISTERED.items())
def test_a_registered_source_is_a_module_with_a_docstring(name: str, module: str) -> None:
    """A line in the registry stands for a file; that of a live source says how it is made."""
    found = importlib.import_module(module)
    assert found.__doc__, name
    assert name in FILE_READERS or isinstance(found.SOURCE, Source)


def test_every_live_source_has_a_section_that_turns_it_on() -> None:
    """Both registries list the same sources, and each section's switch is one of its settings."""
    sections = {field.name: field.default for field in fields(SourceSections)}
    assert sections.keys() == COLLECTORS.keys()
    for name, section in sections.items():
        assert section.switch in {field.name for field in fields(section)}, name
        assert not section.in_use, name
    switches = {name: f"{name}.{section.switch}" for name, section in sections.items()}
    assert real_source_switches() == {
        name: switch for name, switch in switches.items() if name != "simulated_fleet"
    }
    used = Settings(slurm=SlurmSettings(mode="commands"), nvml=NvmlSettings(enabled=True))
    assert used.sources_in_use() == ("slurm", "nvml")


@pytest.mark.parametrize("name", REGISTERED)
def test_a_registered_source_is_named_in_the_docs(name: str) -> None:
    """A user finds every source."""
    text = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *ROOT.glob("docs/*.md"))
    )
    assert name in text, f"name `{name}` in docs/sources.md, and how it is switched on"


@pytest.mark.parametrize("name", REGISTERED)
def test_a_registered_source_reads_its_recordings(name: str, tmp_path: Path) -> None:
    """Recordings in, facts out: samples or jobs, an honest report, and the same batch id twice."""
    folder = RECORDED / name
    recordings = [path for path in folder.rglob("*") if path.is_file()]
    assert recordings, f"{name} has no recordings: put what it answered into tests/recorded/{name}"
    assert name in REPLAYS, (
        f"add a function that reads tests/recorded/{name} to REPLAYS in this file"
    )
    once = list(REPLAYS[name](folder, tmp_path / "once"))
    again = list(REPLAYS[name](folder, tmp_path / "again"))
    assert once
    for entry, other in zip(once, again, strict=True):
        assert len(entry.samples) or entry.jobs, entry.report
        assert entry.report.samples == len(entry.samples)
        assert not entry.samples["gpu_uuid"].eq("").any()
        pd.testing.assert_frame_equal(entry.samples, other.samples)
        pd.testing.assert_frame_equal(entry.allocations, other.allocations)
        assert len(entry.jobs) == len(other.jobs)
        for job, same in zip(entry.jobs, other.jobs, strict=True):
            assert replace(job, source="") == replace(same, source="")  # a server's port differs


def test_every_dialect_is_recorded() -> None:
    """A new dialect comes with its recordings."""
    for folder, suffix in (("dcgm-text", ".prom"), ("prometheus", ".json")):
        found = {path.name for path in (RECORDED / folder).iterdir()}
        assert found == {f"{dialect}{suffix}" for dialect in DIALECTS}


PACKAGES = ("data", "collectors", "forecasting", "planner", "dashboard")


def test_a_new_source_is_its_file_its_section_and_one_line(tmp_path: Path) -> None:
    """A copy of the product in which only what the page names was done collects from it."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package)
    product = {path: path.read_bytes() for path in tmp_path.rglob("*.py")}
    named = follow("A collector", tmp_path)
    changed = {
        str(path.relative_to(tmp_path))
        for path in tmp_path.rglob("*.py")
        if product.get(path) != path.read_bytes()
    }
    assert changed == set(named)
    assert len(changed - {"collectors/one_board.py"}) <= 2  # its line, and its section
    run = """
import contextlib, io, json
from dashboard.cli import main
said = {}
for command in ("settings", "cycle", "sources", "doctor"):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        main([command, "--format", "json"])
    said[command] = json.loads(out.getvalue())
print(json.dumps(said))
"""
    environment = os.environ | {
        "PYTHONPATH": str(tmp_path),
        "TRIMTAB_ONE_BOARD_ENABLED": "true",
        "TRIMTAB_ONE_BOARD_NODE": "node-7",
        "TRIMTAB_PLANNING_MODEL": "seasonal-naive",
        "TRIMTAB_PROMETHEUS_LOOKBACK_HOURS": "2",
        "TRIMTAB_STORE_URL": f"duckdb:///{tmp_path / 'one.duckdb'}",
        "TRIMTAB_APPLY_DIRECTORY": str(tmp_path / "changes"),
    }
    done = subprocess.run(
        [sys.executable, "-c", run],
        cwd=tmp_path, env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    said = json.loads(done.stdout)
    assert "one_board.node" in [row["name"] for row in said["settings"]]
    assert {"part": "one_board: node", "state": "ok", "detail": "node-7"} in said["doctor"]
    assert [(row["source"], row["samples"]) for row in said["sources"]] == [("one-board", 120)]
