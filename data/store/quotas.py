"""What schedulers enforce: each source's latest reading of its queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from data.records.quotas import Quota, QuotaKind
from data.store.bulk import put_rows

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


def quota_of(row: Any, observed_at: datetime) -> Quota:
    """Return the quota of a row of LATEST, which was observed at that time (UTC)."""
    return Quota(**row._asdict() | {"kind": QuotaKind(row.kind), "observed_at": observed_at})
