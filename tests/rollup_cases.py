"""Samples and allocations of a store whose roll-ups a test looks at."""

from datetime import UTC, datetime
from typing import Any

import pandas as pd
from factories import NOW, make_collected, make_samples

from data.facts.columns import ALLOCATIONS, SAMPLES, check_frame, empty_frame
from data.facts.identifiers import digest_of
from data.store import Store
from data.store.engine.bulk import read_frame

START = datetime(2026, 1, 5, 9, tzinfo=UTC)


def rows_of(store: Store, table: str) -> pd.DataFrame:
    """A roll-up in key order."""
    with store._engine.connect() as connection:
        query = f"SELECT * FROM {table} ORDER BY slot_start, gpu_uuid, mig_instance, job_id, holder"  # noqa: S608
        return read_frame(connection, query)


def allocations(*rows: dict[str, Any]) -> pd.DataFrame:
    """Allocations from 9:00 on, confirmed at noon unless a row says otherwise."""
    common = {"started_at": START, "seen_at": NOW, "source": "test", "gpu_count": 1.0}
    frame = pd.DataFrame([common | row for row in rows])
    for name in ("started_at", "ended_at", "seen_at"):
        if name in frame.columns:
            frame[name] = pd.to_datetime(frame[name], utc=True).astype("datetime64[us, UTC]")
        else:
            frame[name] = pd.Series(pd.NaT, index=frame.index, dtype="datetime64[us, UTC]")
    return check_frame(frame, ALLOCATIONS)


def facts(samples: pd.DataFrame | None = None, held: pd.DataFrame | None = None) -> Any:
    """Samples and allocations as one batch of its own."""
    frame = empty_frame(SAMPLES) if samples is None else samples
    spans = empty_frame(ALLOCATIONS) if held is None else held
    key = [pd.util.hash_pandas_object(entry, index=False).tolist() for entry in (frame, spans)]
    return make_collected(
        frame,
        (),
        allocations=spans,
        batch_id=digest_of([[int(code) for code in codes] for codes in key]),
    )


def nameless(**columns: Any) -> pd.DataFrame:
    """An hour of one board whose samples name nobody."""
    return make_samples(minutes=61, job_id="").assign(gpu_index="0", **columns)
