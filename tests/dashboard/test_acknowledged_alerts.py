"""Alerts that a person takes on: the same on the page, the command line and the API, and later."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from beds.api_clients import PROXY, clients, problem
from beds.page_world import page_at, register_world
from beds.stated_time import clock_at
from factories import NOW, make_collected, make_samples
from streamlit.testing.v1 import AppTest

from dashboard.cli import main
from data.facts.fleet import SourceState
from data.settings.all_settings import Settings
from data.store import Store, open_store

NAME = "odd name (urgent)"
ALERT = "source:odd%20name%20%28urgent%29"
"""A blank does not end the key in the record, whatever a source is called."""


def collection(store: Store, state: SourceState) -> None:
    """Keep what a source answered, or that it failed."""
    answer = make_collected(make_samples(minutes=1), ())
    report = replace(answer.report, source=NAME, state=state, reason="connection refused")
    store.keep(replace(answer, batch_id=str(state), report=report))


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """A source failed."""
    with open_store(store_url) as opened:
        collection(opened, SourceState.FAILED)
        yield opened


def said(app: AppTest) -> str:
    """What a page says."""
    assert not app.exception
    return "\n".join(str(part.value).replace("\\", "") for part in (*app.markdown, *app.error))


def labels(app: AppTest) -> set[str]:
    """The words on its buttons."""
    return {json.loads(part.proto.json)["label"] for part in app.get("bidi_component")}


def test_who_takes_an_alert_on_is_told_for_a_day(store: Store) -> None:
    """By whom and when, in the list and the record; not by a viewer, and no alert that is none."""
    times = [NOW]
    wish = {"alert": ALERT, "comment": "restarting it"}
    with clients(store, PROXY, lambda: times[-1]) as client:
        (row,) = client("vera").get("/api/v1/urgent").json()["items"]
        assert (row["alert"], row["acknowledged_by"], row["acknowledged_at"]) == (ALERT, "", None)
        problem(client("vera").post("/api/v1/urgent", json=wish), 403)
        problem(client("ann").post("/api/v1/urgent", json=wish | {"alert": "source:odd"}), 404)
        assert client("ann").post("/api/v1/urgent", json=wish).status_code == 200
        (row,) = client("vera").get("/api/v1/urgent").json()["items"]
        assert row["acknowledged_by"] == "ann"
        assert row["acknowledged_at"] == NOW.isoformat().replace("+00:00", "Z")
        times.append(NOW + timedelta(days=1))
        assert client("vera").get("/api/v1/urgent").json()["items"][0]["acknowledged_by"] == ""
    (entry,) = store.reader.audit()
    assert (entry.actor, entry.event) == ("ann", "acknowledged")
    assert entry.detail.startswith(f"{ALERT} {NAME}: its latest collection failed")
    assert entry.detail.endswith("(restarting it)")
    assert not store.reader.verify_audit()


def test_the_command_is_quiet_of_what_somebody_took_on(
    store_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """3 while nobody looks after it, 0 once somebody does; the list has both."""
    with open_store(store_url) as opened:
        collection(opened, SourceState.FAILED)
    words = ["--quiet", "--store", store_url]
    with clock_at(NOW):
        assert main([*words, "urgent", "--format", "json"]) == 3
        assert json.loads(capsys.readouterr().out)[0]["alert"] == ALERT
        assert main([*words, "acknowledge", "source:none", "--by", "ann"]) == 1
        assert main([*words, "acknowledge", ALERT, "--by", "ann"]) == 0
        assert f"{ALERT} is acknowledged by ann" in capsys.readouterr().out
        assert main([*words, "urgent", "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)[0]["acknowledged_by"] == "ann"


def test_the_address_of_an_alert_outlives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open it has a button, taken on a name, and once it is over who had taken it on."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        collection(store, SourceState.FAILED)
        register_world(store, Settings(), clock=lambda: NOW)
        app = page_at("health", alert=ALERT).run()
        assert "Acknowledge" in labels(app)
        assert f"([open](admin?alert={ALERT.replace('%', '%25').replace(':', '%3A')}))" in said(app)
        with clients(store, PROXY, lambda: NOW) as client:
            assert client("ann").post("/api/v1/urgent", json={"alert": ALERT}).status_code == 200
        app = page_at("health", alert=ALERT).run()
        assert f"Acknowledged by ann at {NOW:%Y-%m-%d %H:%M} UTC." in said(app)
        assert "Acknowledge" not in labels(app)
        collection(store, SourceState.RAN)
        app = page_at("health", alert=ALERT).run()
        assert f"{NAME}**: this alert is over" in said(app)
        assert f"ann took it on, {NOW:%Y-%m-%d %H:%M} UTC: {NAME}" in said(app)
        assert "never was" in said(page_at("health", alert="xid:none:79").run())
