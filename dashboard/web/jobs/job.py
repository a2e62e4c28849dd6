"""One job: what it did, what it will need, what is planned and why."""

from datetime import datetime, timedelta

import pandas as pd
import streamlit as st

from dashboard.accounting.savings.idle_bridge import keep_reason
from dashboard.charts.forecast_band import forecast_band
from dashboard.common.escaping import markdown
from dashboard.resources.plan_rows import stretch_rows
from dashboard.web.access.identity import current_role, current_world
from dashboard.web.findings.finding_list import every_row, findings_table
from dashboard.web.frame.page import (
    chart,
    drawer,
    empty_state,
    figures,
    finding,
    measured,
    number,
    table,
    tense,
)
from dashboard.web.frame.scope import current_scope
from dashboard.web.jobs.job_sections import (
    memory_line,
    run_end,
    runs_of,
    scheduler_facts,
    show_boards,
    similar_runs,
    slow_work_line,
)
from dashboard.web.jobs.queue_table import show_sooner
from dashboard.web.jobs.workload_forecast import has_workload_forecast, show_ahead
from data.base.errors import sentence
from data.facts.jobs import Job, JobState
from data.records.forecasts import DemandForecast, ForecastSkipped, Quantity
from data.records.plans import JobPlan, Plan

world = current_world()
reader = world.reader
planning = world.settings.settings.planning


def answer(job: Job, history: pd.DataFrame, end: datetime, days: int) -> None:
    """Open with what the job did."""
    energy = reader.energy(start=end - timedelta(days=1), end=end, by="job").set_index("key")
    mean_ratio, largest = history["utilization_ratio"].mean(), history["memory_used_mib"].max()
    holds = tense("has", "had")
    configuration = f"{job.gpu_count} × {job.gpu_model} {job.mig_profile}".rstrip()
    times = history.loc[history["effective_gpus"].notna(), "slot_start"]
    hours = 0.0 if times.empty else (end - times.min()) / timedelta(hours=1)
    long = f"{days} d" if hours > 24 * days - 1 else f"{hours:,.0f} h"
    long = long if hours >= 1 else f"{60 * hours:.0f} min"
    finding(
        f"{job.name} {holds} {configuration}, {number(100 * mean_ratio, '%')} of it in use on "
        f"average over the last {long}."
        if times.size
        else f"{job.name} {holds} {configuration}; its utilization is unknown."
    )
    figures(
        {
            "memory per GPU, largest": measured(largest / 1024, "GiB", "never reported"),
            "energy, last 24 h": measured(
                energy["energy_kwh"].get(job.job_id), "kWh", "power was not reported"
            ),
            "idle, last 24 h": measured(
                energy["idle_gpu_hours"].get(job.job_id), "GPU-h", "utilization was not reported"
            ),
        }
    )


def planned(plan: Plan | None, job: Job) -> JobPlan | None:
    """Return the plan of the job."""
    return (
        next((entry for entry in plan.jobs if entry.job_id == job.job_id), None) if plan else None
    )


def show_demand(job: Job, history: pd.DataFrame, forecast: DemandForecast | None) -> None:
    """Show history, forecast band and planned steps, and where the plan puts the job."""
    plan = reader.latest_plan(job_id=job.job_id)
    mine = planned(plan, job)
    steps = None
    if plan and mine and forecast and plan.slot_starts == forecast.slot_starts:
        steps = [step.gpu_count for step in mine.steps]
    st.header("Demand")
    chart(
        forecast_band(
            history,
            "effective_gpus",
            y_title="effective GPUs",
            forecast=forecast,
            path=forecast.path(Quantity.EFFECTIVE_GPUS) if forecast else None,
            steps=steps,
            limit=float(job.gpu_count),
        ),
        "demand",
    )
    if plan and mine:
        st.header("Plan")
        table(pd.DataFrame(stretch_rows(plan, mine)), "plan")
        if mine.unplaced:
            st.caption(markdown(f"No known place: {mine.unplaced}"))


def show_memory_and_power(job: Job, history: pd.DataFrame, forecast: DemandForecast | None) -> None:
    """Show memory against its limit and the power of all boards."""
    first, right = st.columns(2)
    with first:
        st.header("Memory per GPU")
        chart(
            forecast_band(
                history,
                "memory_used_mib",
                y_title="GiB",
                forecast=forecast,
                path=forecast.path(Quantity.MEMORY) if forecast else None,
                limit=None if job.gpu_memory_mib is None else job.gpu_memory_mib / 1024,
                scale=1 / 1024,
            ),
            "memory",
        )
        memory_line(job.job_id)
    with right:
        st.header("Power")
        if history["power_watts"].notna().any():
            chart(
                forecast_band(
                    history,
                    "power_watts",
                    y_title="W, all its GPUs",
                    forecast=forecast,
                    path=forecast.path(Quantity.POWER) if forecast else None,
                ),
                "power",
            )
        else:
            st.info("Power was never reported by the source, so energy is unknown.")


def show_findings(job: Job) -> None:
    """Show what was found about the job, and where each stands."""
    st.header("Findings")
    mine = [row for row in every_row() if row.revision.job_id == job.job_id]
    if not mine:
        mine_planned = planned(reader.latest_plan(job_id=job.job_id), job)
        why = keep_reason(mine_planned.idle if mine_planned else None)
        if not mine_planned:
            st.write(f"None: no plan {tense('has looked', 'looked')} at this job.")
        else:
            because = f" ({why})" if why else ""
            st.write(markdown(f"No change {tense('is', 'was')} recommended{because}."))
        return
    findings_table(mine, "job-findings")


def show(job: Job, end: datetime) -> None:
    """Show one job."""
    days = current_scope().days
    slot_seconds = planning.slot_minutes * 60 * (1 if days <= 7 else 4)
    history = reader.job_history(
        job.job_id, start=end - timedelta(days=days), end=end, slot_seconds=slot_seconds
    )
    answer(job, history, end, days)
    forecast = reader.forecast(job.job_id)
    demand = forecast if isinstance(forecast, DemandForecast) else None
    if isinstance(forecast, ForecastSkipped):
        st.warning(markdown(f"No forecast: {sentence(forecast.reason)}"))
    show_findings(job)
    if job.scheduling.state is JobState.PENDING and current_role() != "owner":
        drawer("What would start it sooner", "sooner", lambda: show_sooner(job.job_id))
    slow_work_line(job.job_id)
    show_demand(job, history, demand)
    if has_workload_forecast(job):
        drawer("Week and month ahead", "ahead-of-job", lambda: show_ahead(job, end))
    others = runs_of(reader, job)
    run_end(job, others, reader.job_progress(job.job_id, end=end), end)
    show_memory_and_power(job, history, demand)
    if job.assumed:
        pairs = ", ".join(f"{name} = {value}" for name, value in job.assumed)
        st.caption(markdown(f"Assumed, not measured: {pairs}"))
    scheduler_facts(job)
    similar_runs(reader, job, others)
    show_boards(reader, job, end)


if not empty_state():
    end = reader.latest_sample_at() or world.clock()
    name = st.query_params["job"]
    job = reader.job(name)
    if job is None:
        finding(f"No job {name} is known.")
    else:
        show(job, end)
