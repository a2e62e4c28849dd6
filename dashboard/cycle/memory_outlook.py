"""Memory of every job as the store knows it, handed to the memory watch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache

import numpy as np
import numpy.typing as npt
import pandas as pd

from dashboard.submission.submit.watch import job_of
from data.base.clock import floor_to_slot
from data.base.units import SLOT_SECONDS
from data.catalogue.gpu_catalogue import GpuCatalogue, load_gpu_catalogue
from data.facts.job_history import job_histories
from data.facts.jobs import Job
from data.records.forecasts import DemandForecast, ForecastSkipped, Quantity
from data.records.memory import MemoryFinding
from data.records.submissions import Attempt, Submission
from data.store import PlanningView, StoreReader
from planner.memory.estimate.training_plans import GpuType
from planner.memory.step.training_job import Parallelism, Recompute, Sharding, TrainingJob
from planner.memory.watch.growth import WINDOW_SLOTS
from planner.memory.watch.watch import WatchedJob, watch_memory

Floats = npt.NDArray[np.float64]

_NOTHING = np.empty(0)
_HISTORY = timedelta(days=7)
_RECENT_WINDOW = timedelta(seconds=SLOT_SECONDS * WINDOW_SLOTS)


def watched_jobs(reader: StoreReader, *, slot_seconds: int) -> tuple[WatchedJob, ...]:
    """Return every job that runs now, has a forecast and a known memory limit."""
    latest = reader.latest_sample_at()
    if latest is None:
        return ()
    history = reader.job_history("", start=latest - _HISTORY, end=latest, slot_seconds=slot_seconds)
    return watched_in(
        reader.jobs(seen_since=latest - _RECENT_WINDOW),
        history,
        reader.forecasts_of(Quantity.MEMORY),
        recipes=recipes_of(reader.submissions()),
        latest=latest,
        lately=memory_lately(reader, latest),
    )


def memory_findings(
    reader: StoreReader,
    view: PlanningView,
    forecasts: Sequence[DemandForecast | ForecastSkipped],
) -> tuple[MemoryFinding, ...]:
    """Return the findings of these forecasts on the memory of the view's jobs that run."""
    watched = watched_in(
        view.jobs,
        view.history,
        forecasts,
        recipes=recipes_of(reader.submissions()),
        latest=view.as_of,
        lately=memory_lately(reader, view.as_of),
    )
    return watch_memory(watched, reported=jobs_short_of_memory(reader))


def memory_lately(reader: StoreReader, latest: datetime) -> Mapping[str, Floats]:
    """Return each job's largest memory, MiB [12 slots of 5 min up to `latest`], NaN if unseen."""
    end = floor_to_slot(latest, SLOT_SECONDS)
    slots = pd.date_range(end - _RECENT_WINDOW, periods=WINDOW_SLOTS, freq=f"{SLOT_SECONDS}s")
    history = reader.job_history("", start=end - _RECENT_WINDOW, end=end, slot_seconds=SLOT_SECONDS)
    return {
        str(name): rows.set_index("slot_start")["memory_used_mib"]
        .reindex(slots)
        .to_numpy(dtype="float64")
        for name, rows in history.groupby("job_id")
    }


def jobs_short_of_memory(reader: StoreReader) -> frozenset[str]:
    """Return the jobs that the latest cycle said may run out of memory."""
    findings = reader.memory_outlook() or ()
    return frozenset(finding.job_id for finding in findings if finding.probability is not None)


def watched_in(
    jobs: Iterable[Job],
    history: pd.DataFrame,
    forecasts: Sequence[DemandForecast | ForecastSkipped],
    *,
    recipes: Mapping[str, TrainingJob],
    latest: datetime,
    lately: Mapping[str, Floats] | None = None,
) -> tuple[WatchedJob, ...]:
    """Return the jobs among these that run at `latest`, have a forecast and a known memory limit.

    `history` has the columns HISTORY; its last week counts. `lately` is what `memory_lately` gives.
    """
    recent = history[history["slot_start"] >= latest - _HISTORY]
    used = {name: rows.memory_used_mib for name, rows in job_histories(recent).items()}
    forecast_by_job = {
        forecast.job_id: forecast for forecast in forecasts if isinstance(forecast, DemandForecast)
    }
    catalogue = load_gpu_catalogue()
    types_of = cache(lambda gpu_model: _alike(catalogue, gpu_model))
    return tuple(
        WatchedJob(
            job_id=job.job_id,
            gpu_model=job.gpu_model,
            limit_mib=job.gpu_memory_mib,
            used_mib=used[job.job_id],
            forecast=forecast_by_job[job.job_id],
            recipe=recipes.get(job.job_id),
            gpu_types=types_of(job.gpu_model),
            lately_mib=(lately or {}).get(job.job_id, _NOTHING),
            lately_until=floor_to_slot(latest, SLOT_SECONDS),
        )
        for job in jobs
        if job.gpu_memory_mib
        and job.job_id in used
        and job.job_id in forecast_by_job
        and job.last_seen_at >= latest - _RECENT_WINDOW
    )


def _alike(catalogue: GpuCatalogue, gpu_model: str) -> tuple[GpuType, ...]:
    """Return the types that run what runs on a model; all where that is not known."""
    here = catalogue.find(gpu_model)
    return tuple(
        GpuType.of(model) for model in catalogue if here is None or model.runs_what_runs_on(here)
    )


def recipes_of(submissions: tuple[Submission, ...]) -> dict[str, TrainingJob]:
    """Return the training recipes of submitted jobs, by the id of every job that was sent."""
    return {
        attempt.job_id: recipe_of(submission, attempt)
        for submission in submissions
        for attempt in submission.attempts
        if attempt.job_id
    }


def recipe_of(submission: Submission, attempt: Attempt) -> TrainingJob:
    """Return the training job of an attempt, spread as it was sent."""
    plan = attempt.plan
    return replace(
        job_of(submission).training_job,
        parallelism=Parallelism(
            data=plan.data,
            tensor=plan.tensor,
            pipeline=plan.pipeline,
            sequence=plan.tensor > 1,
            sharding=Sharding(plan.sharding),
        ),
        micro_batch=plan.micro_batch,
        gradient_accumulation=plan.gradient_accumulation,
        recompute=Recompute(plan.recompute),
        gpu_memory_bytes=plan.gpu_memory_bytes or None,
    )
