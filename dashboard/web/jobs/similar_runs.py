"""Other runs of the same recurring job: how long, how busy, how much energy."""

from collections.abc import Sequence
from datetime import timedelta

import pandas as pd
import streamlit as st

from dashboard.charts.job_lines import run_lines
from dashboard.web.frame.page import chart, table
from data.base.clock import floor_to_slot
from data.base.units import SECONDS_PER_HOUR
from data.facts.jobs import Job
from data.store.handles.cached_reader import CachedReader
from forecasting.series.job_keys import job_key

_LOOKED_AT = 400
_DRAWN, _LISTED = 5, 20
_DAYS = 30


def runs_of(reader: CachedReader, job: Job) -> list[Job]:
    """Return the other runs of a recurring job, the latest first."""
    similar = reader.similar_jobs(job, most=_LOOKED_AT)
    return [entry for entry in similar if job_key(entry) == job_key(job)]


def similar_runs(reader: CachedReader, job: Job, others: Sequence[Job]) -> None:
    """Show the latest `others` of the same job beside this one, or say that there are none."""
    st.subheader("Runs of the same job")
    others = others[:_LISTED]
    if not others:
        st.write("None is known: no other job has this name, owner, kind and GPU model.")
        return
    runs = [job, *others]
    start = max(job.last_seen_at - timedelta(days=_DAYS), min(run.first_seen_at for run in runs))
    hours = reader.job_hours(
        tuple(run.job_id for run in runs), start=floor_to_slot(start, SECONDS_PER_HOUR)
    )
    drawn = {run.job_id: run.name for run in runs[: 1 + _DRAWN]}
    chart(run_lines(hours, drawn, job.job_id), "runs")
    table(pd.DataFrame([_row(run, hours) for run in runs]), "runs")
    st.caption(f"Of the last {_DAYS} d; the first is this one.")


def _row(job: Job, hours: pd.DataFrame) -> dict[str, object]:
    mine = hours[hours["job_id"] == job.job_id]
    gpu_hours = _sum(mine, "gpu_hours")
    used = _sum(mine, "used_gpu_hours")
    return {
        "job": job.job_id,
        "state": str(job.scheduler.state) if job.scheduler else "",
        "first seen": job.first_seen_at,
        "hours": (job.last_seen_at - job.first_seen_at) / timedelta(hours=1),
        "GPUs": job.gpu_count,
        "GPU-hours": gpu_hours,
        "idle GPU-hours": _sum(mine, "idle_gpu_hours"),
        "in use (%)": None if not gpu_hours or used is None else 100 * used / gpu_hours,
        "kWh": _sum(mine, "energy_kwh"),
    }


def _sum(rows: pd.DataFrame, column: str) -> float | None:
    values = rows[column].dropna()
    return None if values.empty else float(values.sum())
