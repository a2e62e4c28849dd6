"""A whole fleet's forecasts: one answer per job, none lost, none outside what a job can use."""

import os
import sys
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from factories import make_job
from forecasting_cases import AS_OF, BROKEN, HOURLY, daily, history, killed_path, series

from data.facts.columns import HISTORY, empty_frame
from data.facts.jobs import JobState, SchedulerFacts
from data.records.forecasts import DemandForecast, ForecastSkipped, Quantity
from data.settings.all_settings import PlanningSettings
from forecasting.forecast import Forecast, forecast_demand
from forecasting.jobs import forecast_path as paths
from forecasting.jobs import job_tasks, path_pool
from forecasting.jobs.path_pool import paths_of


def run(frame: pd.DataFrame, settings_: PlanningSettings = HOURLY, **job: object) -> Forecast:
    """The forecast of one job."""
    (found,) = forecast_demand(
        frame, jobs=[make_job("a/b", **job)], as_of=AS_OF, settings=settings_
    )
    return found


def test_a_forecast_starts_after_now_and_names_what_is_missing() -> None:
    """Slots follow the one that holds `as_of`; power was never reported."""
    found = run(history("a/b", np.full(48, 0.5)))
    assert isinstance(found, DemandForecast)
    assert found.slot_starts[0] == AS_OF + timedelta(hours=1)
    assert len(found.slot_starts) == 24
    assert found.missing == ((Quantity.POWER, "never reported by the source"),)
    path = found.path(Quantity.EFFECTIVE_GPUS)
    assert path is not None
    assert set(path.q50) == {0.5}
    assert "the history is constant" in path.notes


def test_every_path_carries_its_evidence() -> None:
    """Backtest by lead against both baselines, weights that add up, outer quantiles.

    The last lead is 25 h: the slot that holds now is forecast too, and cut off.
    """
    found = run(history("a/b", daily(14) / 100))
    assert isinstance(found, DemandForecast)
    path = found.path(Quantity.EFFECTIVE_GPUS)
    assert path is not None
    assert path.model == "mix"
    assert path.backtest is not None
    assert {name for name, _loss in path.backtest.losses} == {"mix", "naive", "seasonal-naive"}
    assert [lead.until_hours for lead in path.backtest.by_lead] == [1, 3, 6, 12, 25]
    assert all(abs(sum(dict(weight.weights).values()) - 1) < 1e-9 for weight in path.weights)
    assert all(low <= high for low, high in zip(path.q05, path.q10, strict=True))
    assert all(low <= high for low, high in zip(path.q90, path.q95, strict=True))


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (empty_frame(HISTORY), "no samples"),
        (history("a/b", np.full(3, 0.5)), "only 3 h"),
        (history("a/b", np.full(48, 0.5), end=AS_OF - timedelta(hours=9)), "ended"),
        (
            history("a/b", np.full(48, 0.5)).assign(effective_gpus=np.nan),
            "no utilization",
        ),
    ],
)
def test_a_skip_says_why(frame: pd.DataFrame, words: str) -> None:
    """Short, ended and blind series have a reason instead of a forecast."""
    found = run(frame)
    assert isinstance(found, ForecastSkipped)
    assert words in found.reason


@pytest.mark.parametrize("quiet_hours", [1, 3, 48])
@pytest.mark.parametrize("seen_hours_ago", [0, 2, 24])
@pytest.mark.parametrize("state", JobState)
def test_who_waits_or_is_suspended_has_not_ended(
    state: JobState, seen_hours_ago: float, quiet_hours: int
) -> None:
    """While its scheduler names it; its last reading stands beside it. All are away."""
    found = run(
        history("a/b", np.full(48, 0.5), end=AS_OF - timedelta(hours=quiet_hours)),
        scheduler=SchedulerFacts(state=state),
        last_seen_at=AS_OF - timedelta(hours=seen_hours_ago),
    )
    if quiet_hours < 2:
        assert isinstance(found, DemandForecast)
        return
    assert isinstance(found, ForecastSkipped)
    assert found.is_away
    words = {JobState.PENDING: "it waits", JobState.SUSPENDED: "it is suspended"}.get(state)
    if words is None or seen_hours_ago > 2:
        assert found.reason.startswith("ended: no sample for ")
    else:
        last = AS_OF - timedelta(hours=quiet_hours + 1)
        assert found.reason == f"{words}; its last reading is of {last:%Y-%m-%d %H:%M} UTC"


@pytest.mark.parametrize("model", ["mix", "seasonal-naive", "prophet"])
@pytest.mark.parametrize("name", list(BROKEN))
def test_no_series_gets_past_its_bounds_or_raises(
    name: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However broken a job's readings: a forecast within 0..its GPUs, or a reason."""
    monkeypatch.setattr(job_tasks, "MIN_HISTORY_HOURS", 1.0)
    settings = replace(HOURLY, model=model)
    rows = history("a/b", np.where(np.isnan(BROKEN[name]), np.nan, BROKEN[name]))
    found = run(rows, settings, gpu_count=4)
    if isinstance(found, ForecastSkipped):
        assert found.reason
        return
    path = found.path(Quantity.EFFECTIVE_GPUS)
    assert path is not None
    assert min(path.q05) >= 0
    assert max(path.q95) <= 4


@pytest.mark.slow
def test_a_million_points_are_forecast() -> None:
    """10^6 slots of 5 min take seconds, not minutes."""
    rng = np.random.default_rng(8)
    one = series(rng.uniform(0, 9, 1_000_000), slot_seconds=300)
    path = paths.forecast_path(
        paths.PathTask(series=one, first_slot=300_000_000, horizon=24), "mix"
    )
    assert len(path.q50) == 24


def test_a_model_that_fails_is_replaced_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A numerical failure of one series becomes a seasonal naive path that says so."""

    def fails(_series: object, _horizon: int) -> None:
        raise np.linalg.LinAlgError("singular")

    monkeypatch.setattr(paths, "mix", fails)
    path = paths.forecast_path(
        paths.PathTask(series=series(daily(4)), first_slot=4 * 86_400, horizon=6), "mix"
    )
    assert path.model == "seasonal-naive"
    assert path.notes == ("mix could not fit it: singular",)


def test_a_gap_before_now_is_forecast_across() -> None:
    """Two unknown hours before the first slot are steps of the forecast that are cut off."""
    values = daily(10)
    one = series(values)
    late = paths.forecast_path(
        paths.PathTask(series=one, first_slot=(len(values) + 2) * 3600, horizon=5), "mix"
    )
    now = paths.forecast_path(
        paths.PathTask(series=one, first_slot=len(values) * 3600, horizon=7), "mix"
    )
    assert late.q50 == now.q50[2:]


def test_a_young_job_borrows_from_its_kin() -> None:
    """Three hours old, it is given the spread of earlier runs of the same job, scaled to it."""
    old = [make_job(f"ml/train-{index}", name=f"train-{index}", gpu_count=2) for index in range(3)]
    young = make_job("ml/train-9", name="train-9", gpu_count=4)
    other = make_job("ml/serve", name="serve", gpu_count=4)
    frame = pd.concat(
        [
            *(history(job.job_id, np.full(48, 1.0 + index / 10)) for index, job in enumerate(old)),
            history(other.job_id, np.full(48, 0.1)),
            history(young.job_id, np.full(3, 2.1)),
        ]
    )
    found = forecast_demand(frame, jobs=[*old, other, young], as_of=AS_OF, settings=HOURLY)[-1]
    assert isinstance(found, DemandForecast)
    assert found.borrowed_from == "3 runs of the same job"
    path = found.path(Quantity.EFFECTIVE_GPUS)
    assert path is not None
    assert path.model == "borrowed"
    assert 1.9 < path.q10[0] <= 2.1
    assert 2.1 < path.q50[0] < 2.3
    assert path.q90[0] <= 2.4


def test_peaks_come_with_their_cohort() -> None:
    """Where the fleet has shown enough windows, a job is told what it stays under."""
    jobs = [make_job(f"a/{index}") for index in range(12)]
    rng = np.random.default_rng(4)
    frame = pd.concat([history(job.job_id, rng.uniform(0, 0.8, 24 * 6)) for job in jobs])
    found = forecast_demand(frame, jobs=jobs, as_of=AS_OF, settings=HOURLY)
    assert all(isinstance(forecast, DemandForecast) for forecast in found)
    peaks = [
        peak for forecast in found for peak in forecast.peaks if peak.quantity == "effective_gpus"
    ]
    assert len(peaks) == 12
    assert all(0.7 <= peak.q90 <= peak.q95 <= 1 for peak in peaks)
    assert {peak.cohort for peak in peaks} == {"inference jobs"}
    assert peaks[0].window_hours == 24


def test_the_number_of_threads_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker and two give the same forecasts in the same order."""
    rng = np.random.default_rng(2)
    jobs = [make_job(f"a/{index}") for index in range(9)]
    frame = pd.concat([history(job.job_id, rng.uniform(0, 1, 60)) for job in jobs])
    told = []
    for cores in (1, 2):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        told.append(forecast_demand(frame, jobs=jobs, as_of=AS_OF, settings=HOURLY))
    assert told[0] == told[1]


@pytest.mark.slow
def test_processes_give_what_one_gives_and_leave_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prophet in two processes: the same paths in order, the temporary folder is gone.

    Also where another program's page stands in for `__main__`, as in the dashboard.
    """
    page = ModuleType("__main__")
    page.__file__ = str(tmp_path / "page.py")
    (tmp_path / "page.py").write_text("raise SystemExit('the page ran again')")
    monkeypatch.setitem(sys.modules, "__main__", page)
    tasks = [
        paths.PathTask(series=series(daily(4, seed=seed)), first_slot=4 * 86_400, horizon=6)
        for seed in range(9)
    ]
    settings = replace(HOURLY, model="prophet")
    before = set(Path(tempfile.gettempdir()).iterdir())
    shown: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    two = paths_of(
        tasks,
        settings=settings,
        progress=lambda done, total: shown.append((done, total)),
    )
    left = set(Path(tempfile.gettempdir()).iterdir()) - before
    assert not [name for name in left if name.name.startswith("trimtab-forecast-")]
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert two == paths_of(tasks, settings=settings)
    assert shown[0] == (0, 9)
    assert shown[-1] == (9, 9)


@pytest.mark.slow
def test_a_series_that_takes_too_long_is_forecast_by_the_mix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The limit is kept, the path says which model took over and why."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(path_pool, "SERIES_SECONDS", 0.001)
    tasks = [
        paths.PathTask(series=series(daily(4, seed=seed)), first_slot=4 * 86_400, horizon=6)
        for seed in range(8)
    ]
    settings = replace(HOURLY, model="prophet")
    found = paths_of(tasks, settings=settings)
    assert found[0].model == "mix"
    assert "prophet took longer than 0.001 s" in found[0].notes


@pytest.mark.slow
def test_a_series_whose_process_is_killed_is_forecast_by_the_mix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing waits for an answer that cannot come, and the path says what happened."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(path_pool, "forecast_path", killed_path)
    tasks = [
        paths.PathTask(series=series(daily(4, seed=seed)), first_slot=4 * 86_400, horizon=6)
        for seed in range(8)
    ]
    found = paths_of(tasks, settings=replace(HOURLY, model="prophet"))
    assert {path.model for path in found} == {"mix"}
    assert all("a process of prophet was killed" in path.notes for path in found)
