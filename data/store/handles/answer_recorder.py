"""Prepares answers: a reader notes what it answers, and the store keeps it."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from data.store.engine.dialects import Lock
from data.store.handles.cached_reader import Answer, CachedReader
from data.store.handles.store import Store
from data.store.results import prepared_answers


class PreparingReader(CachedReader):
    """Makes every answer itself, and notes those to `prepared_answers.QUESTIONS` by name."""

    def __init__(self, store: Store) -> None:
        super().__init__(store._engine)  # noqa: SLF001 - this module is the store's own
        self.notes: dict[str, str] = {}

    def _prepared(
        self, question: Callable[..., Answer], key: tuple[Any, ...], make: Callable[[], Answer]
    ) -> Answer:
        """Make the answer, and note it."""
        answer = make()
        self.notes[prepared_answers.name_of(key)] = prepared_answers.written(answer)
        return answer


def prepare(store: Store, ask: Callable[[CachedReader], None], *, at: datetime) -> int:
    """Keep what a reader answers while it is asked, in place of older answers; give their number.

    Errors: StoreError, and those of `ask`.
    """
    reader = PreparingReader(store)
    # Read before anything is asked: what is written meanwhile makes the answers old.
    version = reader.version()
    ask(reader)
    with store._transaction(Lock.FACTS) as connection:  # noqa: SLF001
        prepared_answers.keep_answers(connection, reader.notes, version, at)
    return len(reader.notes)
