"""Writes rows of KIND again in a store of FOLDER whose log may not grow, then with room.

A process of its own: the limit is the process's, and DuckDB may end it.
"""

import resource
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from factories import NOW, make_collected, make_job, make_samples

from data.base.errors import StoreError
from data.facts.fleet import Node
from data.settings.all_settings import RetentionSettings
from data.store import Store, open_store

KINDS: dict[str, Callable[[Store, int], object]] = {
    "audit": lambda store, number: store.append_audit(
        at=NOW, actor="kim", event="stopped", digest="", detail=str(number)
    ),
    "job": lambda store, number: store.keep(
        make_collected(
            make_samples(minutes=1, end=NOW + timedelta(minutes=number)),
            (make_job(name=f"run {number}", last_seen_at=NOW + timedelta(minutes=number)),),
            batch_id=str(number),
        )
    ),
    "node": lambda store, number: store.keep(
        make_collected(
            make_samples(minutes=1, end=NOW + timedelta(minutes=number)),
            nodes=(
                Node(
                    name="node-1", gpu_model="H100-SXM5-80GB", gpu_count=8, source="test",
                    seen_at=NOW + timedelta(minutes=number),
                ),
            ),
            batch_id=str(number),
        )
    ),
    "retention": lambda store, number: store.forget(
        RetentionSettings(), NOW + timedelta(days=400 + number)
    ),
    "told": lambda store, number: store.report_log.file(
        period=str(number), edition="e", messages=(), detail="", owner="kim",
        findings=("one",), now=NOW,
    ),
}  # fmt: skip


if __name__ == "__main__":
    folder, write = Path(sys.argv[1]), KINDS[sys.argv[2]]
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    with open_store(f"duckdb:///{folder}/t.duckdb") as store:
        store.keep(make_collected())
        write(store, 1)
        size = (folder / "t.duckdb.wal").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, unlimited[1]))
        try:
            write(store, 2)
        except StoreError as error:
            sys.stdout.write(str(error))
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        write(store, 3)
