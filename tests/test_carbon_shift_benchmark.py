"""The benchmark of shifting: rules and planner know no future, and none beats the oracle."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from benchmarks._grid_series import HOUR, GridSeries
from benchmarks._shift_rules import (
    Rule,
    at_once,
    emitted,
    forecast_rule,
    oracle_rule,
    threshold_rule,
    window_rule,
    yesterday_rule,
)
from benchmarks._shifted_jobs import DrawnJob, drawn_jobs, issue_file, planned_starts
from data.settings.all_settings import PlanningSettings, Settings
from data.settings.energy import EnergySettings

FIRST, DAYS, SLACK = datetime(2021, 8, 1, tzinfo=UTC), 21, 12
JUDGED = FIRST + timedelta(days=8)


def series() -> GridSeries:
    """Three weeks of days that are clean at noon, and issues at midnight that err a little."""
    rng = np.random.default_rng(3)
    hours = np.arange(DAYS * 24)
    actual = 300 - 150 * np.cos((hours % 24 - 12) / 24 * 2 * np.pi) + rng.normal(0, 20, len(hours))
    issues = {
        FIRST + timedelta(days=day): actual[day * 24 :][:96] + rng.normal(0, 15, 96)
        for day in range(DAYS - 4)
    }
    return GridSeries(zone="DE", unit="gCO2e/kWh", first=FIRST, actual=actual, issues=issues)


def rules_of(grid: GridSeries) -> dict[str, Rule]:
    """Every rule but the oracle."""
    return {
        "no shift": at_once,
        "night": window_rule(grid, 22, SLACK),
        "threshold": threshold_rule(grid, 0.3, SLACK),
        "yesterday": yesterday_rule(grid, SLACK),
        "forecast": forecast_rule(grid, SLACK),
    }


def planned(grid: GridSeries, jobs: list[DrawnJob], folder: Path) -> dict[int, datetime]:
    """The starts that the planner gives jobs of one hour."""
    file = issue_file(grid, jobs[0].came_at - timedelta(minutes=1), folder, "gco2e_per_kwh")
    settings = Settings(
        planning=PlanningSettings(
            slot_minutes=60,
            horizon_slots=48,
            shift_slack_hours=float(SLACK),
            min_saving_ratio=0.0,
        ),
        energy=EnergySettings(pue=1.3, carbon_price_per_tonne=100.0, forecast_file=str(file)),
    )
    return {number: start.at for number, start in planned_starts(jobs, settings).items()}


def test_no_rule_knows_what_comes_and_none_beats_the_oracle() -> None:
    """Hours after a job's coming are made anew: what it was told of them stays, and its start."""
    grid = series()
    jobs = drawn_jobs(grid, JUDGED, 1, 5)
    best = emitted(jobs, oracle_rule(grid, SLACK), grid)
    for name, rule in rules_of(grid).items():
        assert best <= emitted(jobs, rule, grid) + 1e-9, name
    assert best < 0.9 * emitted(jobs, at_once, grid)
    job = jobs[len(jobs) // 2]
    came = grid.at(job.came_at)
    other = replace(grid, actual=np.concatenate([grid.actual[:came], 900 - grid.actual[came:]]))
    for name in ("no shift", "night", "yesterday", "forecast"):
        assert rules_of(other)[name](job) == rules_of(grid)[name](job), name
    wait = rules_of(grid)["threshold"](job)
    later = grid.actual.copy()
    later[came + wait :] = 0.0
    assert rules_of(replace(grid, actual=later))["threshold"](job) == wait


def test_the_planner_waits_by_the_issue_of_then_and_saves(tmp_path: Path) -> None:
    """Within the slack, to hours in which the jobs emit less; by another issue it would not."""
    grid = series()
    jobs = [replace(job, came_at=JUDGED + 18 * HOUR) for job in drawn_jobs(grid, JUDGED, 1, 5)[:6]]
    starts = planned(grid, jobs, tmp_path)
    assert starts
    for number, start in starts.items():
        assert timedelta(0) < start - jobs[number].came_at <= SLACK * HOUR
    late = [starts.get(job.number, job.came_at) for job in jobs]
    came = sum(job.amount(grid.at(at), grid.actual) for job, at in zip(jobs, late, strict=True))
    assert came < 0.95 * emitted(jobs, at_once, grid)
    flat = replace(grid, issues={at: np.full(96, 300.0) for at in grid.issues})
    (tmp_path / "flat").mkdir()
    assert planned(flat, jobs, tmp_path / "flat") == {}


def test_a_run_counts_its_last_hour_in_part() -> None:
    """Two and a half hours at 1,000 W and a PUE of 1.3, from the second hour on."""
    job = DrawnJob(
        number=0, kind=0, came_at=JUDGED, hours=2.5, past_hours=(2.5,), gpus=2, watts=1000.0
    )
    found = job.amount(1, np.array([9.0, 1.0, 2.0, 4.0]))
    assert found == pytest.approx(1.3 * (1 + 2 + 0.5 * 4))
