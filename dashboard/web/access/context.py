"""Context of the pages: a reader of the store, and the decision service."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime

from dashboard.cycle.cycle_thread import CycleState
from dashboard.decisions.service import DecisionService
from data.base.clock import utc_now
from data.settings.load import LoadedSettings
from data.store import Store
from data.store.handles.cached_reader import CachedReader


@dataclass(frozen=True, slots=True, kw_only=True)
class WebWorld:
    """`settings` are those of the start; the decision service asks for those of the moment.

    `worker_problem` is why the apply worker cannot work, '' when it can. `clock` is the time that
    pages go by; in the demo it runs `demo_pace` times as fast as time, which is None elsewhere.
    `reader` is for looking: it remembers its answers until the data change.
    """

    store: Store
    settings: LoadedSettings
    decision_service: DecisionService
    cycle_state: Callable[[], CycleState]
    worker_problem: Callable[[], str]
    run_lifespan: Callable[[], AbstractContextManager[None]]
    clock: Callable[[], datetime] = utc_now
    demo_pace: float | None = None
    reader: CachedReader = field(init=False)

    def looking_through(self, reader: CachedReader) -> "WebWorld":
        """Return the same world behind another reader."""
        world = copy(self)
        object.__setattr__(world, "reader", reader)
        return world

    def __post_init__(self) -> None:
        object.__setattr__(self, "reader", self.store.reader_for_pages())
