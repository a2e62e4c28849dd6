"""The kept facts, plans and decisions: one DuckDB file, one writer, many readers.

`open_store` gives a `Store`, which writes; its `.reader` is a `StoreReader`, which only reads.
Its parts are imported when first asked for: SQLAlchemy takes longer to load than many a command.
"""

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data.store.facts.planning_view import PlanningView
    from data.store.handles.reader import CycleRow, StoredRecommendation, StoreReader
    from data.store.handles.store import Store, open_store

__all__ = [
    "CycleRow",
    "PlanningView",
    "Store",
    "StoreReader",
    "StoredRecommendation",
    "open_store",
]
_MODULES = MappingProxyType(
    {
        "CycleRow": "handles.reader",
        "PlanningView": "facts.planning_view",
        "Store": "handles.store",
        "StoreReader": "handles.reader",
        "StoredRecommendation": "handles.reader",
        "open_store": "handles.store",
    }
)


def __getattr__(name: str) -> Any:
    """Return a part by its name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
