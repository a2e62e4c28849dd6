"""A cycle plans by the forecast of the grid that is in force, and says when it has none."""

import json
import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from collectors.shared.collector import Window
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from dashboard.cli import main
from dashboard.cycle.run_cycle import run_cycle
from dashboard.cycle.what_if import read_basis, what_if
from dashboard.cycle.wiring import build_world
from data.base.clock import utc_now
from data.records.plans import Plan
from data.settings.all_settings import PlanningSettings, Settings
from data.store import Store, open_store

pytestmark = pytest.mark.usefixtures("demo_time")
NOW = datetime(2026, 1, 7, 12, tzinfo=UTC)
SETTINGS = Settings(
    planning=PlanningSettings(slot_minutes=60, horizon_slots=12, history_days=2, budget_seconds=5)
)


def forecast_file(folder: Path, *, issued_at: datetime, price: float) -> Path:
    """Two days of one price."""
    hours = [issued_at + timedelta(hours=hour) for hour in range(48)]
    rows = [
        {"issued_at": issued_at.isoformat(), "time": at.isoformat(), "price_per_kwh": price}
        for at in hours
    ]
    path = folder / f"{issued_at:%d%H}.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def with_file(path: Path) -> Settings:
    """The settings that name the file."""
    return replace(SETTINGS, energy=replace(SETTINGS.energy, forecast_file=str(path)))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Two days of a small fleet."""
    opened = open_store(f"duckdb:///{tmp_path_factory.mktemp('grid') / 't.duckdb'}")
    source = SimulatedFleetCollector(fleet=SimulatedFleet(seed=7, nodes=1), step_seconds=900)
    opened.keep(source.collect(Window(start=NOW - timedelta(days=2), end=NOW)))
    return opened


def planned(store: Store, settings: Settings) -> Plan:
    """The plan of a cycle."""
    plan = run_cycle(build_world(settings, store=store), now=NOW).plan
    assert plan is not None
    return plan


def test_plans_pay_the_prices_ahead_and_no_stale_ones(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Keeping all costs the difference of the prices more; an issue of Sunday is named instead."""
    usual = planned(store, SETTINGS).cost_of_now
    dear = forecast_file(tmp_path, issued_at=NOW - timedelta(hours=6), price=1.2)
    dearer = forecast_file(tmp_path, issued_at=NOW - timedelta(hours=7), price=2.2)
    more = [planned(store, with_file(path)).cost_of_now - usual for path in (dear, dearer)]
    assert more[0] > 1.0
    assert more[1] == pytest.approx(2 * more[0])
    stale = forecast_file(tmp_path, issued_at=NOW - timedelta(days=3), price=9.0)
    with caplog.at_level(logging.WARNING):
        assert planned(store, with_file(stale)).cost_of_now == pytest.approx(usual)
    assert "72.0 h old" in caplog.text


def test_a_single_price_of_a_what_if_overrules_the_hours_ahead(
    store: Store, tmp_path: Path
) -> None:
    """As it overrules the hours of the day."""
    planned(store, SETTINGS)
    path = forecast_file(tmp_path, issued_at=utc_now() - timedelta(hours=1), price=1.2)
    basis, grid = (read_basis(store.reader, settings) for settings in (SETTINGS, with_file(path)))
    assert grid.grid.forecast is not None
    knobs = {"electricity-price": 0.5}
    single = [what_if(read, SETTINGS, knobs).current.money for read in (basis, grid)]
    assert single[0] == pytest.approx(single[1])


def test_the_doctor_names_the_issue_or_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ok while it can be used; else what was found and what is allowed."""
    now = utc_now()
    fresh = forecast_file(tmp_path, issued_at=now - timedelta(hours=2), price=0.1)
    old = forecast_file(tmp_path, issued_at=now - timedelta(hours=40), price=0.1)
    for path, state, named in ((fresh, "ok", "issued"), (old, "missing", "40.0 h old")):
        (tmp_path / "trimtab.toml").write_text(f'[energy]\nforecast_file = "{path}"\n')
        file, url = str(tmp_path / "trimtab.toml"), f"duckdb:///{tmp_path}/t"
        main(["--settings", file, "--store", url, "doctor", "--format", "json"])
        rows = {row["part"]: row for row in json.loads(capsys.readouterr().out)}
        assert rows["grid forecast"]["state"] == state
        assert named in rows["grid forecast"]["detail"]
