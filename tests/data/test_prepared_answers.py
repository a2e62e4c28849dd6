"""Answers that a cycle prepared: to the last digit those of the question, and never stale."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from beds.stores import ENGINES, Stores
from beds.two_tenants import fill
from factories import NOW, make_collected, make_plan, make_samples
from hypothesis import given
from hypothesis import strategies as st

from data.settings.all_settings import RetentionSettings
from data.store import Store, StoreReader, open_store
from data.store.engine import tables
from data.store.engine.dialects import Lock
from data.store.facts.energy_parts import EnergyKey, Periods
from data.store.handles.answer_recorder import prepare
from data.store.handles.cached_reader import CachedReader
from data.store.results import prepared_answers
from data.store.results.prepared_answers import QUESTIONS, keep_answers, read_back, written

HOUR = {"slot_seconds": 3600}


@pytest.fixture(scope="module", params=ENGINES)
def template(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Stores, str, datetime]]:
    """Two tenants with rows of every kind, to be copied; the end of what is known of them."""
    stores = Stores(engine=request.param, server=lambda: request.getfixturevalue("postgres"))
    with stores.empty(tmp_path_factory.mktemp("template")) as url:
        with open_store(url, create=True) as store:
            end = fill(store, NOW)
        yield stores, url, end


@pytest.fixture
def filled(
    template: tuple[Stores, str, datetime], tmp_path: Path
) -> Iterator[tuple[Store, datetime]]:
    """A copy of them."""
    stores, url, end = template
    with stores.copy_of(url, tmp_path) as own, open_store(own) as store:
        yield store, end


def ask_all(reader: StoreReader, end: datetime) -> dict[str, object]:
    """The answer to every question that can be prepared."""
    span = {"start": end - timedelta(days=1), "end": end}
    parts = {"key": EnergyKey.JOB, "periods": Periods(), "hour_shift": 0}
    return {
        "boards_since": reader.boards_since(**span),
        "energy_parts": reader.energy_parts(**span, **parts),
        "fleet_history": reader.fleet_history(**span, **HOUR),
        "forecast_summary": reader.forecast_summary(),
        "group_history": reader.group_history(**span, **HOUR),
        "job_choices": reader.job_choices(),
        "job_holders": reader.job_holders(seen_since=span["start"]),
        "served_boards": reader.served_boards(**span),
        "served_tokens": reader.served_tokens(**span),
    }


def refuse_questions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note each question that is asked of the store itself."""
    asked: list[str] = []
    frames, rows = StoreReader._frame, StoreReader._rows

    def frame(self: StoreReader, query: str, **named: object) -> pd.DataFrame:
        asked.append(query)
        return frames(self, query, **named)

    def read(self: StoreReader, statement: sa.Executable) -> list[object]:
        text = str(statement)
        if "prepared_answers" not in text and "max(batches" not in text:
            asked.append(text)
        return rows(self, statement)

    monkeypatch.setattr(StoreReader, "_frame", frame)
    monkeypatch.setattr(StoreReader, "_rows", read)
    return asked


def require_same(expected: object, answer: object, *, is_to_the_digit: bool = False) -> None:
    """Equal, types and times included; of an answer made anew, up to order and rounding.

    An engine adds up and returns rows in the order in which its threads finish.
    """
    if isinstance(expected, pd.DataFrame):
        assert isinstance(answer, pd.DataFrame)
        if is_to_the_digit:
            pd.testing.assert_frame_equal(answer, expected, check_exact=True)
            return
        names = [name for name in expected.columns if expected[name].dtype != "float64"]
        for frame in (expected, answer):
            assert not frame.duplicated(names).any()
        pd.testing.assert_frame_equal(
            answer.sort_values(names, ignore_index=True),
            expected.sort_values(names, ignore_index=True),
            rtol=1e-9,
        )
    elif isinstance(expected, np.ndarray):
        assert isinstance(answer, np.ndarray)
        np.testing.assert_array_equal(np.sort(answer), np.sort(expected))
    else:
        assert answer == expected


def test_what_is_prepared_is_what_the_question_answers(
    filled: tuple[Store, datetime], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On both engines, of every question, by a reader that reads nothing else."""
    store, end = filled
    noted: dict[str, object] = {}
    assert prepare(store, lambda reader: noted.update(ask_all(reader, end)), at=NOW) == len(
        QUESTIONS
    )
    fresh = ask_all(store.reader, end)
    assert set(fresh) == QUESTIONS
    asked = refuse_questions(monkeypatch)
    prepared = ask_all(store.reader_for_pages(), end)
    assert asked == []
    for name, answer in prepared.items():
        require_same(noted[name], answer, is_to_the_digit=True)
        require_same(fresh[name], answer)


def keep_batch(store: Store) -> None:
    """Let new facts come."""
    late = make_samples(gpu_uuid="GPU-late", job_id="zebra/chat", end=NOW)
    store.keep(replace(make_collected(late, ()), batch_id="late"))


def keep_cycle(store: Store) -> None:
    """Let another cycle think."""
    store.keep_cycle(
        cycle_id="another", started_at=NOW, finished_at=NOW, forecasts=(),
        plan=replace(make_plan(), plan_id="f" * 64), recommendations=(),
    )  # fmt: skip


@pytest.mark.parametrize("write", [keep_batch, keep_cycle])
def test_nothing_prepared_outlives_what_it_was_made_from(
    filled: tuple[Store, datetime], write: Callable[[Store], None]
) -> None:
    """A batch or a cycle later every question is asked anew, of a new reader and of a known one."""
    store, end = filled
    prepare(store, lambda reader: ask_all(reader, end), at=NOW)
    known = store.reader_for_pages()
    ask_all(known, end)
    write(store)
    fresh = ask_all(store.reader, end)
    for reader in (known, store.reader_for_pages()):
        for name, answer in ask_all(reader, end).items():
            require_same(fresh[name], answer)


def test_what_is_written_while_answers_are_made_makes_them_old(
    filled: tuple[Store, datetime], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be of before and after; nobody is given one."""
    store, end = filled

    def ask(reader: CachedReader) -> None:
        reader.job_choices()
        keep_batch(store)
        ask_all(reader, end)

    prepare(store, ask, at=NOW)
    asked = refuse_questions(monkeypatch)
    ask_all(store.reader_for_pages(), end)
    assert len(asked) >= len(QUESTIONS)


def test_answers_of_before_make_room(filled: tuple[Store, datetime]) -> None:
    """The table does not grow with the cycles, and says when its answers were made."""
    store, end = filled
    for number, write in enumerate((keep_cycle, keep_batch)):
        prepare(store, lambda reader: ask_all(reader, end), at=NOW + timedelta(hours=number))
        before = store.reader.prepared_answers()
        write(store)
    assert store.reader.counts()[tables.prepared_answers.name] == len(QUESTIONS)
    assert before == (len(QUESTIONS), NOW + timedelta(hours=1))
    assert store.reader.prepared_answers() is None


def test_the_file_does_not_grow_with_the_cycles(tmp_path: Path) -> None:
    """DuckDB keeps the room of deleted rows; those of answers are written where they stand."""
    path = tmp_path / "t.duckdb"
    sizes = []
    random = np.random.default_rng(7)
    for first in (0, 30):
        with open_store(f"duckdb:///{path}") as store:
            for cycle in range(first, first + 30):
                texts = {f"{number} {cycle}": random.bytes(50_000).hex() for number in range(4)}
                with store._transaction(Lock.FACTS) as connection:
                    keep_answers(connection, texts, (cycle, cycle), NOW)
        sizes.append(path.stat().st_size)
    assert sizes[1] - sizes[0] < 4_000_000  # 12 MB of text were written in between


def test_what_is_forgotten_is_in_no_prepared_answer(filled: tuple[Store, datetime]) -> None:
    """Retention deletes rows without a new batch or cycle; answers made from them go as well."""
    store, end = filled
    prepare(store, lambda reader: ask_all(reader, end), at=NOW)
    store.forget(RetentionSettings(), end + timedelta(days=4000))
    assert store.reader.prepared_answers() is None
    with store._engine.connect() as connection:
        assert set(connection.execute(sa.select(tables.prepared_answers.c.record)).scalars()) == {
            ""
        }
    fresh = ask_all(store.reader, end)
    assert isinstance(fresh["fleet_history"], pd.DataFrame)
    assert fresh["fleet_history"].empty
    for name, answer in ask_all(store.reader_for_pages(), end).items():
        require_same(fresh[name], answer)


def test_another_version_is_given_none(
    filled: tuple[Store, datetime], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade may count differently from the same rows; it asks anew."""
    store, end = filled
    prepare(store, lambda reader: ask_all(reader, end), at=NOW)
    monkeypatch.setattr(prepared_answers, "_maker", lambda: ("99.0.0", 1))
    asked = refuse_questions(monkeypatch)
    ask_all(store.reader_for_pages(), end)
    assert len(asked) >= len(QUESTIONS)


def test_an_answer_that_cannot_be_read_is_made_anew(
    filled: tuple[Store, datetime], caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever its text is cut off; a page does not fail by it, and the log says so."""
    store, end = filled
    prepare(store, lambda reader: ask_all(reader, end), at=NOW)
    fresh = ask_all(store.reader, end)
    kept = tables.prepared_answers
    with store._engine.connect() as connection:
        rows = connection.execute(sa.select(kept.c.name, kept.c.record)).all()
    texts = {row.name: row.record for row in rows}
    for share in (0.0, 0.02, 0.5, 0.9):
        caplog.clear()
        with store._engine.begin() as connection:
            for name, text in texts.items():
                cut = kept.update().where(kept.c.name == name)
                connection.execute(cut.values(record=text[: int(share * len(text))]))
        for name, answer in ask_all(store.reader_for_pages(), end).items():
            require_same(fresh[name], answer)
        assert caplog.text.count("cannot be read and is made anew") == len(QUESTIONS)


def test_other_times_are_other_questions(filled: tuple[Store, datetime]) -> None:
    """What was prepared as of one time is never the answer as of another."""
    store, end = filled
    prepare(store, lambda reader: ask_all(reader, end), at=NOW)
    for earlier in (end - timedelta(minutes=5), end - timedelta(hours=1)):
        fresh = ask_all(store.reader, earlier)
        for name, answer in ask_all(store.reader_for_pages(), earlier).items():
            require_same(fresh[name], answer)


@given(
    st.lists(st.floats(allow_infinity=True, allow_nan=True), max_size=5),
    st.lists(st.text(max_size=4), max_size=5),
)
def test_frames_come_back_as_they_were(numbers: list[float], words: list[str]) -> None:
    """Any number and any text, also none."""
    rows = min(len(numbers), len(words))
    frame = pd.DataFrame({"number": numbers[:rows], "word": words[:rows]}).astype(
        {"number": "float64", "word": "str"}
    )
    back = read_back(written(frame), StoreReader.fleet_history)
    require_same(frame, back, is_to_the_digit=True)


def test_any_other_text_is_refused() -> None:
    """It is no answer that this Trimtab wrote."""
    with pytest.raises(ValueError, match="no prepared answer"):
        read_back("pickle gASV", StoreReader.fleet_history)
