"""The recorded history of jobs as replays: their demand in GPUs, and their memory per GPU."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from benchmarks.rightsizing.charges import UnitCharges
from benchmarks.rightsizing.past import Indices, Values
from benchmarks.rightsizing.replay import Recorded
from data.base.errors import NotEnoughHistoryError
from data.base.units import SECONDS_PER_HOUR, SLOT_SECONDS
from data.catalogue.gpu_catalogue import GpuCatalogue, GpuModel
from data.facts.jobs import Job
from data.settings.energy import EnergySettings
from forecasting.series.job_keys import JobKey, job_key

_LEARNING_SHARE = 0.25
_MAX_LEARNING_HOURS = 24.0
_BUSY_SHARE = 0.8
"""Power of a working board as a share of its TDP; the replay compares rules, it measures none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobRecording:
    """One quantity of jobs as a replay; `left_out` says which jobs are not in it, and why."""

    quantity: str
    unit: str
    job_ids: tuple[str, ...]
    recorded: Recorded
    charges: UnitCharges
    energy_known: bool
    left_out: tuple[tuple[str, str], ...]


def job_recordings(
    history: pd.DataFrame,
    jobs: Sequence[Job],
    *,
    catalogue: GpuCatalogue,
    energy: EnergySettings,
    step_minutes: int,
) -> list[JobRecording]:
    """Return the replays of demand and of memory from a history (columns HISTORY) in 5-min slots.

    The first quarter of the span, at most a day, is for learning. Errors: NotEnoughHistoryError
    when no job is left or the span is too short.
    """
    known, left_out = _priced(jobs, catalogue)
    per_step = step_minutes * 60 // SLOT_SECONDS
    rows = history[history["job_id"].isin(known)]
    steps = 0 if rows.empty else len(_slots(rows)) // per_step
    first = min(round(_MAX_LEARNING_HOURS * 60 / step_minutes), int(_LEARNING_SHARE * steps))
    if first < 1 or first >= steps:
        raise NotEnoughHistoryError(
            f"a replay in steps of {step_minutes} min needs four of them, and there are {steps} "
            "of jobs whose GPU model the catalogue knows",
            "Take more --days, a shorter --step, or collect first",
        )
    found = []
    for column, unit in (("effective_gpus", "GPU"), ("memory_used_mib", "MiB")):
        wide = _wide(rows, column)
        if wide.empty:
            continue
        chosen = [known[str(name)] for name in wide.index]
        memory = column == "memory_used_mib"
        usage = wide.to_numpy(dtype=np.float64)
        levels = _memory_levels(chosen) if memory else _board_levels(chosen)
        found.append(
            JobRecording(
                quantity=column,
                unit=unit,
                job_ids=tuple(str(name) for name in wide.index),
                recorded=Recorded(
                    usage=usage,
                    levels=np.tile(levels, (len(usage), 1)),
                    sample_hours=SLOT_SECONDS / SECONDS_PER_HOUR,
                    samples_per_step=per_step,
                    first_step=first,
                    warm_up_samples=first * per_step // 2,
                    cohorts=_cohorts([job for job, _ in chosen]),
                ),
                charges=_memory_charges(chosen) if memory else _board_charges(chosen, energy),
                energy_known=not memory,
                left_out=tuple(left_out),
            )
        )
    return found


def _priced(
    jobs: Sequence[Job], catalogue: GpuCatalogue
) -> tuple[dict[str, tuple[Job, GpuModel]], list[tuple[str, str]]]:
    known, left_out = {}, []
    for job in jobs:
        model = catalogue.find(job.gpu_model)
        if model is None:
            left_out.append((job.job_id, f"GPU model {job.gpu_model!r} is not in the catalogue"))
        else:
            known[job.job_id] = (job, model)
    return known, left_out


def _cohorts(jobs: Sequence[Job]) -> Indices:
    """Return the same number to runs of one recurring job."""
    numbers: dict[JobKey, int] = {}
    return np.array([numbers.setdefault(job_key(job), len(numbers)) for job in jobs])


def _slots(rows: pd.DataFrame) -> pd.DatetimeIndex:
    starts = rows["slot_start"]
    return pd.date_range(starts.min(), starts.max(), freq=f"{SLOT_SECONDS}s")


def _wide(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return [jobs, slots] of the jobs that reported the quantity at all."""
    wide = rows.pivot_table(index="job_id", columns="slot_start", values=column)
    return wide.reindex(columns=_slots(rows)).dropna(how="all")


def _board_levels(jobs: Sequence[tuple[Job, GpuModel]]) -> Values:
    """Return sevenths of a board up to one, as MIG cuts it, then whole boards."""
    most = max(2, *(job.gpu_count for job, _ in jobs))
    whole = np.unique(np.round(np.geomspace(1, most, 100)))
    return np.concatenate([np.arange(7) / 7, whole])


def _memory_levels(jobs: Sequence[tuple[Job, GpuModel]]) -> Values:
    """Return hundredths of the largest board."""
    largest = max(model.memory_mib for _, model in jobs)
    return np.linspace(largest / 100, largest, 100)


def _share(job: Job, model: GpuModel) -> float:
    """Return the share of a board that one device of the job is."""
    profile = model.mig_profile(job.mig_profile) if job.mig_profile else None
    return model.board_share(profile) if profile else 1.0


def _board_charges(jobs: Sequence[tuple[Job, GpuModel]], energy: EnergySettings) -> UnitCharges:
    shares = np.array([_share(job, model) for job, model in jobs])
    return UnitCharges(
        unit_hour=shares * [model.price_per_hour for _, model in jobs],
        idle_kw=shares * [model.idle_watts / 1000 for _, model in jobs],
        busy_kw=shares * [_BUSY_SHARE * model.tdp_watts / 1000 for _, model in jobs],
        energy_price=energy.electricity_price_per_kwh,
        pue=energy.pue,
    )


def _memory_charges(jobs: Sequence[tuple[Job, GpuModel]]) -> UnitCharges:
    """Return the rent of a MiB on every GPU of a job: its share of the board's rent."""
    return UnitCharges(
        unit_hour=np.array(
            [job.gpu_count * model.price_per_hour / model.memory_mib for job, model in jobs]
        )
    )
