"""The first cycle on a Prometheus that holds days: what it reads of them is what they said."""

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from beds.prometheus import backfill, running_prometheus

from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.metrics import PrometheusDcgmCollector
from collectors.shared.collector import Window
from collectors.shared.multi_cluster import InCluster
from dashboard.cycle import past_collection
from dashboard.cycle.context import World
from dashboard.cycle.run_cycle import collect_and_keep
from dashboard.cycle.wiring import build_world
from data.base.errors import SourceUnreachableError
from data.facts.collected import Collected
from data.settings.all_settings import Settings
from data.settings.sources import PrometheusSettings
from data.store import Store, open_store

pytestmark = pytest.mark.prometheus
END = datetime(2026, 1, 8, 12, tzinfo=UTC)
HELD = timedelta(days=4, hours=6)
LATER = END + timedelta(minutes=15)


def lines() -> Iterator[str]:
    """Four boards, read each minute; a pod holds one for nine hours, then the next pod does."""
    labels = (
        'gpu="{0}",UUID="GPU-0000000{0}-1111-2222-3333-444444444444",Hostname="node-1",'
        'modelName="NVIDIA H100 80GB HBM3",namespace="{1}",pod="{2}",container="main"'
    )
    metrics = ("GPU_UTIL", "POWER_USAGE", "FB_USED", "FB_FREE")
    minutes = int((LATER - END + HELD) / timedelta(minutes=1))
    for name in metrics:
        yield f"# TYPE DCGM_FI_DEV_{name} gauge\n"
        for board in range(4):
            for minute in range(minutes + 1):
                at = END - HELD + timedelta(minutes=minute)
                pod = (minute + 77 * board) // 540
                level = 50 + 50 * math.sin(minute / 41 + board) * (pod % 3) / 2
                used = 9_000 + 100 * pod
                values = (round(level), 120 + 5.5 * level, used, 81_559 - used)
                value = values[metrics.index(name)]
                held = labels.format(board, f"team-{board % 2}", f"work-{board}-{pod}")
                yield f"DCGM_FI_DEV_{name}{{{held}}} {value:g} {at.timestamp():.0f}\n"
    yield "# EOF\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that holds four days and a quarter."""
    folder = tmp_path_factory.mktemp("prometheus")
    backfill(lines(), folder)
    with running_prometheus(folder) as url:
        yield url


def world_on(store: Store, url: str, *, lookback_hours: float = 24.0) -> World:
    """A world of that Prometheus alone."""
    prometheus = PrometheusSettings(url=url, lookback_hours=lookback_hours)
    return build_world(replace(Settings(), prometheus=prometheus), store=store)


def hours_of(store: Store) -> pd.DataFrame:
    """Energy in kWh and GPU-hours of the days that were held, by job."""
    frame = store.reader.energy(start=END - HELD, end=END - timedelta(days=1), by="job")
    return frame.set_index("key")[["energy_kwh", "gpu_hours"]].sort_index()


def slots_of(store: Store) -> pd.DataFrame:
    """The history of every job by five minutes, in order."""
    start = END - HELD - timedelta(days=1)
    frame = store.reader.job_history("", start=start, end=LATER, slot_seconds=300)
    return frame.sort_values(["job_id", "slot_start"]).reset_index(drop=True)


def test_the_first_cycle_reads_what_is_held(server: str, tmp_path: Path) -> None:
    """As much as if every minute had been asked for, at a fifth of the rows, and once only."""
    with open_store(f"duckdb:///{tmp_path / 'past.db'}") as store:
        world = world_on(store, server)
        (report,), _rows = collect_and_keep(world, END)
        past, rows = hours_of(store), store.reader.counts()["samples"]
        (second,), _rows = collect_and_keep(world, LATER)
        assert second.window_start is not None
        assert second.window_start >= END - timedelta(minutes=6)
        assert (second.holds_from, second.read_from) == (report.holds_from, report.read_from)
    with open_store(f"duckdb:///{tmp_path / 'minutes.db'}") as store:
        world = world_on(store, server, lookback_hours=HELD / timedelta(hours=1))
        collect_and_keep(world, END)
        minutes, all_rows = hours_of(store), store.reader.counts()["samples"]
    assert report.past in ("4.2 of 4.2 d", "4.5 of 4.5 d")
    assert set(past.index) == set(minutes.index)
    assert (past.sum() / minutes.sum()).between(0.99, 1.01).all()
    large = minutes["energy_kwh"] > 1
    assert (past[large] / minutes[large]).melt()["value"].between(0.95, 1.05).all()
    assert rows < 0.5 * all_rows


@pytest.mark.parametrize("cluster", ["", "north"])
def test_a_past_in_parts_is_the_same_past(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: str
) -> None:
    """A cycle with no time left for it goes on in the next one, until all is read."""
    stores = []
    for seconds in (600.0, 0.0):
        monkeypatch.setattr(past_collection, "SECONDS_A_CYCLE", seconds)
        with open_store(f"duckdb:///{tmp_path / f'{seconds:g}.db'}") as store:
            world = world_on(store, server)
            if cluster:
                further = [InCluster(inner=one, cluster=cluster) for one in world.collectors]
                world = replace(world, collectors=tuple(further))
            pasts = [collect_and_keep(world, END)[0][0].past for _cycle in range(5)]
            stores.append(slots_of(store))
        assert pasts[-1].split()[0] == pasts[-1].split()[2]
        assert pasts == sorted(pasts)
        assert (len(set(pasts)) == 1) == (seconds > 0)
    pd.testing.assert_frame_equal(*stores)


def test_a_past_that_breaks_off_is_read_on(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that fails in its past costs no cycle; the next one asks for the rest."""
    calls = []
    collect_past = PrometheusDcgmCollector.collect_past

    def failing(collector: PrometheusDcgmCollector, window: Window) -> Collected:
        calls.append(window)
        if len(calls) == 2:
            raise SourceUnreachableError("it went away", "Start it.")
        return collect_past(collector, window)

    monkeypatch.setattr(PrometheusDcgmCollector, "collect_past", failing)
    with open_store(f"duckdb:///{tmp_path / 'past.db'}") as store:
        world = world_on(store, server)
        (first,), _rows = collect_and_keep(world, END)
        (second,), _rows = collect_and_keep(world, LATER)
    assert first.past.startswith("2.0 of ")
    assert second.past.split()[0] == second.past.split()[2]
    assert calls[1] == calls[2]
    assert len({window.start for window in calls}) == len(calls) - 1


def test_a_store_of_before_is_left_alone(server: str, tmp_path: Path) -> None:
    """A source whose reports never told of its past is not asked for it."""
    with open_store(f"duckdb:///{tmp_path / 'past.db'}") as store:
        world = world_on(store, server)
        window = Window(start=END - timedelta(days=1), end=END)
        store.keep(world.collectors[0].collect(window))
        (report,), _rows = collect_and_keep(world, LATER)
        slots = slots_of(store)
    assert (report.holds_from, report.read_from, report.past) == (None, None, "")
    assert slots["slot_start"].min() >= END - timedelta(days=1)


def test_doctor_tells_how_far_back_it_reaches(server: str) -> None:
    """In days, of those that the first cycle reads."""
    from collectors.prometheus.findings import prometheus_findings

    settings = PrometheusSettings(url=server)
    findings = prometheus_findings(PrometheusClient(settings), settings, END)
    (past,) = [finding for finding in findings if finding[0] == "past"]
    assert past[1] == "ok"
    assert past[2].startswith("holds 4.")
    assert past[2].endswith("of the 14 d that the first cycle reads")
