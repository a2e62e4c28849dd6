"""The fleet through a real Prometheus: what comes back is what the fleet said."""

import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from beds.prometheus import backfill, running_prometheus

from benchmarks._exporter_dialects import openmetrics
from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.findings import prometheus_findings
from collectors.prometheus.metrics import PrometheusDcgmCollector
from collectors.shared.collector import Window
from collectors.simulated.exposition import exposition_server
from collectors.simulated.fleet import SimulatedFleet
from dashboard.cli import main
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.sources import PrometheusSettings

pytestmark = pytest.mark.prometheus
END = datetime(2026, 1, 8, 12, tzinfo=UTC)


def collector(url: str, step_seconds: int) -> PrometheusDcgmCollector:
    """A collector of that address."""
    settings = PrometheusSettings(url=url, step_seconds=step_seconds)
    return PrometheusDcgmCollector(PrometheusClient(settings), settings, load_gpu_catalogue())


def keyed(samples: pd.DataFrame) -> pd.DataFrame:
    """Samples in key order."""
    key = ["sampled_at", "gpu_uuid", "mig_instance"]
    return samples.sort_values(key).reset_index(drop=True)


def test_backfilled_fleet_reads_back_and_plans(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every sample of a back-filled Prometheus equals the fleet's, and a cycle works on it."""
    fleet = SimulatedFleet(seed=7, nodes=2)
    start = END - timedelta(hours=36)
    expected = keyed(fleet.history(start, END, 300))
    backfill(openmetrics(fleet, fleet.history(start, END, 300)), tmp_path)
    with running_prometheus(tmp_path) as url:
        collected = collector(url, 300).collect(Window(start=start, end=END))
        code = main(
            [
                *("--quiet", "--store", f"duckdb:///{tmp_path}/t.duckdb"),
                *("cycle", "--prometheus", url, "--lookback", "36"),
                *("--now", END.isoformat(), "--format", "json"),
            ]
        )
    found = keyed(collected.samples)
    merged = expected.merge(
        found, on=["sampled_at", "gpu_uuid", "mig_instance"], suffixes=("", "_found")
    )
    assert len(merged) == len(expected)
    assert (merged["job_id"] == merged["job_id_found"]).all()
    assert (merged["gpu_model"] == merged["gpu_model_found"]).all()
    assert (merged["utilization_signal"] == merged["utilization_signal_found"]).all()
    for name, tolerance in (("utilization_ratio", 1e-6), ("power_watts", 1e-5)):
        assert (merged[name] - merged[f"{name}_found"]).abs().max() <= tolerance
    assert (merged["memory_used_mib"] == merged["memory_used_mib_found"]).all()
    assert collected.report.completeness_ratio is not None
    assert collected.report.completeness_ratio > 0.95

    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert document["outcome"]["sources"][0]["state"] == "ran"
    assert document["plan"]["lower_bound"] <= document["plan"]["cost"]
    assert any(not forecast["skipped"] for forecast in document["forecasts"])


def test_a_scraped_fleet_is_seen(tmp_path: Path) -> None:
    """A Prometheus that scrapes the fleet's /metrics gives its boards and jobs."""
    fleet = SimulatedFleet(seed=7, nodes=1)
    boards = {device.gpu_uuid for device in fleet.devices}
    server = exposition_server(fleet, "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        with running_prometheus(tmp_path, scrape=f"127.0.0.1:{server.server_port}") as url:
            one = collector(url, 1)
            for _attempt in range(300):
                now = datetime.now(tz=UTC)
                window = Window(start=now - timedelta(seconds=20), end=now)
                if "DCGM_FI_DEV_POWER_USAGE" in one.client.metric_names():
                    samples = one.collect(window).samples
                    if set(samples["gpu_uuid"]) == boards:
                        break
                threading.Event().wait(0.5)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert set(samples["gpu_uuid"]) == boards
    assert samples["power_watts"].gt(0).all()


@pytest.mark.parametrize(
    ("selector", "state"),
    [
        ('cluster="oslo"', "ok"),
        ('cluster="paris"', "missing"),
        ('cluster!="oslo"', "missing"),
        ("", "ok"),
    ],
)
def test_the_doctor_looks_at_the_series_of_its_cluster(
    tmp_path: Path, selector: str, state: str
) -> None:
    """A counter of one cluster is none of another's on the same server."""
    power, energy = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    at = END.timestamp()
    lines = [
        f'{metric}{{cluster="{cluster}",UUID="GPU-{cluster}",gpu="0"}} 300 {at}\n'
        for metric, cluster in ((power, "oslo"), (power, "paris"), (energy, "oslo"))
    ]
    backfill([*lines, "# EOF\n"], tmp_path)
    with running_prometheus(tmp_path) as url:
        settings = PrometheusSettings(url=url, selector=selector)
        found = prometheus_findings(PrometheusClient(settings), settings, END)
    states = {what: state for what, state, _detail in found}
    assert (states["power"], states["energy counter"]) == ("ok", state)
