"""The page Serving: the rows of the API, one service opened, and what to do without an engine."""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from beds.page_world import page_at, register_world
from factories import NOW, make_collected, make_job, make_plan, make_samples
from streamlit.testing.v1 import AppTest

from dashboard.resources.rows import service_row
from data.records.serving import ColdStart, ServiceOutlook
from data.settings.all_settings import Settings
from data.store import Store, open_store

APP = Path(__file__).parents[2] / "dashboard/web/app.py"
JOB = "search/chat"
CHAT = ServiceOutlook(
    job_id=JOB, namespace="search", service="chat", engine="vllm", model="m", read_until=NOW,
    replicas=3, running_requests=20.0, waiting_requests=5.0, requests_per_second=5.0,
    kv_cache_ratio=0.25, slot_starts=(NOW, NOW + timedelta(minutes=10)), rates_q50=(5.0, 6.0),
    rates_q95=(7.0, 9.0), required_replicas=(4, 6), carried_per_second=4.5,
)  # fmt: skip
MUTE = replace(
    CHAT, job_id="", service="<b>mute</b>", slot_starts=(), required_replicas=(), rates_q50=(),
    rates_q95=(), carried_per_second=None, reason="the engine tells too little",
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An hour of a board that a service holds."""
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as opened:
        opened.keep(make_collected(make_samples(minutes=61, job_id=JOB, end=NOW), (make_job(JOB),)))
        yield opened


def draw(
    store: Store, monkeypatch: pytest.MonkeyPatch, *services: ServiceOutlook, **asked: str
) -> AppTest:
    """The page after a cycle that foresaw these."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    store.keep_cycle(
        cycle_id="c1", started_at=NOW, finished_at=NOW, forecasts=(),
        serving=services, plan=make_plan(), recommendations=(),
    )  # fmt: skip
    register_world(store, Settings(), clock=lambda: NOW)
    app = page_at("serving", **asked)
    app.run()
    assert not app.exception
    return app


def words(app: AppTest) -> str:
    """All that is said."""
    said = (*app.markdown, *app.caption, *app.info, *app.warning, *app.header, *app.metric)
    found = "\n".join(str(entry.value) for entry in said)
    assert not re.search(r"(?<!\\)<b>", found)
    return found.replace("\\", "")


def test_without_an_engine_it_says_what_to_do(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And shows no table of zeros."""
    app = draw(store, monkeypatch)
    assert "prometheus.url" in words(app)
    assert not app.dataframe


def test_rows_are_those_of_the_api_and_unknown_is_unknown(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What needs a look is first and open; sums say of how many services they are not."""
    app = draw(store, monkeypatch, MUTE, CHAT)
    rows = app.dataframe[0].value
    row = service_row(CHAT, Settings().serving, NOW)
    assert list(rows["state"]) == ["short", "unknown"]
    shown = rows.iloc[0]
    assert shown["replicas"] == row.replicas
    assert shown["replicas_needed"] == row.required_replicas == 4
    assert shown["replicas_needed_max"] == row.max_required_replicas == 6
    assert shown["kv_cache_percent"] == 25
    assert rows["replicas_needed"].isna().tolist() == [False, True]
    assert rows["reason"].tolist() == ["", "the engine tells too little"]
    said = words(app)
    assert "2 inference services run on 6 replicas; 1 needs more or soon will: chat (short)" in said
    assert "; of 1 it is not known how many they need." in said
    assert "without 1 service of which it is unknown" in said
    assert "4.5 requests/s" in said
    assert "the engine tells no waits and no queue" in said


@pytest.mark.parametrize(
    ("cold", "expected"),
    [
        (
            ColdStart(seconds=300.0, typical_seconds=180.0, starts=14, source="pods"),
            ("5 min", "of the last 14, from being put on a node", "half took 3 min"),
        ),
        (
            ColdStart(seconds=480.0, typical_seconds=None, starts=0, source="setting"),
            ("8 min", "assumed until 9 starts were seen; so far 0"),
        ),
        (None, ("—", "not told by the latest cycle")),
    ],
)
def test_it_says_where_the_cold_start_is_from(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    cold: ColdStart | None,
    expected: tuple[str, ...],
) -> None:
    """Learnt, a setting, or not told: never 0 minutes."""
    app = draw(store, monkeypatch, replace(CHAT, cold_start=cold))
    (shown,) = [entry for entry in app.metric if entry.label == "a replica starts within"]
    assert shown.value == expected[0]
    said = words(app)
    assert all(text in said for text in expected[1:])


def test_an_address_opens_a_service_and_a_hostile_name_is_text(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without a pod has no boards; an unknown one is said to be unknown."""
    said = words(draw(store, monkeypatch, CHAT, MUTE, service="model <b>mute</b>"))
    assert "its metrics name no pod" in said
    assert "No forecast: the engine tells too little." in said
    assert "<b>mute</b>" in said
    missed = words(draw(store, monkeypatch, CHAT, service="search/gone"))
    assert "Service search/gone is not among these" in missed


def test_stale_readings_are_no_all_clear(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not known is said so, not that nothing is needed."""
    said = words(draw(store, monkeypatch, replace(CHAT, read_until=NOW - timedelta(hours=1))))
    assert "1 inference service runs on 3 replicas; of 1 it is not known how many" in said
    assert "none" not in said
