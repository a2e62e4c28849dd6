"""What is known of a queue reaches the plan: how long a job waits for its start."""

from factories import NOW, make_collected, make_samples
from waiting_jobs import waiting_jobs

from dashboard.cycle.make_problem import PlanBasis, problem_from
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.all_settings import Settings
from data.store import Store
from forecasting.forecast import forecast_demand
from forecasting.groups.queue_waits import places_in_line
from forecasting.power.estimated import power_models


def test_a_waiting_job_is_planned_with_its_place_in_line(store: Store) -> None:
    """Requeued half an hour ago: its wait is the queue's; of one that is held nobody knows it."""
    catalogue, chosen = load_gpu_catalogue(), Settings()
    for job in waiting_jobs(NOW):
        frame = make_samples(minutes=2 * 1440, job_id=job.job_id)
        frame["gpu_uuid"] = job.job_id + frame["gpu_uuid"]
        store.keep(make_collected(frame, (job,), batch_id=job.job_id))
    view = store.reader.planning_view(
        NOW,
        slot_seconds=chosen.planning.slot_minutes * 60,
        history_days=chosen.planning.history_days,
    )
    forecasts = forecast_demand(
        view.history, jobs=view.jobs, as_of=view.as_of, settings=chosen.planning
    )
    basis = PlanBasis(
        settings=chosen,
        view=view,
        forecasts=forecasts,
        catalogue=catalogue,
        carbon=load_carbon_table().get("DEU"),
        models=power_models(view.readings, catalogue),
    )
    problem = problem_from(basis)
    lines = {place.job_id: place.wait for place in places_in_line(view.known_jobs, view.as_of)}
    demands = {job.demand.job.job_id: job.demand for job in problem.jobs}
    assert demands.keys() == {f"slurm:{number}" for number in (1, 2, 3, 4)}
    for job_id in ("slurm:2", "slurm:4"):
        wait = demands[job_id].queue_wait
        assert wait is not None
        assert wait == lines[job_id]
        assert not demands[job_id].start_unknown
    assert demands["slurm:3"].start_unknown
    assert not demands["slurm:1"].start_unknown
