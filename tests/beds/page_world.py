"""The world that pages are drawn in, without a server: a store, settings and a clock."""

from contextlib import nullcontext
from typing import Any

from dashboard.cycle.cycle_thread import CycleState
from dashboard.decisions.service import DecisionService
from dashboard.web.access.context import WebWorld
from dashboard.web.access.identity import register
from data.settings.all_settings import Settings
from data.settings.load import LoadedSettings
from data.store import Store


def page_world(store: Store, settings: Settings, **changes: Any) -> WebWorld:
    """This store under these settings; `changes` replace fields."""
    values: dict[str, Any] = {
        "settings": LoadedSettings(settings=settings, origins={}),
        "decision_service": DecisionService(store=store, settings=lambda: settings),
        "cycle_state": CycleState,
        "worker_problem": lambda: "",
        "run_lifespan": nullcontext,
    }
    return WebWorld(store=store, **(values | changes))


def register_world(store: Store, settings: Settings, **changes: Any) -> None:
    """Let the next page see this store under these settings; `changes` replace fields."""
    register(page_world(store, settings, **changes))
