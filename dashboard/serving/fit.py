"""On which cheaper GPUs of the fleet a service's model fits, by its engine's own command."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache

from dashboard.submission.estimates.launcher_estimate import LaunchedRow, launched_rows
from dashboard.submission.estimates.query import known_types
from dashboard.submission.job.feasible_plans import family_of
from dashboard.submission.job.fleet import SubmissionFleet
from dashboard.submission.launchers.launched_job import LaunchedJob, LaunchOptions, launched_job
from data.base.errors import ImpossibleProblemError, TrimtabError
from data.catalogue.gpu_catalogue import GpuCatalogue, GpuModel
from data.facts.jobs import Job
from data.records.feasible_changes import configuration_refusal, unit_of
from data.records.plans import Configuration
from data.records.recommendations import Range
from data.records.serving import ModelFit, ServiceOutlook
from data.store import StoreReader
from planner.memory.estimate.calibration import Calibration
from planner.memory.estimate.training_plans import GpuType
from planner.serving.queueing import WaitObjective
from planner.serving.service_model import carries_of, replicas_for_rates

SLOW_END_FACTOR = 2.25
"""The slow end of the doubt of a relative speed: tokens are decoded at the memory's bandwidth.

Between models of the catalogue data sheets' bandwidths differ by 2.25 times as much at most.
"""
FASTER_MEMORY = frozenset({"H20-96GB", "MI300A-128GB"})
"""Models whose bandwidth is beyond that doubt of their speed: no cheaper one is told for them."""


def with_fits(
    outlooks: Sequence[ServiceOutlook],
    catalogue: GpuCatalogue,
    objective: WaitObjective,
    reader: StoreReader,
) -> tuple[ServiceOutlook, ...]:
    """Return the outlooks with the cheaper GPU models of the fleet that each model fits on.

    None where model, context and how full the cache was are not all known, where no applier could
    bring the job there, and where too few boards are free.
    """
    types_of = cache(lambda family: known_types(reader, family))
    jobs = reader.jobs_of([outlook.job_id for outlook in outlooks if outlook.job_id])
    fitted = []
    for outlook in outlooks:
        job = jobs.get(outlook.job_id)
        launched = None if job is None else _launched(job)
        if job is not None and launched is not None and outlook.kv_cache_max_ratio is not None:
            types, _origin, calibration, fleet = types_of(family_of(launched.job))
            here = next((gpu for gpu in types if gpu.name == job.gpu_model), None)
            if here is not None and fleet is not None:
                filled = _filled(launched, here, outlook.kv_cache_max_ratio, calibration)
                rows = launched_rows(filled, types, calibration=calibration)
                fits = _fits(outlook, job, filled, rows, catalogue, objective)
                outlook = replace(outlook, fits=tuple(_with_room(fits, fleet)))
        fitted.append(outlook)
    return tuple(fitted)


def _with_room(fits: Iterable[ModelFit], fleet: SubmissionFleet) -> Iterator[ModelFit]:
    free = Counter[str]()
    for node in fleet.usable:
        free[node.gpu_type] += node.free_gpus
    for fit in fits:
        if fit.gpus * fit.replicas.central <= free[fit.gpu_model]:
            yield fit


def _fits(
    outlook: ServiceOutlook,
    job: Job,
    launched: LaunchedJob,
    rows: Sequence[LaunchedRow],
    catalogue: GpuCatalogue,
    objective: WaitObjective,
) -> Iterator[ModelFit]:
    here = catalogue.find(job.gpu_model)
    if here is None or here.name in FASTER_MEMORY:
        return
    for row in (entry.row for entry in rows if entry.row["fits"]):
        there = catalogue.find(row["gpu"])
        if there is None or there.price_per_hour >= here.price_per_hour:
            continue
        if not there.runs_what_runs_on(here):
            continue
        proposed = Configuration(gpu_model=there.name, gpu_count=job.gpu_count)
        replicas = _replicas(outlook, here, there, objective)
        if replicas is not None and not configuration_refusal(job, proposed):
            yield ModelFit(
                gpu_model=there.name,
                model=launched.model.shape.name,
                gpus=launched.job.parallelism.gpus,
                sequences=launched.job.micro_batch or 1,
                context_tokens=launched.job.sequence_length or 0,
                fit_probability=row["fit_probability"],
                p95_gib=row["p95_gib"],
                replicas=replicas,
            )


def _filled(
    launched: LaunchedJob, here: GpuType, fullest: float, calibration: Calibration | None
) -> LaunchedJob:
    """Return the engine with so many sequences as its cache held where it is, at its fullest."""
    (row,) = launched_rows(launched, [here], calibration=calibration)
    tokens = fullest * row.row["cache_tokens"]
    sequences = max(1, math.ceil(tokens / (launched.job.sequence_length or 1)))
    return replace(launched, job=replace(launched.job, micro_batch=sequences))


def _launched(job: Job) -> LaunchedJob | None:
    """Return the engine as its command launches it, None where that is not wholly known."""
    extra = job.extra
    words = extra.get("engine_command", "").split()
    if not words or job.mig_profile or "sharing" in extra:
        return None
    try:
        launched = launched_job(words, LaunchOptions())
    except TrimtabError:
        return None
    complete = launched.job.parallelism.gpus == unit_of(job)
    return launched if complete and not launched.unread else None


def _replicas(
    outlook: ServiceOutlook, here: GpuModel, there: GpuModel, objective: WaitObjective
) -> Range | None:
    """Return the replicas of now on another model, by the queueing formula."""
    carries = carries_of(outlook)
    if carries is None or not outlook.rates_q95 or outlook.silent_replicas:
        return None
    slower = max(1.0, here.relative_speed / there.relative_speed)
    needed: list[int] = []
    for factor in (1.0, slower, slower * SLOW_END_FACTOR):
        seconds = carries.service_seconds.central * factor
        load = replace(carries.load(0.0), service_seconds=seconds)
        try:
            needed += replicas_for_rates(load, [max(outlook.rates_q95)], objective)
        except ImpossibleProblemError:
            return None
    first = max(1, needed[0])
    low, central, high = (outlook.replicas * max(1, count) / first for count in needed)
    return Range(low=low, central=central, high=high, unit="replicas")
