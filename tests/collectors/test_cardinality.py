"""Labels that multiply without end: memory is bounded, the extra counted, nothing else lost."""

import json
import resource
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from beds.faulty_server import POWER, Behaviour, FaultyServer, answers_series, faulty_server
from reliability import Measured

from collectors.prometheus import client, metrics
from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.metrics import TOO_MANY, PrometheusDcgmCollector
from collectors.shared.collector import Window
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.settings.sources import PrometheusSettings

END = datetime(2026, 1, 5, 12, tzinfo=UTC)
START = END - timedelta(minutes=10)
MEMORY = "DCGM_FI_DEV_FB_USED"
MILLION = 1_000_000


def board(place: int, pod: str = "") -> dict[str, Any]:
    """A reading a minute of one of eight boards, of a holder."""
    labels = {"UUID": f"GPU-{place % 8:08x}", "Hostname": "node-1", "gpu": str(place % 8)}
    if pod:
        labels |= {"namespace": "flood", "pod": pod}
    times = [END.timestamp() - 60 * minute for minute in range(9, -1, -1)]
    return {"metric": labels, "values": [[at, "200"] for at in times]}


def when_asked_of(metric: str, one: Behaviour, other: Behaviour) -> Behaviour:
    """Answer questions of a metric in one way and all others in another."""
    return lambda handler: (one if metric in handler.path else other)(handler)


def streams(count: int) -> Behaviour:
    """Answer so many series, whatever is asked, piece by piece; nobody reads them to the end."""
    piece = ",".join(json.dumps(board(at, f"pod-{at}")) for at in range(1000)).encode()

    def behave(handler: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b'{"status":"success","data":{"resultType":"matrix","result":[')
        for first in range(0, count, 1000):
            handler.wfile.write(piece + (b"," if first + 1000 < count else b"]}}"))

    return behave


def most_used_mib() -> float:
    """The most memory that this process ever had, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def collected_from(server: FaultyServer, **options: Any) -> Collected:
    """What a collector gives of ten minutes."""
    settings = PrometheusSettings(url=server.url, **options)
    collector = PrometheusDcgmCollector(PrometheusClient(settings), settings, load_gpu_catalogue())
    return collector.collect(Window(start=START, end=END))


@pytest.mark.parametrize("most", [8, 500])
def test_series_beyond_the_limit_are_counted_and_other_metrics_are_whole(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first so many are read, the readings of the rest have a reason; no board is missing."""
    whole = answers_series(*(board(place) for place in range(8)))
    flood = answers_series(*(board(at, f"pod-{at}") for at in range(2000)))
    with faulty_server(when_asked_of(POWER, flood, whole), names=(POWER, MEMORY)) as server:
        monkeypatch.setattr(metrics, "MAX_SERIES", most)
        found = collected_from(server)
    assert dict(found.report.dropped)[TOO_MANY] == 10 * (2000 - most)
    assert found.samples["power_watts"].count() == 10 * most
    memory = found.samples[found.samples["memory_used_mib"].notna()]
    assert len(memory) == 80
    assert memory["gpu_uuid"].nunique() == 8
    assert len(found.jobs) == most


@pytest.mark.slow
def test_a_million_series_are_a_gap_of_their_metric_alone(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer of any size ends at 64 MiB; the metric is named, the others are whole."""
    whole = answers_series(*(board(place) for place in range(8)))
    with faulty_server(
        when_asked_of(POWER, streams(MILLION), whole), names=(POWER, MEMORY)
    ) as server:
        before = most_used_mib()
        monkeypatch.setattr(client, "BUDGET_SECONDS", 100.0)
        found = collected_from(server)
        grown = most_used_mib() - before
    assert grown < 1024
    assert any(POWER in said and "64 MiB" in said for said in found.report.warnings)
    assert found.report.completeness_ratio is not None
    assert found.report.completeness_ratio < 1
    assert found.report.complete_until is not None
    assert found.report.complete_until <= START + timedelta(minutes=1)
    assert len(found.samples) == 80
    measured(f"answers of 1,000,000 series: {grown:.0f} MiB of memory, other metrics whole")
