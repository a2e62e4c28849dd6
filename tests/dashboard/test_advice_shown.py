"""Advice reaches people whole: on the command line, on cards, and never as a change file."""

import json
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from beds.page_world import page_at, register_world
from beds.stores import cycle
from factories import (
    H100,
    NOW,
    make_collected,
    make_range,
    make_recommendation,
    make_samples,
)
from streamlit.testing.v1 import AppTest

from dashboard.apply.worker.change_file import change_for
from dashboard.web.findings import finding_panel
from dashboard.web.findings.finding_panel import blast_text, effect_text
from dashboard.web.findings.finding_rows import InboxRow
from dashboard.web.findings.plan import boards_of
from data.base.errors import ChangeRefusedError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.jobs import Platform
from data.records.actions import ADVICE, Action
from data.records.plans import Configuration
from data.records.recommendations import Range, Recommendation, Transition
from data.settings.all_settings import Settings
from data.store import open_store
from data.store.engine.record_json import from_json, to_json


@pytest.mark.parametrize("action", sorted(ADVICE))
@pytest.mark.parametrize("platform", list(Platform))
def test_advice_is_refused_as_a_change_file(action: Action, platform: Platform) -> None:
    """It says what to do by hand instead."""
    one = make_recommendation(action=action, platform=platform, change="move both jobs")
    with pytest.raises(ChangeRefusedError) as refused:
        change_for(one, ())
    assert "move both jobs" in refused.value.hint


@pytest.mark.parametrize("action", sorted(Action))
@pytest.mark.parametrize("autoscaler", [(), (("autoscaler", "hpa/chat"),)])
def test_a_card_promises_a_way_back_of_changes_alone(
    monkeypatch: pytest.MonkeyPatch, action: Action, autoscaler: Any
) -> None:
    """What a person does by hand changes nothing by itself, and nobody rolls it back."""
    monkeypatch.setattr(finding_panel, "tense", lambda live, _recorded: live)
    one = make_recommendation(action=action, details=autoscaler)
    status: Any = None
    told = blast_text(InboxRow(status=status, revision=one, urgent=False, saved=None))
    assert ("a person does it by hand" in told) is one.is_advice
    assert ("it changes nothing by itself" in told) is one.is_advice
    undone = [words for words in ("can be rolled back", "cannot be undone") if words in told]
    assert len(undone) == (not one.is_advice)


def test_new_fields_come_back_from_the_store_as_they_went() -> None:
    """Transition, delay, market-based emissions, hours and details."""
    one = make_recommendation(
        transition=Transition(
            seconds=Range(low=15, central=62, high=250, unit="s"),
            parts=(("start again", 62.0),),
            gpu_hours=0.1,
            cost=0.2,
        ),
        delay_hours=make_range(1.0, "h"),
        starts_at=NOW,
        ends_at=NOW + timedelta(hours=2),
        details=(("begin_at", NOW.isoformat()),),
        savings=replace(
            make_recommendation().savings, market_emissions_kgco2e=make_range(3.0, "kgCO2e")
        ),
    )
    assert from_json(Recommendation, to_json(one)) == one


def test_a_card_says_what_the_change_takes_and_delays() -> None:
    """The parts by name, the range in seconds, and the delay where it can be noticed."""
    one = make_recommendation(
        transition=Transition(
            seconds=Range(low=20, central=392, high=2170, unit="s"),
            parts=(("write a checkpoint", 30.0), ("start again", 62.0)),
            gpu_hours=0.4,
            cost=1.0,
        ),
        delay_hours=Range(low=0.0, central=0.11, high=17.4, unit="h"),
    )
    text = effect_text(one)
    assert "392 (20–2170) s (write a checkpoint, start again)" in text
    assert "0.11 (0–17) h later" in text
    assert effect_text(make_recommendation()) == ""


def test_a_shared_board_counts_half() -> None:
    """On pages that count boards."""
    half = Configuration(gpu_model=H100, gpu_count=1, shared_with="a/y")
    assert boards_of(half, catalogue=load_gpu_catalogue()) == 0.5
    assert half.describe() == f"1 × {H100} shared with a/y"


def buttons(app: AppTest) -> dict[str, Any]:
    """What the buttons of a page post, by their label."""
    assert not app.exception
    drawn = [json.loads(part.proto.json) for part in app.get("bidi_component")]
    return {button["label"]: button["posts"] for button in drawn}


@pytest.mark.parametrize("person", ["", "ann"])
def test_advice_has_its_own_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, person: str
) -> None:
    """*Done* posts where the person is known, *Not now* asks until when; it has no price."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    advice = make_recommendation(action=Action.ADD_GPUS, change="move both jobs")
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        store.keep(make_collected(make_samples(minutes=1)))
        cycle(store, 0, advice, make_recommendation(job_id="search/other"), at=NOW)
        register_world(store, Settings(), clock=lambda: NOW)
        kinds = {row.recommendation.action: row for row in store.reader.recommendations(now=NOW)}
        stored, change = kinds[Action.ADD_GPUS], kinds[make_recommendation().action]
        app = page_at("findings", finding=stored.reference)
        app.session_state["person"] = person
        posts = buttons(app.run())
        (rows,) = [part.value for part in app.dataframe if "finding" in part.value.columns]
        other = buttons(page_at("findings", finding=change.reference).run())
    assert {"Done", "Not now"} <= posts.keys()
    assert not {"Done", "Not now"} & other.keys()
    assert not {"Approve", "Dismiss", "Snooze"} & posts.keys()
    path = f"api/v1/findings/{stored.recommendation.digest}/decisions"
    body = {"decision": "reject", "reason": "done"}
    assert [(post["path"], post["body"]) for post in posts["Done"]] == [(path, body)] * bool(person)
    assert posts["Not now"] == []
    text = "\n".join(str(part.value) for part in (*app.markdown, *app.caption)).replace("\\", "")
    assert "rolled back" not in text
    assert text.count(stored.recommendation.summary) == 1
    assert " → " not in text
    money = rows.set_index("finding")["EUR/day"]
    assert pd.isna(money[stored.reference])
    assert f"worth {money[change.reference]:,.0f} (" in text
    assert "EUR a day (planning price 0.6–2.4×)" in text
