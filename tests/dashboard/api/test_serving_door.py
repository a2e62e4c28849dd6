"""What autoscalers read: the metric and the API give one number, and none once it is stale."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from beds.api_clients import LOCAL, clients
from factories import NOW, make_collected, make_job, make_plan, make_range, make_samples
from prometheus_client.parser import text_string_to_metric_families

from dashboard.cycle.cycle_thread import CycleState
from dashboard.web.server.prometheus_metrics import SERVICES, OwnMetrics
from data.records.serving import ServiceOutlook
from data.settings.all_settings import Settings
from data.settings.serving import ServingSettings
from data.store import Store, open_store

DEPLOY = Path(__file__).parents[3] / "deploy"
KEDA, HPA = DEPLOY / "keda", DEPLOY / "hpa"
WORKLOAD = "search/deployment/chat"
NAMED = ServingSettings(named_on_metrics=True)
CHAT = ServiceOutlook(
    job_id=WORKLOAD, namespace="search", service="chat", engine="vllm", model="m", read_until=NOW,
    replicas=3, running_requests=20.0, waiting_requests=None, requests_per_second=5.0,
    slots_per_replica=16, service_seconds=make_range(4.0, "s"), arrival_scv=1.0,
    reactive_replicas=2, slot_starts=(NOW, NOW + timedelta(minutes=10)), rates_q50=(5.0, 6.0),
    rates_q95=(7.0, 9.0), required_replicas=(4, 6),
)  # fmt: skip
HOSTILE = replace(
    CHAT, job_id='a/b"} 1\ntrimtab_required_replicas 99', namespace="a", service='x"\n\u202e',
    required_replicas=(7, 7),
)  # fmt: skip
MUTE = replace(
    CHAT, job_id="search/mute", service="mute", required_replicas=(), slot_starts=(), rates_q50=(),
    rates_q95=(), reason="the engine tells too little",
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store whose cycle foresaw three services."""
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as opened:
        keep(opened, CHAT, HOSTILE, MUTE)
        yield opened


def keep(store: Store, *services: ServiceOutlook, number: int = 1) -> None:
    """Keep a cycle that foresaw these."""
    store.keep_cycle(
        cycle_id=f"c{number}", started_at=NOW, finished_at=NOW, forecasts=(),
        serving=services, plan=replace(make_plan(), plan_id=f"{number:064d}"), recommendations=(),
    )  # fmt: skip


def documents(name: str) -> list[dict[str, Any]]:
    """The ScaledObjects of a file."""
    found = yaml.safe_load_all((KEDA / name).read_text(encoding="utf-8"))
    return [entry for entry in found if entry["kind"] == "ScaledObject"]


def metric(
    store: Store,
    now: datetime,
    settings: ServingSettings = NAMED,
    name: str = "trimtab_required_replicas",
    label: str = "workload",
) -> dict[str, float]:
    """The metric by workload, as Prometheus' own parser reads it."""
    own = OwnMetrics(store.reader, CycleState, lambda: False, lambda: settings)
    families = text_string_to_metric_families(own.exposition(now).decode())
    return {
        sample.labels[label]: sample.value
        for family in families
        for sample in family.samples
        if sample.name == name
    }


def listed(store: Store, now: datetime) -> dict[str, Any]:
    """What the API answers."""
    with clients(store, LOCAL, lambda: now, settings=Settings(serving=NAMED)) as client:
        answer = client(peer="127.0.0.1").get("/api/v1/serving?limit=1000")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def test_the_number_is_that_of_the_slot_until_the_readings_are_stale(store: Store) -> None:
    """The metric is absent then, and the API says null and why."""
    for minutes, expected in ((1, 4), (10, 6), (30, 6), (31, None), (-1, None)):
        now = NOW + timedelta(minutes=minutes)
        assert metric(store, now).get(WORKLOAD) == expected
        rows = {row["job_id"]: row for row in listed(store, now)["items"]}
        assert rows[WORKLOAD]["required_replicas"] == expected
        assert rows[WORKLOAD]["reason"] == ("" if expected else "its readings are stale")
        assert rows["search/mute"]["required_replicas"] is None
        assert rows["search/mute"]["reason"] == "the engine tells too little"
    assert [slot["required_replicas"] for slot in rows[WORKLOAD]["slots"]] == [4, 6]


def test_services_are_named_on_metrics_only_where_asked_and_not_without_end(store: Store) -> None:
    """Hostile names stay labels."""
    assert metric(store, NOW, ServingSettings()) == {}
    found = metric(store, NOW)
    assert sorted(found.values()) == [4.0, 7.0]
    long = "b" * 300
    alike = [replace(CHAT, job_id=f"{long}{n}", required_replicas=(n, n)) for n in (5, 9, 3)]
    keep(store, *alike, number=3)
    assert list(metric(store, NOW).values()) == [9.0]
    many = (
        replace(CHAT, job_id=f"a/{number}", service=str(number), running_requests=float(number))
        for number in range(SERVICES + 5)
    )
    keep(store, *many, number=4)
    found = metric(store, NOW)
    assert len(found) == SERVICES
    assert "a/4" not in found


def test_jobs_that_are_idle_are_named_on_metrics_only_where_asked(store: Store) -> None:
    """A running job has a series; of one that is not certainly idle it is 0."""
    frame = make_samples(job_id="lab/x", minutes=120, utilization_ratio=0.0)
    busy = make_samples(job_id="lab/y", minutes=120).assign(gpu_uuid="GPU-9")
    jobs = make_job("lab/x"), make_job("lab/y")
    store.keep(make_collected(pd.concat([frame, busy]), jobs))
    named = {"name": "trimtab_job_idle_seconds", "label": "job_id"}
    idle = metric(store, NOW, **named)
    assert (idle["lab/x"], idle["lab/y"]) == (pytest.approx(7200, abs=300), 0.0)
    assert metric(store, NOW, ServingSettings(), **named) == {}


def test_engines_without_a_pod_are_told_apart_by_their_model(store: Store) -> None:
    """A query by workload takes one of them, and no workload that has the name of a model."""
    bare = replace(CHAT, job_id="", namespace="", required_replicas=(2, 2))
    other = replace(bare, service="org/large@paris", required_replicas=(9, 9))
    named = replace(CHAT, job_id="org/small", required_replicas=(5, 5))
    keep(store, replace(bare, service="org/small"), other, named, number=2)
    assert metric(store, NOW) == {
        "model:org/small": 2.0,
        "model:org/large@paris": 9.0,
        "org/small": 5.0,
    }


def test_the_example_for_prometheus_asks_for_what_is_served(store: Store) -> None:
    """Its matcher names a workload that the metric has; no series is no wish for none."""
    (scaled,) = documents("scaledobject-prometheus.yaml")
    asked = scaled["spec"]["triggers"][0]["metadata"]
    name, workload = re.fullmatch(r'max\((\w+){workload="([^"]+)"}\)', asked["query"]).groups()  # type: ignore[union-attr]
    assert name == "trimtab_required_replicas"
    assert metric(store, NOW)[workload] == 4
    assert (asked["threshold"], asked["ignoreNullValues"]) == ("1", "false")


def test_the_example_for_the_api_reads_its_number(store: Store) -> None:
    """The address, and the path as GJSON reads it: the first of a list whose field is equal."""
    (scaled,) = documents("scaledobject-api.yaml")
    asked = scaled["spec"]["triggers"][0]["metadata"]
    assert asked["url"].endswith("/api/v1/serving?limit=1000")
    form = r'(\w+)\.#\((\w+)=="([^"]+)"\)\.(\w+)'
    rows, key, value, field = re.fullmatch(form, asked["valueLocation"]).groups()  # type: ignore[union-attr]
    answer = listed(store, NOW)
    found = next(row for row in answer[rows] if row[key] == value)
    assert found[field] == 4
    assert asked["targetValue"] == "1"


def test_both_examples_react_by_themselves_as_well() -> None:
    """Between two cycles no forecast sees a burst."""
    for name in ("scaledobject-prometheus.yaml", "scaledobject-api.yaml"):
        (scaled,) = documents(name)
        assert "num_requests_waiting" in scaled["spec"]["triggers"][1]["metadata"]["query"]


@pytest.mark.parametrize("name", ["horizontalpodautoscaler", "horizontalpodautoscaler-wva"])
def test_the_examples_for_prometheus_adapter_ask_for_what_is_served(
    store: Store, name: str
) -> None:
    """By the adapter's published rules: the selector and the HPA's namespace become matchers.

    Values of a selector are labels of Kubernetes, which hold no slash: `workload` cannot be one.
    """
    scaled = yaml.safe_load((HPA / f"{name}.yaml").read_text(encoding="utf-8"))
    values = yaml.safe_load((HPA / "prometheus-adapter-values.yaml").read_text(encoding="utf-8"))
    metrics = [entry["external"]["metric"] for entry in scaled["spec"]["metrics"]]
    first, second, third = values["rules"]["external"]
    assert first["metricsQuery"] == "max(<<.Series>>{<<.LabelMatchers>>})"
    assert first["resources"]["overrides"] == {"namespace": {"resource": "namespace"}}
    assert f'__name__="{metrics[0]["name"]}"' in first["seriesQuery"]
    assert metrics[1]["name"] in (second["name"]["as"], "wva_desired_replicas")
    assert '__name__="wva_desired_replicas"' in third["seriesQuery"]
    wanted = metrics[0]["selector"]["matchLabels"] | {"namespace": scaled["metadata"]["namespace"]}
    for value in wanted.values():
        assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", value)
    own = OwnMetrics(store.reader, CycleState, lambda: False, lambda: NAMED)
    found = [
        sample.value
        for family in text_string_to_metric_families(own.exposition(NOW).decode())
        for sample in family.samples
        if sample.name == metrics[0]["name"] and wanted.items() <= sample.labels.items()
    ]
    assert found == [4]
    assert scaled["spec"]["metrics"][0]["external"]["target"]["averageValue"] == "1"


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"replicas": 3}, "short"),
        ({"replicas": 4}, "rising"),
        ({"replicas": 6}, "enough"),
        ({"replicas": 7}, "spare"),
        ({"replicas": 7, "wait_seconds": 2.1}, "late"),
        ({"read_until": NOW - timedelta(hours=1)}, "stale"),
        ({"required_replicas": (), "slot_starts": ()}, "unknown"),
    ],
)
def test_the_state_of_a_service_is_one_word(
    store: Store, changes: dict[str, Any], state: str
) -> None:
    """4 are to be ordered now and 6 in ten minutes; requests may wait 2 s."""
    keep(store, replace(CHAT, **changes), number=2)
    (row,) = listed(store, NOW)["items"]
    assert row["state"] == state
    assert row["max_required_replicas"] == (None if state in ("stale", "unknown") else 6)
