"""What a cycle recommends to a drawn fleet, in halves: what it knows, and what follows from it.

The halves are the functions of `dashboard.cycle.run_cycle.run_cycle` in its order (a test holds
that both recommend the same). What is known of a fleet, its forecasts above all, takes nine tenths
of the time and can be kept in a folder, so that promises can be judged again after a change to
them.
"""

import pickle
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks._promised_fleet import NOW, STEP, DrawnFleet
from collectors.shared.collector import Window
from dashboard.cycle.make_problem import PlanBasis, problem_from
from dashboard.cycle.memory_outlook import watched_in
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import GpuCatalogue, load_gpu_catalogue
from data.records.forecasts import DemandForecast, ForecastSkipped, GroupForecast
from data.records.memory import MemoryFinding
from data.records.recommendations import Recommendation
from data.settings.all_settings import Settings
from data.store import PlanningView, open_store
from forecasting.forecast import forecast_demand
from forecasting.groups.group_forecasts import forecast_groups
from forecasting.power.estimated import PowerModels, power_models, with_estimated_power
from forecasting.series.past_runs import past_run_seconds
from planner.advise import advise
from planner.memory.watch.watch import watch_memory
from planner.plan import build_plan

AS_OF = NOW - timedelta(seconds=STEP)
"""When the cycle runs: at the newest reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What was read of a fleet and forecast from it."""

    view: PlanningView
    forecasts: tuple[DemandForecast | ForecastSkipped, ...]
    groups: tuple[GroupForecast, ...]
    models: PowerModels
    memory: tuple[MemoryFinding, ...]


def known_of(fleet: DrawnFleet, settings: Settings) -> Known:
    """Return what a cycle knows of a fleet: collected, kept in a store, read and forecast."""
    planning, catalogue = settings.planning, load_gpu_catalogue()
    with TemporaryDirectory() as folder, open_store(f"duckdb:///{folder}/b.duckdb") as store:
        store.keep(fleet.collect(Window(start=AS_OF - timedelta(days=1), end=AS_OF)))
        view = store.reader.planning_view(
            AS_OF, slot_seconds=planning.slot_minutes * 60, history_days=planning.history_days
        )
    models = power_models(view.readings, catalogue)
    forecasts = with_estimated_power(
        forecast_demand(view.history, jobs=view.jobs, as_of=view.as_of, settings=planning),
        jobs=view.jobs,
        models=models,
        signals=view.signals,
    )
    watched = watched_in(view.jobs, view.history, forecasts, recipes={}, latest=view.as_of)
    return Known(
        view=view,
        forecasts=forecasts,
        groups=forecast_groups(
            view.groups, as_of=view.as_of, jobs=view.known_jobs, settings=planning
        ),
        models=models,
        memory=watch_memory(watched),
    )


def recommended(
    fleet: DrawnFleet, settings: Settings, kept: Path | None = None
) -> tuple[tuple[Recommendation, ...], GpuCatalogue]:
    """Return what is recommended to a fleet of which the past is known, and what boards draw.

    `kept`: the file that keeps what is known of it.
    """
    if kept is not None and kept.exists():
        known: Known = pickle.loads(kept.read_bytes())  # noqa: S301 - our own file
    else:
        known = known_of(fleet, settings)
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(pickle.dumps(known))
    basis = PlanBasis(
        settings=settings,
        view=known.view,
        forecasts=known.forecasts,
        catalogue=load_gpu_catalogue(),
        carbon=load_carbon_table().get(settings.energy.region),
        models=known.models,
        memory=known.memory,
    )
    problem = problem_from(basis)
    plan = build_plan(problem, budget_seconds=settings.planning.budget_seconds, created_at=AS_OF)
    advice = advise(
        plan,
        problem,
        groups=known.groups,
        past_runs=past_run_seconds(known.view.known_jobs),
        memory=known.memory,
        proposed_before={},
    )
    return advice.recommendations, problem.catalogue
