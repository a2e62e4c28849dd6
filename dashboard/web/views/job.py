"""One job: what it did, what it will need, what is planned and why."""

from datetime import timedelta

import streamlit as st

from dashboard.charts.forecast_band import forecast_band
from dashboard.web.cards import card
from dashboard.web.job_phases import job_phases
from dashboard.web.memory_line import memory_line
from dashboard.web.page import chart, empty_state, figures, finding, measured, plain
from dashboard.web.scheduler_facts import scheduler_facts
from dashboard.web.session import current_world
from data.records.forecasts import DemandForecast, ForecastSkipped, Quantity

world = current_world()
reader = world.store.reader
planning = world.settings.settings.planning
if not empty_state():
    jobs = {job.job_id: job for job in reader.jobs()}
    end = reader.latest_sample_at() or world.clock()
    running = [name for name, job in jobs.items() if job.last_seen_at >= end - timedelta(hours=1)]
    names = running or list(jobs)
    answer = st.container()
    forecast_of = {one.job_id: one for one in reader.forecasts()}
    names.sort(key=lambda name: not isinstance(forecast_of.get(name), DemandForecast))
    wanted = st.query_params.get("id") or names[0]
    if wanted not in jobs:
        st.warning(plain(f"No job {wanted} is known; the first one is shown."))
    elif wanted not in names:
        names = [wanted, *names]
    chosen = st.selectbox("Job", names, index=names.index(wanted) if wanted in names else 0)
    st.query_params["id"] = chosen
    job = jobs[chosen]
    history = reader.job_history(
        chosen, start=end - timedelta(days=7), end=end, slot_seconds=planning.slot_minutes * 60
    )
    forecast = forecast_of.get(chosen)
    known = forecast if isinstance(forecast, DemandForecast) else None
    mean = history["effective_gpus"].mean()
    energy = reader.energy(start=end - timedelta(days=1), end=end, by="job").set_index("key")
    energy_kwh = energy["energy_kwh"].get(chosen)
    idle_hours = energy["idle_gpu_hours"].get(chosen)
    mean_ratio, largest = history["utilization_ratio"].mean(), history["memory_used_mib"].max()
    with answer:
        finding(
            f"{job.name} holds {job.gpu_count} × {job.gpu_model} {job.mig_profile} and did "
            f"{mean:.2f} GPUs' work on average over the last seven days."
            if mean == mean
            else f"{job.name} holds {job.gpu_count} × {job.gpu_model}; its utilization is unknown."
        )
        figures(
            {
                "utilization, mean": measured(100 * mean_ratio, "%", "never reported"),
                "memory per GPU, largest": measured(largest / 1024, "GiB", "never reported"),
                "energy, last 24 h": measured(energy_kwh, "kWh", "power was not reported"),
                "idle, last 24 h": measured(idle_hours, "GPU-h", "utilization was not reported"),
            }
        )
    plan = reader.latest_plan()
    steps = None
    if plan is not None and known is not None:
        mine = next((one for one in plan.jobs if one.job_id == chosen), None)
        if mine is not None and plan.slot_starts == known.slot_starts:
            steps = [step.gpu_count for step in mine.steps]
    if isinstance(forecast, ForecastSkipped):
        st.warning(plain(f"No forecast: {forecast.reason}."))
    st.subheader("Demand")
    chart(
        forecast_band(
            history,
            "effective_gpus",
            y_title="effective GPUs",
            forecast=known,
            path=known.path(Quantity.EFFECTIVE_GPUS) if known else None,
            steps=steps,
            limit=float(job.gpu_count),
        ),
        "demand",
    )
    job_phases(reader, job, end)
    left, right = st.columns(2)
    with left:
        st.subheader("Memory per GPU")
        chart(
            forecast_band(
                history,
                "memory_used_mib",
                y_title="GiB",
                forecast=known,
                path=known.path(Quantity.MEMORY) if known else None,
                limit=None if job.gpu_memory_mib is None else job.gpu_memory_mib / 1024,
                scale=1 / 1024,
            ),
            "memory",
        )
        memory_line(chosen)
    with right:
        st.subheader("Power")
        if history["power_watts"].notna().any():
            chart(
                forecast_band(
                    history,
                    "power_watts",
                    y_title="W, all its boards",
                    forecast=known,
                    path=known.path(Quantity.POWER) if known else None,
                ),
                "power",
            )
        else:
            st.info("Power was never reported by the source, so energy is unknown.")
    if known is not None:
        st.caption(
            "Models: "
            + "; ".join(
                f"{path.quantity}: {path.model}"
                + (
                    f" (covers {100 * path.backtest.coverage_ratio:.0f} % of "
                    f"{path.backtest.held_out_slots} held-out slots)"
                    if path.backtest
                    else ""
                )
                for path in known.paths
            )
        )
    if job.assumed:
        pairs = ", ".join(f"{name} = {value}" for name, value in job.assumed)
        st.caption(plain(f"Assumed, not measured: {pairs}"))
    scheduler_facts(job)
    st.subheader("Recommendations")
    mine_now = [
        one
        for one in reader.recommendations(now=world.clock())
        if one.recommendation.job_id == chosen and one.state != "superseded"
    ]
    if not mine_now:
        st.write("None: the plan keeps this job as it is.")
    for one in mine_now:
        card(one, "job")
