"""Quotas that schedulers enforce: each source's latest reading of its queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from data.facts.quotas import Quota, QuotaKind
from data.store.engine.bulk import put_rows
from data.store.engine.table_reader import TableReader

_KEY = ("source", "kind", "queue", "per", "resource", "flavor")
_COLUMNS = tuple(column.name for column in fields(Quota))
_NUMBERS = ("nominal", "borrowing_limit", "lending_limit", "used", "reserved", "weight")
_COUNTS = ("admitted", "pending", "priority")

LATEST = sa.text(f"""
SELECT {", ".join(_COLUMNS)} FROM quotas AS q
WHERE observed_at = (SELECT max(observed_at) FROM quotas AS newest WHERE newest.source = q.source)
ORDER BY {", ".join(_KEY)}
""")  # noqa: S608 - our own names


def keep_quotas(
    connection: sa.Connection, source: str, quotas: Sequence[Quota], observed_at: datetime
) -> None:
    """Keep a reading of a source in place of those before it: queues that are gone go with them.

    A reading that comes late changes nothing that a later one told.
    """
    import pandas as pd

    rows = pd.DataFrame([asdict(quota) for quota in quotas], columns=_COLUMNS)
    rows = rows.drop_duplicates(list(_KEY), keep="last")
    rows = rows.astype(dict.fromkeys(_NUMBERS, "float64") | dict.fromkeys(_COUNTS, "Int64"))
    rows["kind"] = rows["kind"].map(str)
    put_rows(connection, "quotas", rows, key=_KEY, only="i.observed_at >= t.observed_at")
    before = sa.bindparam("before", observed_at, type_=sa.DateTime(timezone=True))
    connection.execute(
        sa.text("DELETE FROM quotas WHERE source = :source AND observed_at < :before").bindparams(
            before, source=source
        )
    )


class QuotaReader(TableReader):
    """Reads what schedulers told of quotas."""

    def quotas(self) -> tuple[Quota, ...]:
        """Return the limits that schedulers told last, and their use, by source and queue."""
        return tuple(map(_quota_of, self._rows(LATEST)))

    def _quotas_of_day(self, now: datetime) -> tuple[Quota, ...]:
        """Return those that were told in the day up to `now`."""
        since = now - timedelta(days=1)
        return tuple(quota for quota in self.quotas() if since <= quota.observed_at <= now)


def _quota_of(row: Any) -> Quota:
    at = row.observed_at.astimezone(UTC)
    return Quota(**row._asdict() | {"kind": QuotaKind(row.kind), "observed_at": at})
