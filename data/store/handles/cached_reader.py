"""A reader that answers again what it answered before, until something it rests on is written.

Pages ask the same of the store at every rerun. Each answer is kept with the newest batch, cycle and
audit entry that it was made from; these are read anew for every question (about 2 ms), so
that a page never shows less than the store holds, whichever process wrote it. Where this process
alone can write, they are read once after each of its commits.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from data.base.clock import floor_to_slot, utc_now
from data.records.commands import SWITCH_EVENTS
from data.store.engine import tables
from data.store.handles.reader import StoredRecommendation, StoreReader

_CACHED = """
latest_sample_at job jobs job_holders job_page job_choices similar_jobs job_holdings job_hours
job_names nodes quotas gpus boards silent_boards contradicted_counters contradicted_hours
board_xids service served_boards served_tokens board_history job_history fleet_history
group_history energy energy_parts sharing_hours boards_since energy_disagreements source_reports
recording latest_plan plan forecast forecast_counts forecast_tests forecast_summary forecast_jobs
skipped_forecasts group_forecasts workload_forecasts workload_forecast memory_outlook
serving_outlook slow_work last_cycle
"""
"""Questions whose answers rest on facts and plans alone."""
_MAX_ENTRIES = 128
_MINUTE = 60
Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


def _cached(
    question: Callable[Concatenate[StoreReader, Asked], Answer],
) -> Callable[Concatenate["CachedReader", Asked], Answer]:
    """Return the query of facts and plans, answered from memory while these stay."""

    def ask(reader: "CachedReader", /, *values: Asked.args, **options: Asked.kwargs) -> Answer:
        key = (question.__name__, values, tuple(sorted(options.items())))
        return reader.remember(key, lambda: question(reader, *values, **options))

    ask.__doc__ = question.__doc__
    ask.__name__ = question.__name__
    return ask


class _Slot:
    """One answer, and the lock under which one thread makes it while others wait."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.version: Hashable = None
        self.answer: Any = None


class CachedReader(StoreReader):
    """For pages. Frames are handed out as copies (on write), so that no page changes another's."""

    def __init__(self, engine: sa.Engine, commits: Callable[[], int] | None = None) -> None:
        """Read by the engine; `commits` counts those of the only process that writes, if any."""
        super().__init__(engine)
        self._commits = commits
        self._latest: tuple[int, tuple[int | None, ...]] | None = None
        self._slots: OrderedDict[Hashable, _Slot] = OrderedDict()
        self._choosing = threading.Lock()

    def version(self, *, decisions: bool = False, record: bool = False) -> tuple[int | None, ...]:
        """Return the newest batch and cycle, with `decisions` the newest audit entry as well.

        That is one which is not of the kill switch: no finding rests on it, and a switch that is
        thrown each second would have all answers made anew. With `record` every entry counts.
        """
        # Counted before they are read: what is committed meanwhile makes them old.
        commits = None if self._commits is None else self._commits()
        latest = self._latest
        if commits is None or latest is None or latest[0] != commits:
            sources = (tables.batches, tables.cycles, tables.audit)
            queries = [sa.select(sa.func.max(source.c.sequence)) for source in sources]
            decisions_query = queries[-1].where(tables.audit.c.event.not_in(SWITCH_EVENTS))
            newest = [
                query.scalar_subquery() for query in (*queries[:2], decisions_query, queries[2])
            ]
            latest = (commits or 0, tuple(self._rows(sa.select(*newest))[0]))
            self._latest = latest
        return latest[1] if record else latest[1][:3] if decisions else latest[1][:2]

    def remember(
        self,
        key: Hashable,
        make: Callable[[], Answer],
        *,
        decisions: bool = False,
        record: bool = False,
        is_lasting: bool = False,
    ) -> Answer:
        """Return the answer of `make` for this key, made anew when the data have changed since.

        One that is lasting stays as it is: its key says of what time it is.
        """
        with self._choosing:
            slot = self._slots.setdefault(key, _Slot())
            self._slots.move_to_end(key)
            while len(self._slots) > _MAX_ENTRIES:
                self._slots.popitem(last=False)
        with slot.lock:
            # Read before the answer is made: what is written meanwhile makes it old.
            version = () if is_lasting else self.version(decisions=decisions, record=record)
            if slot.version != version:
                slot.answer = make()
                slot.version = version
            answer: Answer = slot.answer
        import pandas as pd

        return answer.copy(deep=False) if isinstance(answer, pd.DataFrame) else answer

    def recommendations(self, *, now: datetime) -> tuple[StoredRecommendation, ...]:
        """Return all, as `StoreReader` does; what has expired shows within a minute."""
        ask = super().recommendations
        key = ("recommendations", floor_to_slot(now, _MINUTE))
        return self.remember(key, lambda: ask(now=now), decisions=True)

    def current_recommendations(self, *, now: datetime) -> tuple[StoredRecommendation, ...]:
        """Return proposed or decided recommendations, as `StoreReader` does; kept for a minute."""
        ask = super().current_recommendations
        key = ("current_recommendations", floor_to_slot(now, _MINUTE))
        return self.remember(key, lambda: ask(now=now), decisions=True)

    def verify_audit(self, *, head: str = "") -> tuple[str, ...]:
        """Return every break of the record, as `StoreReader` does, proven anew every minute."""
        ask = super().verify_audit
        key = ("verify_audit", head, floor_to_slot(utc_now(), _MINUTE))
        return self.remember(key, lambda: ask(head=head), record=True)


for _name in _CACHED.split():
    setattr(CachedReader, _name, _cached(getattr(StoreReader, _name)))
