"""The thoughts of one cycle for a fleet that was written straight into a store.

Plan and recommendations come from the planner itself. Forecasts come from the forecaster for a few
jobs of each size, kind and GPU model; the other jobs are given one of these under their own name,
since what pages cost depends on the form and the number of forecasts, not on what they foresee.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from dashboard.cycle.make_problem import PlanBasis, problem_from
from dashboard.cycle.memory_outlook import watched_in
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.jobs import Job
from data.records.forecasts import DemandForecast, ForecastSkipped
from data.settings.all_settings import Settings
from data.store import Store
from data.store.facts.planning_view import PlanningView
from forecasting.forecast import forecast_demand
from forecasting.groups.group_forecasts import forecast_groups
from forecasting.power.estimated import power_models
from planner.advise import advise
from planner.memory.watch.watch import watch_memory
from planner.plan import build_plan

_FORECAST_EACH = 2
_HISTORY_DAYS = 2


def write_cycle(
    store: Store,
    *,
    now: datetime,
    settings: Settings,
    most_jobs: int | None = None,
    passed: Callable[[str], None] = lambda _stage: None,
) -> None:
    """Think as a cycle does, and keep it; about the first `most_jobs` alone where that is said.

    `passed` hears the name of each stage at its end: view, forecast, memory, problem, plan, advice,
    kept.
    """
    started = time.monotonic()
    planning = settings.planning
    view = store.reader.planning_view(
        now, slot_seconds=planning.slot_minutes * 60, history_days=_HISTORY_DAYS
    )
    running = [job for job in view.jobs if job.scheduler is None or not job.scheduler.ended_at]
    view = replace(view, jobs=tuple(running[:most_jobs]))
    passed("view")
    forecasts = _forecasts(view, settings)
    groups = forecast_groups(view.groups, as_of=view.as_of, jobs=view.known_jobs, settings=planning)
    passed("forecast")
    watched = watched_in(view.jobs, view.history, forecasts, recipes={}, latest=view.as_of)
    memory = watch_memory(watched)
    passed("memory")
    catalogue = load_gpu_catalogue()
    basis = PlanBasis(
        settings=settings,
        view=view,
        forecasts=forecasts,
        catalogue=catalogue,
        carbon=load_carbon_table().get(settings.energy.region),
        models=power_models(view.readings, catalogue),
        memory=memory,
    )
    problem = problem_from(basis)
    passed("problem")
    plan = build_plan(problem, budget_seconds=planning.budget_seconds, created_at=now)
    passed("plan")
    advice = advise(plan, problem, groups=groups)
    passed("advice")
    store.keep_cycle(
        cycle_id="stored",
        started_at=now,
        finished_at=now + timedelta(seconds=time.monotonic() - started),
        forecasts=forecasts,
        group_forecasts=groups,
        memory=memory,
        plan=plan,
        recommendations=advice.recommendations,
    )
    passed("kept")


def _forecasts(
    view: PlanningView, settings: Settings
) -> tuple[DemandForecast | ForecastSkipped, ...]:
    alike: dict[tuple[object, ...], list[Job]] = defaultdict(list)
    for job in view.jobs:
        alike[job.gpu_count, job.kind, job.gpu_model].append(job)
    asked = [job for jobs in alike.values() for job in jobs[:_FORECAST_EACH]]
    ids = {job.job_id for job in asked}
    made = {
        forecast.job_id: forecast
        for forecast in forecast_demand(
            view.history[view.history["job_id"].isin(ids)],
            jobs=asked,
            as_of=view.as_of,
            settings=settings.planning,
        )
    }
    found = {}
    for jobs in alike.values():
        for number, job in enumerate(jobs):
            pattern = made[jobs[number % min(_FORECAST_EACH, len(jobs))].job_id]
            found[job.job_id] = replace(pattern, job_id=job.job_id)
    return tuple(found[job.job_id] for job in view.jobs)
