"""`trimtab demo`: what it takes from the settings, what it goes on doing, and its clock."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from beds.apply_bench import Clock
from beds.page_world import register_world
from streamlit.testing.v1 import AppTest

from dashboard.cli import main
from dashboard.cli.operate.demo_command import (
    STEP_SECONDS,
    Feed,
    ProgressLines,
    StandingClock,
    demo_settings,
)
from dashboard.cycle.cycle_thread import CycleState
from dashboard.cycle.run_cycle import CycleOutcome
from dashboard.cycle.wiring import build_world
from dashboard.submission.targets.choose_target import target_name
from data.base.clock import PacedClock
from data.settings.all_settings import Settings
from data.settings.load import load_settings
from data.settings.submission import SubmitSettings
from data.store import open_store

REAL = {
    "TRIMTAB_PROMETHEUS_URL": "http://prometheus.invalid:9090",
    "TRIMTAB_SLURM_MODE": "commands",
    "TRIMTAB_KUBERNETES_ENABLED": "true",
    "TRIMTAB_APPLY_KUBERNETES_ENABLED": "true",
    "TRIMTAB_SUBMIT_ENABLED": "true",
    "TRIMTAB_REPORT_MAIL_TO": "everybody@example.com",
    "TRIMTAB_ENERGY_REGION": "DEU",
}


def settings_with(folder: Path, **environ: str) -> Settings:
    """The demo's settings where these environment variables are set."""
    store = {
        "TRIMTAB_STORE_URL": f"duckdb:///{folder}/demo.duckdb",
        "TRIMTAB_SIMULATED_FLEET_NODES": "1",
    }
    return demo_settings(load_settings(environ=store | environ)).settings


def test_nothing_outside_is_taken_from_the_settings(tmp_path: Path) -> None:
    """No source, no target, nobody to write to; the grid region is taken."""
    settings = settings_with(tmp_path, **REAL)
    plain = Settings()
    for section in ("slurm", "kubernetes", "nvml", "report", "notify"):
        assert getattr(settings, section) == getattr(plain, section)
    assert settings.submit == SubmitSettings(enabled=True)
    assert target_name(settings) == "simulated"
    assert settings.prometheus.url == ""
    assert not settings.apply_kubernetes.enabled
    assert settings.changes_simulation
    assert settings.apply.enabled
    assert settings.energy.region == "DEU"
    assert settings.simulated_fleet.state_file == f"{tmp_path}/demo-cluster.json"


def test_what_a_cycle_foresees_of_services_lasts_until_the_next(tmp_path: Path) -> None:
    """Cycles are hours apart there: the page Serving called every service stale in between."""
    stale = timedelta(minutes=settings_with(tmp_path).serving.stale_minutes)
    assert stale > timedelta(hours=6)


def test_where_nobody_is_known_the_demo_is_read_only(tmp_path: Path) -> None:
    """On an address that others reach, nothing can be applied, not even to a simulation."""
    settings = settings_with(tmp_path, TRIMTAB_SERVE_HOST="0.0.0.0", TRIMTAB_ACCESS_MODE="open")
    assert settings.access.mode == "open"
    assert not settings.apply.enabled
    assert not settings.changes_simulation


def test_what_the_demo_decided_says_so(tmp_path: Path) -> None:
    """`trimtab settings` on the page names the demo where it differs from the user's own."""
    loaded = load_settings(environ=REAL | {"TRIMTAB_STORE_URL": f"duckdb:///{tmp_path}/d.duckdb"})
    origins = demo_settings(loaded).origins
    assert origins["prometheus.url"] == "demo"
    assert origins["apply.enabled"] == "demo"
    assert origins["energy.region"] == "environment TRIMTAB_ENERGY_REGION"
    assert origins["planning.slot_minutes"] == "default"


def test_a_paced_clock_runs_as_fast_as_it_says() -> None:
    """It starts where it is told, never stands still, and stays in UTC."""
    start = datetime(2026, 1, 5, tzinfo=UTC)
    clock = PacedClock(start=start, pace=3_600_000.0)
    first, second = clock(), clock()
    assert start <= first < second
    assert first.utcoffset() == timedelta()
    assert PacedClock(start=start, pace=0.0)() == start


def test_the_demo_s_clock_stands_until_the_first_plan_is_there() -> None:
    """However long the first cycle takes: what it proposes has not expired when it is shown."""
    start = datetime(2026, 1, 5, tzinfo=UTC)
    clock = StandingClock(start)
    assert clock() == clock() == start
    clock.let_go()
    assert start <= clock() < clock()


def test_progress_is_said_when_a_stage_begins_and_every_few_seconds() -> None:
    """No line stands still for minutes, and none is said for every step."""
    said: list[str] = []
    seconds = iter([0.0, 1.0, 2.0, 3.0, 7.0, 8.0])
    lines = ProgressLines(said.append, clock=lambda: next(seconds))
    lines.at("forecast", 0, 14)
    lines.at("forecast", 1, 14)
    lines.compiled(1)
    lines.compiled(2)
    lines.at("keep", 0, 1)
    assert said == [
        "    0 of 14 jobs forecast, 1 s so far",
        "    function 1 compiled and kept for the next start, 3 s so far",
        "    kept, 8 s so far",
    ]
    assert lines.doing == "kept, 8 s so far"
    lines.end()
    assert lines.doing == ""


def test_what_a_later_cycle_compiles_is_no_progress_of_the_first_plan() -> None:
    """The page would say for good that the first plan is being made."""
    said: list[str] = []
    lines = ProgressLines(said.append)
    lines.end()
    lines.compiled(20)
    lines.at("plan", 1, 2)
    assert (lines.doing, said) == ("", [])


@pytest.mark.slow
def test_the_feed_collects_all_the_time_and_plans_when_it_is_due(tmp_path: Path) -> None:
    """A cycle at once, new samples at every turn, a second cycle after six hours of its time."""
    settings = settings_with(tmp_path)
    clock = Clock(datetime(2026, 1, 7, 12, tzinfo=UTC))
    with open_store(settings.store.url) as store:
        found: list[CycleOutcome] = []
        feed = Feed(world=build_world(settings, store=store), clock=clock, planned=found.append)
        feed.turn()
        first, planned = store.reader.latest_sample_at(), store.reader.last_cycle()
        assert planned is not None
        assert len(found) == 1
        assert first is not None
        clock.forward(seconds=2 * STEP_SECONDS)
        feed.turn()
        assert store.reader.latest_sample_at() == first + timedelta(seconds=2 * STEP_SECONDS)
        assert store.reader.last_cycle() == planned
        clock.forward(hours=6)
        feed.turn()
        assert store.reader.last_cycle() != planned
        assert len(found) == 1
        assert feed.due == clock() + timedelta(hours=6)


@pytest.mark.slow
@pytest.mark.usefixtures("demo_time")
def test_a_demo_beside_real_settings_asks_the_simulated_fleet_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a Prometheus in the environment: one source, which ran, and progress on stderr."""
    for name in [text for text in os.environ if text.startswith("TRIMTAB")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIMTAB_SIMULATED_FLEET_NODES", "1")
    monkeypatch.setenv("TRIMTAB_PROMETHEUS_URL", "http://prometheus.invalid:9090")
    store = f"duckdb:///{tmp_path}/demo.duckdb"
    assert main(["--store", store, "demo", "--once", "--days", "2"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("As of ")
    assert "simulated fleet of 13 GPUs" in said.err
    assert "1/3 2 days of samples" in said.err
    assert main(["--store", store, "sources", "--format", "json"]) == 0
    assert [load["source"] for load in json.loads(capsys.readouterr().out)] == ["simulated-fleet"]
    assert main(["--store", store, "demo", "--once", "--days", "0"]) == 2


def test_the_page_says_how_far_the_first_plan_is(tmp_path: Path) -> None:
    """While it is made; afterwards nothing is said of it."""
    doing = iter(["5 of 14 jobs forecast, 31 s so far"] * 2)
    settings = settings_with(tmp_path)
    with open_store(settings.store.url) as store:
        register_world(
            store, settings, demo_pace=60.0, cycle_state=lambda: CycleState(doing=next(doing, ""))
        )
        page = AppTest.from_string(
            "from dashboard.web.frame.demo_guide import first_plan, simulated_note\n"
            "simulated_note()\nfirst_plan()"
        ).run()
        said = [box.value for box in page.info]
        assert "Simulated cluster" in page.caption[0].value
        assert said == ["The first plan is being made: 5 of 14 jobs forecast, 31 s so far."]
        assert len(page.run().info) == 0
