"""The kept facts, plans and decisions: one DuckDB file, one writer, many readers.

`open_store` gives a `Store`, which writes; its `.reader` is a `StoreReader`, which only reads.
"""

from data.store.planning_view import PlanningView
from data.store.reader import CycleRow, StoredRecommendation, StoreReader
from data.store.store import Store, open_store

__all__ = [
    "CycleRow",
    "PlanningView",
    "Store",
    "StoreReader",
    "StoredRecommendation",
    "open_store",
]
