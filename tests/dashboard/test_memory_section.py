"""Health lists what the latest cycle foresaw of memory, and says so where none has looked."""

import sys
from contextlib import nullcontext
from urllib.parse import quote

import pytest
from factories import NOW, make_memory_finding, make_plan
from streamlit.testing.v1 import AppTest

from dashboard.cycle.cycle_thread import CycleState
from dashboard.decisions.service import DecisionService
from dashboard.web.access.context import WebWorld
from dashboard.web.access.identity import register
from data.records.memory import MemoryFinding
from data.settings.all_settings import Settings
from data.settings.load import LoadedSettings
from data.store import Store

SECTION = "from dashboard.web.jobs.memory_line import memory_section\nmemory_section()"


def drawn(
    store: Store, memory: tuple[MemoryFinding, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> AppTest:
    """The section after a cycle that foresaw this."""
    store.keep_cycle(
        cycle_id="c1",
        started_at=NOW,
        finished_at=NOW,
        forecasts=(),
        memory=memory,
        plan=make_plan(),
        recommendations=(),
    )
    # Streamlit puts the page in the place of `__main__`.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    register(
        WebWorld(
            store=store,
            settings=LoadedSettings(settings=Settings(), origins={}),
            decision_service=DecisionService(store=store, settings=Settings),
            cycle_state=CycleState,
            worker_problem=lambda: "",
            run_lifespan=nullcontext,
            clock=lambda: NOW,
        )
    )
    app = AppTest.from_string(SECTION).run()
    assert not app.exception
    return app


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        (None, "No cycle has looked at the memory of running jobs yet."),
        ((), "No running job is foreseen to run out of GPU memory."),
    ],
)
def test_unknown_is_not_none(
    memory: tuple[MemoryFinding, ...] | None,
    said: str,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two sentences for two states of knowledge."""
    assert [entry.value for entry in drawn(store, memory, monkeypatch).markdown] == [said]


def test_every_finding_is_a_row(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the way to its job, the chance in percent and the reason as it was kept."""
    found = (make_memory_finding(), make_memory_finding(job_id="b", probability=None))
    (table,) = drawn(store, found, monkeypatch).dataframe
    rows = table.value
    assert rows["job"].tolist() == [f"jobs?job={quote(found[0].job_id, safe='')}", "jobs?job=b"]
    assert rows["chance (%)"].fillna(-1).tolist() == [80.0, -1.0]
    assert rows["why"].tolist() == [found[0].why] * 2
