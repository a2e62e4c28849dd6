"""What the pages may touch: reading the store, and handing decisions to the people's side."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from dashboard.scheduler import CycleState
from data.load_settings import LoadedSettings
from data.records.decisions import Decision
from data.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class WebWorld:
    """`decide(digest, decision, by, comment)`, `write_change(digest, by)`, `preview(digest)`.

    All three raise TrimtabError when they refuse.
    """

    store: Store
    settings: LoadedSettings
    decide: Callable[[str, Decision, str, str], None]
    write_change: Callable[[str, str], Path]
    preview: Callable[[str], str]
    cycle_state: Callable[[], CycleState]
    run_lifespan: Callable[[], AbstractContextManager[None]]
