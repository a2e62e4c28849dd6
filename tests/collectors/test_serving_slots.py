"""What engines served, through a real Prometheus and into stores of both engines."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from beds.faulty_server import answers_series, faulty_server
from beds.prometheus import backfill, running_prometheus
from factories import make_collected, make_job
from hypothesis import given
from hypothesis import strategies as st

from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.metrics import (
    PrometheusDcgmCollector,
    key_text,
    serving_names,
    serving_slots,
)
from collectors.readings.dcgm_readings import DroppedReadings, Series
from collectors.shared.collector import Collector, Window
from collectors.shared.multi_cluster import InCluster
from dashboard.cli import main
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.cluster_names import cluster_in
from data.facts.collected import Collected
from data.facts.columns import ALLOCATIONS, SERVING, check_frame
from data.facts.jobs import OwnNames
from data.settings.all_settings import RetentionSettings
from data.settings.sources import PrometheusSettings
from data.store import Store, open_store
from data.store.handles.tenant_reader import OwnedReader
from data.store.serving import service_history
from data.store.serving.service_history import ServedHistory
from data.store.serving.service_reader import ServiceReader

END = datetime(2026, 1, 8, 12, tzinfo=UTC)
START = END - timedelta(minutes=30)
STEP = 15
POWER = "DCGM_FI_DEV_POWER_USAGE"


def collected_from(url: str, *, start: datetime = START, **options: object) -> Collected:
    """What the source gives of the half hour."""
    settings = PrometheusSettings(url=url, **options)  # type: ignore[arg-type]
    client = PrometheusClient(settings)
    collector = PrometheusDcgmCollector(client, settings, load_gpu_catalogue())
    return collector.collect(Window(start=start, end=END))


def pod(name: str) -> str:
    """The labels of a replica as a ServiceMonitor gives them."""
    return f'namespace="search",pod="{name}",instance="10.0.0.{name[-1]}:8000",model_name="m"'


def openmetrics() -> Iterator[str]:
    """Two replicas: 2 requests a second each, 3 s long; the second starts anew half way."""
    times = [START.timestamp() - 300 + STEP * step for step in range(2100 // STEP + 1)]
    half = len(times) // 2
    pods = ("llama-7c9d8b6f5x-bcdf2", "llama-7c9d8b6f5x-bcdf4")

    def grown(number: int, position: int, a_step: float) -> float:
        return a_step * (position - half if number and position >= half else position)

    for name, reading in (
        (POWER, None),
        ("vllm:num_requests_running", lambda _n, _p: 6.0),
        ("vllm:num_requests_waiting", lambda _n, p: float(p % 2)),
        ("vllm:kv_cache_usage_perc", lambda _n, p: 0.9 if p == half else 0.5),
        ("vllm:gpu_cache_usage_perc", lambda _n, _p: 0.1),
        ("vllm:request_success_total", lambda n, p: grown(n, p, 2.0 * STEP)),
        ("vllm:e2e_request_latency_seconds_sum", lambda n, p: grown(n, p, 6.0 * STEP)),
        ("vllm:e2e_request_latency_seconds_count", lambda n, p: grown(n, p, 2.0 * STEP)),
    ):
        yield f"# TYPE {name} unknown\n"
        for number, one in enumerate(pods):
            for position, at in enumerate(times):
                if reading is None:
                    yield f'{name}{{UUID="GPU-{number}",Hostname="n1",pod="{one}"}} 300 {at}\n'
                else:
                    yield f"{name}{{{pod(one)}}} {reading(number, position)} {at}\n"
    yield "# EOF\n"


@pytest.mark.prometheus
def test_requests_are_read_by_slot_through_a_restart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Means of gauges, growth of counters over a restart, the newest name, the unknown as such.

    A cycle makes of them a service with the replicas that it needs: (12 + 1) requests / (11 * 0.7)
    where six half fill the cache of a replica that was never full.
    """
    backfill(openmetrics(), tmp_path)
    store = ("--quiet", "--store", f"duckdb:///{tmp_path}/t.duckdb")
    with running_prometheus(tmp_path) as url:
        found = collected_from(url).serving
        cycle = ("cycle", "--prometheus", url, "--lookback", "0.5", "--now", END.isoformat())
        assert main([*store, *cycle]) == 0
    capsys.readouterr()
    assert main([*store, "serving", "services", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["namespace"], row["service"], row["replicas"]) == ("search", "llama", 2)
    assert (row["slots_per_replica"], row["reactive_replicas"]) == (11, 2)
    assert row["service_seconds"] == pytest.approx(3.0)
    assert row["requests_per_second"] == pytest.approx(4.0, rel=0.05)
    assert {slot["required_replicas"] for slot in row["slots"]} == {2}
    assert row["required_replicas"] is None  # the readings are of long ago
    assert len(found) == 12
    assert found["slot_start"].min() == START
    assert set(found["label_id"]) == {
        "search/llama-7c9d8b6f5x-bcdf2", "search/llama-7c9d8b6f5x-bcdf4"
    }  # fmt: skip
    assert set(found["running_requests"]) == {6.0}
    assert found["waiting_requests"].mean() == pytest.approx(0.5, abs=0.02)
    assert sorted(set(found["kv_cache_ratio"])) == [0.5, 0.9]
    assert found["finished_requests"].to_numpy() == pytest.approx(600.0, rel=0.07)
    assert found["finished_requests"].sum() == pytest.approx(7200, rel=0.01)
    means = found["request_seconds"] / found["request_count"]
    assert means.to_numpy() == pytest.approx(3.0)
    assert found["prompt_tokens"].isna().all()
    assert found["queue_wait_count"].isna().all()


def board() -> dict[str, object]:
    """A series of a board."""
    labels = {"UUID": "GPU-0", "Hostname": "n1", "modelName": "NVIDIA H100 80GB HBM3"}
    return {"metric": labels, "values": [[END.timestamp(), "300.0"]]}


def test_where_no_engine_is_nothing_is_asked() -> None:
    """The names are read anyway; an engine that is there costs one question a metric."""
    running = "vllm:num_requests_running"
    for names, asked in (((POWER,), 0), ((POWER, running, f"{running}_bucket"), 1)):
        with faulty_server(answers_series(board()), names=names) as server:
            collected_from(server.url)
            assert sum("vllm" in text for text in map(str, server.asked)) == asked
    assert serving_names({"vllm:time_to_first_token_seconds_bucket", POWER}) == []


def rows(*cells: tuple[int, str, float], model: str = "m", address: str = "a") -> pd.DataFrame:
    """Rows of (slot from START, pod, requests at work)."""
    frame = pd.DataFrame(
        [
            {
                "slot_start": pd.Timestamp(START + timedelta(minutes=5 * slot)).as_unit("us"),
                "label_id": label, "engine": "vllm", "model": model, "address": address,
                "running_requests": running, "waiting_requests": running - 6,
            }
            for slot, label, running in cells
        ]
    )  # fmt: skip
    return check_frame(frame, SERVING)


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """An empty store, on both engines."""
    with open_store(store_url) as opened:
        yield opened


def keep(store: Store, serving: pd.DataFrame, name: str, **facts: object) -> None:
    """Keep what engines served."""
    store.keep(make_collected(serving=serving, batch_id=name, **facts))  # type: ignore[arg-type]


def histories(reader: ServiceReader) -> list[ServedHistory]:
    """What each service of the half hour served."""
    return list(reader.services(start=START, end=END, within=timedelta(hours=1)))


def kept(store: Store) -> dict[tuple[str, str], list[float]]:
    """Requests at work by service and slot."""
    return {
        (found.job_id, found.nameless): np.nan_to_num(
            found.columns["running_requests"], nan=-1.0
        ).tolist()
        for found in histories(store.reader)
    }


@dataclass(frozen=True, kw_only=True)
class Told:
    """A source that tells what it was given."""

    found: Collected
    name: str = "prometheus"

    def collect(self, _window: Window) -> Collected:
        """Tell it."""
        return self.found


def held(label: str) -> pd.DataFrame:
    """That the owner's workload held something under this label."""
    frame = pd.DataFrame(
        [{"job_id": "search/deployment/chat", "label_id": label, "started_at": START,
          "seen_at": END, "ended_at": None, "source": "kubernetes"}]
    )  # fmt: skip
    for name in ("started_at", "seen_at", "ended_at"):
        frame[name] = pd.to_datetime(frame[name], utc=True).astype("datetime64[us, UTC]")
    return check_frame(frame, ALLOCATIONS)


def test_replicas_are_one_service(store: Store) -> None:
    """By their scheduler's word, by their pods' names, without a pod by their model."""
    serving = rows(
        (0, "search/llama-7c9d8b6f5x-bcdf2", 6.0),
        (0, "search/llama-7c9d8b6f5x-bcdf4", 7.0),
        (1, "search/llama-1", 3.0),
        (0, "search/odd-pod", 4.0),
        (0, "", 5.0),
    )
    keep(store, serving, "one", allocations=held("search/odd-pod"))
    assert kept(store) == {
        ("search/llama", ""): [13.0, 3.0],
        ("search/deployment/chat", ""): [4.0],
        ("", "m"): [5.0],
    }
    (found,) = (entry for entry in histories(store.reader) if entry.job_id == "search/llama")
    names = ("replicas", "fullest_requests", "full_requests")
    assert [found.columns[name][0] for name in names] == [2, 7.0, 7.0]


@pytest.mark.parametrize("seed", range(4))
def test_services_read_at_once_are_what_each_is_alone(
    store: Store, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods with several engines, gaps, unknown values, and pods that come and go."""
    monkeypatch.setattr(service_history, "_MAX_SERVICES", 2)
    monkeypatch.setattr(service_history, "_MAX_ROWS", 10)
    monkeypatch.setattr(service_history, "_MAX_BLOCK", 3)
    random = np.random.default_rng(seed)
    labels = ["search/llama-0", "search/llama-1", "search/chat-0", "search/chat-1", "", "ml/a-0"]
    names = [name for name in SERVING.names if name.endswith(("requests", "_count", "_ratio"))]
    frames = []
    for label in labels:
        for model in ("m", "n")[: random.integers(1, 3)]:
            slots = np.flatnonzero(random.random(6) < 0.7)
            told = rows(*((int(slot), label, 1.0) for slot in slots), model=model)
            frames.append(
                told.assign(
                    engine=str(random.choice(["vllm", "tgi"])),
                    **{
                        name: np.where(
                            random.random(len(slots)) < 0.1, np.nan, random.random(len(slots)) * 3
                        )
                        for name in names
                    },
                )
            )
    keep(store, pd.concat(frames, ignore_index=True), "all")
    found = histories(store.reader)
    assert len({(entry.job_id, entry.nameless) for entry in found}) == len(found) > 2
    for entry in found:
        alone = store.reader.service(entry.job_id, entry.nameless, start=START, end=END)
        assert entry.starts.tolist() == [at.timestamp() for at in alone["slot_start"]]
        newest = alone.iloc[-1]
        assert (entry.engine, entry.model) == (newest["engine"], newest["model"])
        for name, values in entry.columns.items():
            np.testing.assert_allclose(values, alone[name].to_numpy(float), err_msg=name)


@pytest.mark.parametrize("address", ["10.0.0.1:8000", ""])
def test_engines_without_a_pod_are_of_their_cluster(store: Store, address: str) -> None:
    """Two clusters name one model and scrape one address; a label names no other cluster."""
    for cluster, running in (("", 5.0), ("paris", 6.0), ("rome", 7.0)):
        serving = rows((0, "", running), address=address)
        source: Collector = Told(found=make_collected(serving=serving))
        if cluster:
            source = InCluster(inner=source, cluster=cluster)
        store.keep(source.collect(Window(start=START, end=END)))
    keep(store, rows((0, "", 8.0), model="m@paris"), "hostile")
    assert kept(store) == {
        ("", "m"): [5.0], ("", "m@paris"): [6.0], ("", "m@rome"): [7.0], ("", "m%40paris"): [8.0]
    }  # fmt: skip
    alone = store.reader.service("", "m@paris", start=START, end=END)
    assert alone["running_requests"].tolist() == [6.0]


def test_a_label_of_an_address_names_no_other_cluster() -> None:
    """Whoever names a target does not choose whose engine it is."""
    running = {"__name__": "vllm:num_requests_running", "instance": "a@paris", "model_name": "m"}
    series = Series(
        metric=running["__name__"], labels=running,
        times=np.array([END.timestamp()]), values=np.array([1.0]),
    )  # fmt: skip
    found = serving_slots([series], DroppedReadings())
    assert [cluster_in(text) for text in found["address"]] == [""]
    assert found["address"].tolist() == ["a%40paris"]


def test_a_service_that_was_last_read_long_before_the_others_is_no_more(store: Store) -> None:
    """Within five minutes of the newest reading it is there."""
    keep(store, rows((0, "search/old-0", 1.0), (2, "search/new-0", 1.0)), "one")
    for minutes, names in ((5, ["search/new"]), (10, ["search/new", "search/old"])):
        there = store.reader.services(start=START, end=END, within=timedelta(minutes=minutes))
        assert [found.job_id for found in there] == names


def test_a_slot_told_again_is_the_latter_and_unknown_parts_leave_a_sum_unknown(
    store: Store,
) -> None:
    """Keeping twice adds nothing."""
    keep(store, rows((0, "search/llama-0", 6.0)), "one")
    keep(store, rows((0, "search/llama-0", 8.0)), "two")
    keep(store, rows((0, "search/llama-1", float("nan"))), "three")
    assert kept(store) == {("search/llama", ""): [-1.0]}
    keep(store, rows((0, "search/llama-1", 1.0)), "four")
    assert kept(store) == {("search/llama", ""): [9.0]}


def test_old_slots_are_forgotten_and_do_not_come_back(store: Store) -> None:
    """With the roll-ups of five minutes."""
    keep(store, rows((0, "search/llama-0", 6.0)), "one")
    later = END + timedelta(days=91)
    store.forget(RetentionSettings(), later)
    keep(store, rows((1, "search/llama-0", 6.0)), "two")
    assert kept(store) == {}


def test_an_owner_sees_replicas_of_their_pods_and_none_that_is_nobodys(store: Store) -> None:
    """A job that is held under no label owns no replica without one."""
    job = make_job("search/deployment/chat", owner="lea")
    serving = rows((0, "search/odd-pod", 4.0), (0, "search/other-0", 6.0), (0, "", 5.0))
    for label in ("search/odd-pod", ""):
        keep(store, serving, f"one {label}", jobs=(job,), allocations=held(label))
    mine = OwnedReader(
        store.reader_for_pages(), OwnNames(owners=frozenset({"lea"}), users=frozenset())
    )
    assert [found.job_id for found in histories(mine)] == ["search/deployment/chat"]
    assert len(histories(store.reader)) == 3


@given(st.text(min_size=0, max_size=1200), st.text(min_size=0, max_size=1200))
def test_texts_of_a_key_fit_into_an_index_and_stay_apart(one: str, other: str) -> None:
    """A tenant names its model; three such texts fit into the 2,704 bytes of PostgreSQL."""
    for text in (one, other):
        cut = key_text(text)
        assert len(cut.encode()) <= 700
        assert cut == text or len(text.encode()) > 700
    assert (key_text(one) == key_text(other)) is (one == other)


def test_a_store_without_engines_has_no_services(store: Store) -> None:
    """Nor one in which nothing carries a pod's label asks for what pods ran."""
    assert histories(store.reader) == []
    keep(store, rows((0, "", 5.0)), "nameless")
    assert [found.nameless for found in histories(store.reader)] == ["m"]
