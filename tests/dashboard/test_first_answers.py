"""What a server asks first is what the pages ask: none of them reads a history after it."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from beds.page_world import page_at, page_world
from beds.two_tenants import MINE, THEIRS, fill
from factories import NOW, make_collected

from dashboard.cycle.cycle_thread import CycleState
from dashboard.reports.week.week import week_to
from dashboard.reports.week.weekly_energy import weekly_energy
from dashboard.web.access.context import WebWorld
from dashboard.web.access.identity import register
from dashboard.web.server.first_answers import _Asks, first_questions
from data.facts.jobs import OwnNames
from data.settings.all_settings import Settings
from data.store import Store, StoreReader, open_store
from data.store.handles import cached_reader
from data.store.handles.tenant_reader import OwnedReader

SETTINGS = Settings()
QUESTIONS = ("boards_since", "energy_parts", "fleet_history", "forecast_summary", "group_history",
             "job_choices", "job_holders", "served_boards", "served_tokens")  # fmt: skip
"""Those that read a history, or all forecasts or jobs, for a small answer."""
VIEWS = ("overview", "fleet", "jobs", "forecasts", "plan", "costs", "energy", "reports", "health",
         "serving")  # fmt: skip


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, datetime]]:
    """Two tenants with rows of every kind, after a cycle."""
    with open_store(f"duckdb:///{tmp_path_factory.mktemp('first')}/t.duckdb") as store:
        yield store, fill(store, NOW)


def world_of(store: Store, end: datetime, **changes: Any) -> WebWorld:
    """The pages of that store at its newest sample."""
    return page_world(store, SETTINGS, clock=lambda: end, **changes)


def note_questions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note these questions when they are asked of the store."""
    asked: list[str] = []

    def noted(name: str) -> Any:
        question = getattr(StoreReader, name)

        @wraps(question)
        def ask(reader: StoreReader, *values: object, **named: object) -> object:
            # The newest half hour by five minutes is small: it is read anew.
            if named.get("slot_seconds") != 300:
                asked.append(f"{name} {named}")
            return question(reader, *values, **named)

        return ask

    for name in QUESTIONS:
        monkeypatch.setattr(cached_reader.CachedReader, name, cached_reader._cached(noted(name)))
    return asked


def test_pages_ask_nothing_anew(
    filled: tuple[Store, datetime], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nothing chosen, on the first open after a start; whoever changes a question sees it."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    asked = note_questions(monkeypatch)
    world = world_of(*filled)
    for ask in first_questions(world):
        ask()
    assert {text.split()[0] for text in asked} == set(QUESTIONS)
    asked.clear()
    register(world)
    for view in VIEWS:
        app = page_at(view)
        app.run()
        assert not app.exception, view
        assert asked == [], view


def test_a_server_asks_again_when_the_data_changed_and_no_cycle_is_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for a batch; nothing while the cycle that stored it still plans, or after a stop."""
    asked = note_questions(monkeypatch)
    state, stop = CycleState(), False
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        end = fill(store, NOW)
        asks = _Asks(world_of(store, end, cycle_state=lambda: state), stopping=lambda: stop)
        asks.ask_when_changed()
        first = len(asked)
        assert first >= len(QUESTIONS)
        asks.ask_when_changed()
        assert len(asked) == first
        store.keep(make_collected(batch_id="later"))
        state = replace(state, doing="jobs forecast")
        asks.ask_when_changed()
        assert len(asked) == first
        state = replace(state, doing="")
        asks.ask_when_changed()
        second = len(asked)
        assert second > first
        store.keep(make_collected(batch_id="latest"))
        stop = True
        asks.ask_when_changed()
        assert len(asked) == second


def test_an_owner_is_given_no_answer_of_the_fleet(filled: tuple[Store, datetime]) -> None:
    """The report's energy through an owner's reader is of their jobs."""
    store, end = filled
    world = world_of(store, end)
    for ask in first_questions(world):
        ask()
    names = OwnNames(owners=frozenset({MINE}), users=frozenset({MINE}))

    def energy(reader: StoreReader) -> str:
        found = weekly_energy(
            reader,
            week=week_to(end, SETTINGS.report.timezone),
            settings=SETTINGS,
            jobs=None,
        )
        return f"{found.statement.total} {found.top_jobs} {found.allocated.to_csv()}"

    mine = energy(OwnedReader(world.reader, names))
    assert THEIRS in energy(world.reader)
    assert MINE in mine
    assert THEIRS not in mine
