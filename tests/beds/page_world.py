"""The world that pages are drawn in, without a server: a store, settings and a clock."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from benchmarks._page_client import address_of
from dashboard.cycle.cycle_thread import CycleState
from dashboard.decisions.service import DecisionService
from dashboard.web.access.context import WebWorld
from dashboard.web.access.identity import register
from data.settings.all_settings import Settings
from data.settings.load import LoadedSettings
from data.store import Store

APP = Path(__file__).parents[2] / "dashboard/web/app.py"


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


def page_at(view: str, **words: str) -> AppTest:
    """The frame with a page, as an address of today or before opens it; not run yet."""
    app = AppTest.from_file(str(APP), default_timeout=300)
    page, place = address_of(view)
    # A page is known by its address, whatever tab's file it has.
    app._page_hash = calc_hash(page or "overview")
    app.query_params.update(place | words)
    return app
