"""What a cycle prepares is what the pages ask: none of them reads a history after it."""

import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import wraps
from pathlib import Path

import pytest
from beds.page_world import page_at, register_world
from beds.two_tenants import MINE, THEIRS, fill
from factories import NOW

from dashboard.cycle.prepare_answers import prepare_answers
from dashboard.reports.week.week import week_to
from dashboard.reports.week.weekly_energy import weekly_energy
from data.base.errors import StoreError
from data.catalogue.carbon_table import load_carbon_table
from data.facts.jobs import OwnNames
from data.settings.all_settings import Settings
from data.store import Store, StoreReader, open_store
from data.store.handles.tenant_reader import OwnedReader
from data.store.results.prepared_answers import QUESTIONS

APP = Path(__file__).parents[2] / "dashboard/web/app.py"
SETTINGS = Settings()
RECENT = timedelta(hours=1)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, datetime]]:
    """Two tenants with rows of every kind, after a cycle."""
    with open_store(f"duckdb:///{tmp_path_factory.mktemp('prepared')}/t.duckdb") as store:
        end = fill(store, NOW)
        prepare_answers(store, SETTINGS, now=end)
        yield store, end


def note_questions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note the questions whose answers can be prepared, when they are asked of the store."""
    asked: list[str] = []

    def noted(name: str) -> object:
        question = getattr(StoreReader, name)

        @wraps(question)
        def ask(reader: StoreReader, *values: object, **named: object) -> object:
            # The newest half hour by five minutes is small: it is read anew.
            if named.get("slot_seconds") != 300:
                asked.append(f"{name} {named}")
            return question(reader, *values, **named)

        return ask

    from data.store.handles import cached_reader

    for name in sorted(QUESTIONS):
        kept = cached_reader._cached
        monkeypatch.setattr(cached_reader.CachedReader, name, kept(noted(name)))  # type: ignore[arg-type]
    return asked


VIEWS = ("overview", "fleet", "jobs", "forecasts", "plan", "costs", "energy", "reports", "health",
         "serving")  # fmt: skip


def test_pages_ask_nothing_anew_that_was_prepared(
    filled: tuple[Store, datetime], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nothing chosen, on the first open after a start; whoever changes a question sees it."""
    store, end = filled
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    asked = note_questions(monkeypatch)
    for view in VIEWS:
        register_world(store, SETTINGS, clock=lambda: end)  # a reader that remembers nothing
        app = page_at(view)
        app.run()
        assert not app.exception, view
        assert asked == [], view


def test_health_says_what_is_prepared_and_of_when(filled: tuple[Store, datetime]) -> None:
    """To who sees the whole fleet; an owner's reader knows of none."""
    store, end = filled
    register_world(store, SETTINGS, clock=lambda: end)
    app = page_at("health")
    app.run()
    said = " ".join(caption.value for caption in app.caption)
    assert f"answers for pages prepared with the cycle at {end:%Y-%m-%d %H:%M} UTC" in said
    names = OwnNames(owners=frozenset({MINE}), users=frozenset({MINE}))
    assert OwnedReader(store.reader_for_pages(), names).prepared_answers() is None


def test_an_owner_is_given_nothing_that_was_prepared(filled: tuple[Store, datetime]) -> None:
    """The report's energy through an owner's reader is of their jobs, as without a cycle."""
    store, end = filled
    names = OwnNames(owners=frozenset({MINE}), users=frozenset({MINE}))

    def energy(reader: StoreReader) -> str:
        found = weekly_energy(
            reader,
            week=week_to(end, SETTINGS.report.timezone),
            settings=SETTINGS,
            carbon=load_carbon_table().get(SETTINGS.energy.region),
            jobs=None,
        )
        return f"{found.statement.total} {found.top_jobs} {found.allocated.to_csv()}"

    whole = store.reader_for_pages()
    mine = energy(OwnedReader(whole, names))
    assert THEIRS in energy(whole)
    assert MINE in mine
    assert THEIRS not in mine
    with store._engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM prepared_answers")
    assert energy(OwnedReader(store.reader_for_pages(), names)) == mine


def test_a_cycle_stands_without_prepared_answers(
    filled: tuple[Store, datetime],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A store that cannot keep them loses the answers, not the cycle."""
    store, end = filled

    def full(*_given: object, **_named: object) -> int:
        raise StoreError("the disk is full", "Free some.")

    monkeypatch.setattr("dashboard.cycle.prepare_answers.prepare", full)
    prepare_answers(store, SETTINGS, now=end)
    assert "no answers are prepared" in caplog.text
