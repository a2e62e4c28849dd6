"""Real servers at their limits: split questions give what the whole would, on two servers."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import requests
from beds.prometheus import backfill
from beds.prometheus_options import prometheus_with
from beds.victoria import import_openmetrics, running_victoria

from benchmarks._exporter_dialects import openmetrics
from collectors.prometheus.client import PrometheusClient, end_aligned
from collectors.prometheus.metrics import PrometheusDcgmCollector
from collectors.shared.collector import Window
from collectors.simulated.fleet import SimulatedFleet
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.settings.sources import PrometheusSettings

pytestmark = pytest.mark.prometheus
END = datetime(2026, 1, 8, 12, tzinfo=UTC)
POWER, MEMORY, ENERGY = (
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
)
Readings = dict[str, list[tuple[float, float]]]


def collected_from(url: str, start: datetime, end: datetime, step: int) -> Collected:
    """What the collector gives of that address."""
    settings = PrometheusSettings(url=url, step_seconds=step)
    one = PrometheusDcgmCollector(PrometheusClient(settings), settings, load_gpu_catalogue())
    return one.collect(Window(start=start, end=end))


def keyed(samples: pd.DataFrame) -> pd.DataFrame:
    """Samples in key order."""
    key = ["sampled_at", "gpu_uuid", "mig_instance", "job_id"]
    return samples.sort_values(key).reset_index(drop=True)


def lines_of(readings: Readings) -> Iterator[str]:
    """OpenMetrics lines of one board's readings (s since the epoch, value)."""
    for metric, points in readings.items():
        for at, value in points:
            yield f'{metric}{{UUID="GPU-a"}} {value} {at}\n'
    yield "# EOF\n"


def begun(url: str) -> PrometheusClient:
    """A client that has begun a collection and knows its server."""
    one = PrometheusClient(PrometheusSettings(url=url))
    one.begin()
    one.metric_names()
    return one


def points_of(found: Iterable[dict[str, Any]]) -> list[tuple[float, float]]:
    """The (time, value) pairs of the series, in order of answer."""
    return [(at, float(value)) for entry in found for at, value in entry["values"]]


@pytest.mark.parametrize(("limit", "minutes"), [(400, 240), (3, 4)])
def test_a_low_sample_limit_changes_nothing(tmp_path: Path, limit: int, minutes: int) -> None:
    """Refused by time, and by boards when one step is too large, the samples are the same."""
    fleet = SimulatedFleet(seed=7, nodes=1)
    start = END - timedelta(minutes=minutes)
    backfill(openmetrics(fleet, fleet.history(start, END, 60)), tmp_path)
    with prometheus_with(tmp_path) as url:
        whole = collected_from(url, start, END, 60)
    with prometheus_with(tmp_path, f"--query.max-samples={limit}") as url:
        refused = requests.get(
            f"{url}/api/v1/query_range",
            params={"query": POWER, "start": start.timestamp(), "end": END.timestamp(), "step": 60},
            timeout=10,
        )
        split = collected_from(url, start, END, 60)
    assert refused.status_code == 422
    assert "too many samples" in refused.text
    assert len(whole.samples) > limit
    assert split.report.warnings == ()
    assert split.report.complete_until is None
    pd.testing.assert_frame_equal(keyed(split.samples), keyed(whole.samples))


def test_more_points_than_a_question_may_have(tmp_path: Path) -> None:
    """Three days by 20 s, 12,961 points, come back once each though one question may ask 11,000."""
    first = END.timestamp() - 3 * 86_400
    raw = [(first + 20 * place, float(place % 977)) for place in range(12_961)]
    backfill(lines_of({POWER: raw}), tmp_path)
    with prometheus_with(tmp_path) as url:
        found = begun(url).series(POWER, start=END - timedelta(days=3), end=END, step_seconds=20)
        assert points_of(found) == raw


def test_two_servers_give_the_same_samples(tmp_path: Path) -> None:
    """VictoriaMetrics and Prometheus, given the same, are told apart by no sample."""
    fleet = SimulatedFleet(seed=7, nodes=2)
    start = END - timedelta(hours=6)
    lines = list(openmetrics(fleet, fleet.history(start, END, 60)))
    backfill(lines, tmp_path)
    with prometheus_with(tmp_path) as url:
        ours = collected_from(url, start, END, 60)
    # As the Prometheus here: a back-filled series that ended is not answered once more.
    with running_victoria(tmp_path, "-search.maxStalenessInterval=50s") as url:
        import_openmetrics(url, lines)
        theirs = collected_from(url, start, END, 60)
    assert len(ours.samples) > 1000
    pd.testing.assert_frame_equal(keyed(theirs.samples), keyed(ours.samples))
    assert [replace(job, source="") for job in theirs.jobs] == [
        replace(job, source="") for job in ours.jobs
    ]


def test_repeated_values_of_the_last_seconds_are_not_taken(tmp_path: Path) -> None:
    """VictoriaMetrics repeats older values for the last 30 s: they are asked for later."""
    last = int(time.time()) // 10 * 10
    raw = [(float(last - 10 * back), float(back)) for back in range(30, -1, -1)]
    with running_victoria(tmp_path) as url:
        import_openmetrics(url, lines_of({POWER: raw}))
        start, end = (datetime.fromtimestamp(raw[at][0], tz=UTC) for at in (0, -1))
        plain = begun(url).range(POWER, start=start, end=end, step_seconds=10)
        assert not set(points_of(plain)) <= set(raw)
        taken = points_of(begun(url).series(POWER, start=start, end=end, step_seconds=10))
    assert set(taken) <= set(raw)
    assert len(taken) >= 24


def expected_rollup(points: list[tuple[float, float]], metric: str, at: float) -> float:
    """The value of the minute that ends at `at`, by hand."""
    values = [value for time_, value in points if at - 60 < time_ <= at]
    return {POWER: sum(values) / len(values), MEMORY: max(values), ENERGY: values[-1]}[metric]


def test_roll_ups_of_the_server_equal_those_by_hand(tmp_path: Path) -> None:
    """Mean power, largest memory and last energy of each minute, on both servers."""
    chance = np.random.default_rng(5)
    first = END.timestamp() - 1200 + 15
    times = [first + 15 * place for place in range(80)]
    readings: Readings = {
        POWER: [(at, float(chance.integers(60, 700))) for at in times],
        MEMORY: [(at, float(chance.integers(0, 80_000))) for at in times],
        ENERGY: [(at, 1000.0 * place) for place, at in enumerate(times)],
    }
    backfill(lines_of(readings), tmp_path)
    start = END - timedelta(minutes=19)
    with prometheus_with(tmp_path) as url, running_victoria(tmp_path) as other:
        import_openmetrics(other, lines_of(readings))
        for address in (url, other):
            one = begun(address)
            scrape = one.scrape_seconds(POWER, END)
            assert scrape == pytest.approx(15)
            for metric, points in readings.items():
                assert "over_time" in end_aligned(metric, metric, 60, scrape)
                found = points_of(
                    one.series(metric, start=start, end=END, step_seconds=60, scrape_seconds=scrape)
                )
                assert len(found) == 20
                for at, value in found:
                    assert value == pytest.approx(expected_rollup(points, metric, at), rel=1e-12)
