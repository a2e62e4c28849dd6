"""Counters that other readings of their device contradicted: a row a slot, device and counter.

A slot alone may be a moment in which work began. Several of a day are a counter that is stuck.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from data.records.contradictions import ContradictedCounter
from data.store.engine.table_reader import TableReader
from data.store.facts.board_activity import PLACES
from data.store.facts.samples_sql import SIGNALS, WINDOW

MIN_SLOTS, _MIN_SHARE = 3, 0.03
"""With fewer slots, or a smaller share of those observed, a counter is not told: a reading may fall
on the moment in which work begins.
"""
_DAY = timedelta(days=1)
_BY_DEVICE = f"""
observed AS (
    SELECT gpu_uuid, mig_instance, count(DISTINCT slot_start) AS slots FROM five_minute
    WHERE {WINDOW} AND samples > 0 GROUP BY 1, 2
), told AS (
    SELECT c.gpu_uuid, c.mig_instance, counter, count(*) AS slots,
        min(slot_start) AS first_at, max(slot_start) AS last_at,
        avg(reading) AS reading, arg_max(others, slot_start) AS others
    FROM contradictions AS c LEFT JOIN observed
        ON observed.gpu_uuid = c.gpu_uuid AND observed.mig_instance = c.mig_instance
    WHERE {WINDOW} GROUP BY 1, 2, 3
    HAVING count(*) >= greatest({MIN_SLOTS}, {_MIN_SHARE} * max(coalesce(observed.slots, 0)))
)"""  # noqa: S608 - only constants of this package are put together

OF_BOARDS = f"""
WITH {_BY_DEVICE}, {PLACES}
SELECT coalesce(node, '') AS node, coalesce(gpu_index, '') AS gpu_index, told.*
FROM told LEFT JOIN places ON places.gpu_uuid = told.gpu_uuid
ORDER BY node, gpu_index, told.gpu_uuid, mig_instance, counter
"""  # noqa: S608

OF_JOBS = f"""
WITH {_BY_DEVICE}, held AS (
    SELECT job_id, gpu_uuid, mig_instance,
        arg_max(node, last_at) AS node, arg_max(gpu_index, last_at) AS gpu_index
    FROM five_minute WHERE {WINDOW} AND holder = 'job' AND samples > 0 GROUP BY 1, 2, 3
)
SELECT job_id, node, gpu_index, told.* FROM held JOIN told
    ON told.gpu_uuid = held.gpu_uuid AND told.mig_instance = held.mig_instance
ORDER BY job_id, counter, told.gpu_uuid
"""  # noqa: S608

HOURS = f"""
SELECT coalesce(sum(greatest(board_seconds - known_board_seconds, 0)), 0) / 3600 AS hours
FROM five_minute WHERE {WINDOW} AND holder = 'job' AND EXISTS (
    SELECT 1 FROM contradictions AS c WHERE c.slot_start = five_minute.slot_start
        AND c.gpu_uuid = five_minute.gpu_uuid AND c.mig_instance = five_minute.mig_instance)
"""  # noqa: S608


class ContradictionReader(TableReader):
    """Reads which signals and counters may be believed."""

    def signals(self, *, start: datetime, end: datetime, seen_since: datetime) -> dict[str, str]:
        """Return by job seen since then the signal that tells its utilization.

        `shared` where others mirror it.
        """
        frame = self._frame(SIGNALS, start=start, end=end, seen_since=seen_since)
        return dict(zip(frame["job_id"], frame["signal"], strict=True))

    def contradicted_counters(self, *, end: datetime) -> tuple[ContradictedCounter, ...]:
        """Return the counters that were contradicted in the day up to `end`, by board."""
        rows = self._frame(OF_BOARDS, start=end - _DAY, end=end).to_dict("records")
        return tuple(map(_counter_of, rows))

    def contradicted_jobs(self, *, end: datetime) -> Mapping[str, tuple[ContradictedCounter, ...]]:
        """Return the same by the jobs that held the boards in that day."""
        counters: dict[str, list[ContradictedCounter]] = {}
        for row in self._frame(OF_JOBS, start=end - _DAY, end=end).to_dict("records"):
            counters.setdefault(row.pop("job_id"), []).append(_counter_of(row))
        return {job_id: tuple(rows) for job_id, rows in counters.items()}

    def contradicted_hours(self, *, start: datetime, end: datetime) -> float:
        """Return the board-hours that jobs held and whose activity contradictions left unknown.

        As far back as slots of five minutes are kept.
        """
        return float(self._frame(HOURS, start=start, end=end)["hours"].iloc[0])


def _counter_of(row: Mapping[Any, Any]) -> ContradictedCounter:
    times = {name: row[name].to_pydatetime() for name in ("first_at", "last_at")}
    return ContradictedCounter(**dict(row) | times | {"slots": int(row["slots"])})
