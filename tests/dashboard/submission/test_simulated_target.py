"""The demo's New job page: what it previews runs in the simulated fleet, and is followed."""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from beds.apply_bench import Clock
from beds.page_world import register_world
from streamlit.testing.v1 import AppTest

from collectors.shared.collector import Window
from collectors.simulated.cluster import simulated_collector
from dashboard.cli.operate.demo_command import demo_settings
from dashboard.submission.submit.watch import watch_all
from data.facts.collected import Collected
from data.records.submissions import SubmissionState
from data.settings.all_settings import Settings
from data.settings.load import load_settings
from data.store import Store, open_store

PAGE = Path(__file__).parents[3] / "dashboard/web/new_job/new_job.py"
NOW = datetime(2026, 1, 7, 12, tzinfo=UTC)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """The demo's settings."""
    url = f"duckdb:///{tmp_path}/demo.duckdb"
    return demo_settings(load_settings(environ={"TRIMTAB_STORE_URL": url})).settings


def hours_of(settings: Settings, start: datetime, end: datetime) -> Collected:
    """The readings of the simulated fleet in these hours."""
    return simulated_collector(settings).collect(Window(start=start, end=end))


@pytest.fixture
def page(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[AppTest, Store, Clock]]:
    """The page, its store with an hour of the fleet, and the clock of the demo."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    clock = Clock(NOW)
    with open_store(settings.store.url) as store:
        store.keep(hours_of(settings, NOW - timedelta(hours=1), NOW))
        register_world(store, settings, clock=clock)
        yield AppTest.from_file(str(PAGE), default_timeout=60), store, clock


def preview(app: AppTest, model: str, method: str = "adapter") -> None:
    """Describe a job and have its preview shown."""
    app.run()
    app.selectbox(key="job-model").set_value(model)
    app.selectbox(key="job-method").set_value(method)
    app.button[0].click().run()
    app.text_input(key="new-job-by").set_value("robin").run()
    app.button(key="new-job-preview").click().run()


def test_what_is_previewed_runs_and_is_followed_to_its_end(
    page: tuple[AppTest, Store, Clock], settings: Settings
) -> None:
    """The text that is shown is kept; the fleet runs the job on so many boards, then it is over."""
    app, store, clock = page
    preview(app, "qwen2.5-1.5b")
    shown = json.loads(next(entry.value for entry in app.code if "memory_ratio" in entry.value))
    app.button(key="new-job-submit").click().run()
    assert not app.exception
    (kept,) = store.reader.submissions()
    assert json.loads(kept.latest.manifest) == shown
    assert (kept.target, kept.submitted_by, kept.created_at) == ("simulated", "robin", NOW)
    clock.forward(hours=1)
    store.keep(hours_of(settings, NOW, clock()))
    (job,) = [job for job in store.reader.jobs() if job.job_id == kept.latest.job_id]
    assert (job.gpu_count, job.gpu_model) == (shown["gpus"], shown["gpu_model"])
    states = []
    for hours in (0, shown["hours"]):
        clock.forward(hours=hours)
        watch_all(store, settings, now=clock())
        states.append(store.reader.submissions()[0].state)
    assert states == [SubmissionState.RUNNING, SubmissionState.FINISHED]
    peak = store.reader.submissions()[0].latest.peak_bytes
    assert peak is not None
    assert peak > 0


def test_a_job_without_room_is_refused_by_name(page: tuple[AppTest, Store, Clock]) -> None:
    """The cluster keeps no queue; nothing is kept of the job."""
    app, store, _clock = page
    preview(app, "llama3-70b", method="full")
    (refusal,) = [entry.value for entry in app.error]
    assert "simulated cluster" in refusal
    assert store.reader.submissions() == ()
