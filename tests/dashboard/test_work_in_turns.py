"""Through a store and a cycle's problem: work in turns keeps its GPU, a job given up does not."""

from datetime import timedelta

import numpy as np
import pytest
from factories import NOW, make_collected, make_job, make_samples

from dashboard.cycle.make_problem import PlanBasis, problem_from
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.jobs import WorkloadKind
from data.settings.all_settings import PlanningSettings, Settings
from data.store import Store
from forecasting.forecast import forecast_demand
from forecasting.power.estimated import power_models

TURN, BUSY, DAYS = 9.0, 3.0, 4
"""Hours from one start of work to the next, and of work; days that are seen."""


@pytest.mark.parametrize("slot_minutes", [15, 60])
@pytest.mark.parametrize("rest", [5.1, 5.9])
def test_what_comes_back_is_not_stopped_and_what_never_worked_is(
    store: Store, slot_minutes: int, rest: float
) -> None:
    """Two notebooks of one owner, of which one was never used."""
    catalogue = load_gpu_catalogue()
    settings = Settings(
        planning=PlanningSettings(slot_minutes=slot_minutes, horizon_slots=24 * 60 // slot_minutes)
    )
    for name in ("in-turns", "unused"):
        job = make_job(f"lab/{name}", kind=WorkloadKind.TRAINING)
        frame = make_samples(minutes=DAYS * 1440, job_id=job.job_id)
        ago = (NOW - frame["sampled_at"]) / timedelta(hours=1)
        works = (ago > rest) & ((ago - rest) % TURN < BUSY) & (name == "in-turns")
        frame["utilization_ratio"] = np.where(works, 0.7, 0.0)
        frame["gpu_uuid"] = job.job_id + frame["gpu_uuid"]
        store.keep(make_collected(frame, (job,), batch_id=name))
    view = store.reader.planning_view(NOW, slot_seconds=slot_minutes * 60, history_days=42)
    basis = PlanBasis(
        settings=settings,
        view=view,
        forecasts=forecast_demand(
            view.history, jobs=view.jobs, as_of=view.as_of, settings=settings.planning
        ),
        catalogue=catalogue,
        carbon=load_carbon_table().get("DEU"),
        models=power_models(view.readings, catalogue),
    )
    problem = problem_from(basis)
    demands = {job.demand.job.job_id: job.demand for job in problem.jobs}
    in_turns, unused = (demands[f"lab/{name}"] for name in ("in-turns", "unused"))
    assert in_turns.idle_hours >= settings.planning.reclaim_idle_hours
    assert in_turns.work_return.earlier >= 8
    assert not in_turns.may_stop(settings.planning)
    assert unused.may_stop(settings.planning)
