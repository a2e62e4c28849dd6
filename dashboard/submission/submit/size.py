"""Size of a job before it is admitted: GPU model, number, nodes, memory, limit, chance, finish.

Nothing is sent or changed here. The answer holds what may be changed, for who asked to change it:
where the job's owner consents, and only what its program would follow.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from collectors.shared.json_parts import list_in, part
from collectors.slurm.gpu_models import gpu_models_of
from dashboard.apply.kubernetes.state.json_patch import Operation, names_of, pointer, value_at
from dashboard.submission.estimates.estimate import FitFigures, fit_figures, unlikely_reason
from dashboard.submission.estimates.launcher_estimate import launched_rows
from dashboard.submission.job.command_options import COUNT_OPTIONS, needs
from dashboard.submission.job.feasible_plans import (
    calibration_of,
    family_of,
    limit_warning,
    misses_deadline,
    plans_for,
)
from dashboard.submission.job.fleet import SubmissionFleet, fleet_of_store
from dashboard.submission.job.job_file import JobFile, Table, read_job
from dashboard.submission.job.launch import plan_values
from dashboard.submission.job.placement import Arrival, HostNeed, Placement, place, standings
from dashboard.submission.launchers.scheduled_job import (
    DEADLINE,
    GPU_OPTIONS,
    SIZE_ANNOTATION,
    ScheduledJob,
)
from dashboard.submission.submit.proposal import gpu_types, host_need
from dashboard.submission.submit.waiting_jobs import waiting_jobs
from data.base.errors import ChangeRefusedError, ImpossibleProblemError
from data.base.units import MIB_PER_GIB, SECONDS_PER_HOUR
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.gpu_resources import PRODUCT_LABEL, WHOLE_GPU
from data.facts.jobs import JobState, Platform, SchedulerFacts
from data.facts.queue_waits import QueueWait
from data.settings.all_settings import Settings
from data.store.handles.cached_reader import CachedReader
from planner.fleet.occupied_boards import short_name
from planner.memory.estimate.calibration import Calibration
from planner.memory.estimate.predictor import needed_bytes
from planner.memory.estimate.training_plans import (
    GpuType,
    PlanQuestion,
    TrainingPlan,
    priced,
    training_plans,
)
from planner.memory.estimate.training_time import hours_range
from planner.memory.step.training_job import Companions, Method, Parallelism, TrainingJob
from planner.scheduling.arrival import WaitingJob

_MINUTE, _MILLI = 60.0, 1000
_NEW = "new"
_OVERRIDES = "/spec/podTemplateOverrides"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeDocument:
    """The size that a job should have, before it is admitted.

    `memory` is of one GPU; `cpus` and `host_memory_gib` are the share of a node that goes with its
    GPUs, None where the fleet does not say. `wait_minutes` are q10, q50, q90, zeros where there is
    room now, empty where nothing is known. `hours` are the least and the most, empty where no
    `tokens` say how long the run is: its limit alone then says when it is over at the latest.
    `plan` are the values that its program must be told. `patch` (a JSON patch of the object) or
    `options` (of sbatch) are what may be changed; both are empty where `unchanged` says why.
    """

    gpu: str
    gpus: int
    nodes: int
    gpus_per_node: int
    cpus: float | None
    host_memory_gib: float | None
    limit_hours: float | None
    memory: FitFigures
    room: str
    wait_minutes: list[float]
    hours: list[float]
    finish_earliest: datetime | None
    finish_latest: datetime | None
    plan: dict[str, str]
    patch: list[dict[str, Any]]
    options: dict[str, str]
    unchanged: str
    warnings: list[str]
    notes: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredFleet:
    """The fleet of the store, what waits there, and the label of its GPUs by model."""

    nodes: SubmissionFleet
    waiting: tuple[WaitingJob, ...]
    partitions: Mapping[str, tuple[str, ...]]
    labels: Mapping[str, str]

    @classmethod
    def of(cls, reader: CachedReader) -> "_StoredFleet":
        """Read it."""
        catalogue = load_gpu_catalogue()
        nodes = [node for node in reader.nodes() if not node.cluster]
        labels: dict[str, set[str]] = {}
        for node in nodes:
            stated = dict(feature.partition("=")[::2] for feature in node.features)
            labels.setdefault(node.gpu_model, set()).add(stated.get(PRODUCT_LABEL, ""))
        return cls(
            nodes=fleet_of_store(reader, catalogue),
            waiting=waiting_jobs(reader, catalogue),
            partitions={short_name(node.name): node.partitions for node in nodes},
            # A selector takes one of two names: some of the nodes would be left out.
            labels={model: min(words) for model, words in labels.items() if len(words) == 1},
        )

    def within(self, partition: str) -> SubmissionFleet:
        """Return the nodes of a partition, all where none is named or nodes do not tell theirs."""
        if not partition or not any(self.partitions.values()):
            return self.nodes
        names = {name for name, partitions in self.partitions.items() if partition in partitions}
        nodes = tuple(node for node in self.nodes.nodes if short_name(node.name) in names)
        return replace(self.nodes, nodes=nodes, source=f"the partition {partition}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sized:
    """The plans of a job with what its owner stated; `job` is None of a launch command."""

    plans: Sequence[TrainingPlan]
    tokens: float | None
    job: JobFile | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def hours(self, plan: TrainingPlan) -> list[float]:
        """Return the least and most hours under a plan; none where that is not known."""
        return [] if self.tokens is None else list(hours_range(plan, self.tokens))


def size_of(
    asked: ScheduledJob, reader: CachedReader, settings: Settings, now: datetime
) -> SizeDocument:
    """Return the size of a job. Errors: ChangeRefusedError, ImpossibleProblemError."""
    store = reader.remember(("size",), lambda: _StoredFleet.of(reader))
    fleet = store.nodes if asked.document else store.within(asked.queue)
    types = gpu_types(fleet)

    def calibration(job: TrainingJob) -> Calibration:
        name = family_of(job)
        peaks = reader.remember(("size", name), lambda: reader.measured_peaks(name))
        return calibration_of(name, peaks)

    if "model" in asked.recipe:
        described = _job_of(asked)
        most = min(settings.submit.max_gpus, fleet.gpus)
        plans = _plans(described, types, most, calibration(described.training_job))
        sized = _Sized(plans=plans, job=described, tokens=described.tokens)
    else:
        sized = _launched(asked, types, fleet, calibration)
    job = sized.job
    host = HostNeed() if job is None else host_need(job)
    arrival = Arrival(
        host=host,
        late=lambda plan: job is not None and misses_deadline(job, plan, now),
        hours=lambda plan: math.sqrt(math.prod(sized.hours(plan))) if sized.tokens else None,
        waiting=store.waiting,
    )
    placement = place(sized.plans, fleet, arrival)
    if job is None and asked.nodes and asked.each:
        placement = replace(placement, node_count=asked.nodes, gpus_per_node=asked.each)
    plan, hours = placement.plan, sized.hours(placement.plan)
    wait = _wait(asked, placement, reader)
    latest = hours[1] if hours else asked.limit_hours
    memory_mib = placement.fair_memory_mib
    if host.memory_mib_per_gpu is not None:
        memory_mib = host.memory_mib_per_gpu * placement.gpus_per_node
    cpus = placement.fair_milli_cpus
    late = limit_warning(plan, sized.tokens, asked.limit_hours, whose="its time limit")
    limit = math.ceil(hours[1]) if hours else asked.limit_hours
    change = _change_of(asked, job, placement, store, settings, limit if late else None)
    return SizeDocument(
        gpu=plan.gpu_type,
        gpus=plan.gpus,
        nodes=placement.node_count,
        gpus_per_node=placement.gpus_per_node,
        cpus=None if cpus is None else cpus / _MILLI,
        host_memory_gib=None if memory_mib is None else memory_mib / MIB_PER_GIB,
        limit_hours=limit,
        memory=fit_figures(plan.job, plan.estimate),
        room=standings([plan], fleet, host)[0].text,
        wait_minutes=[second / _MINUTE for second in wait],
        hours=hours,
        finish_earliest=_later(now, wait[0], hours[0]) if wait and hours else None,
        finish_latest=_later(now, wait[2], latest) if wait and latest else None,
        plan={} if job is None else plan_values(job, placement),
        patch=change if isinstance(change, list) else [],
        options=change if isinstance(change, dict) else {},
        unchanged=change if isinstance(change, str) else "",
        warnings=[
            text
            for text in (*sized.warnings, unlikely_reason(plan.job, plan.estimate), late)
            if text
        ],
        notes=[*sized.notes, *plan.estimate.notes],
    )


@lru_cache(maxsize=256)
def _plans(
    job: JobFile, types: tuple[GpuType, ...], max_gpus: int, correction: Calibration
) -> tuple[TrainingPlan, ...]:
    """Return the plans of a job: a recipe comes again and again, and to list them takes longest."""
    return plans_for(job, types, max_gpus=max_gpus, calibration=correction)


def _later(now: datetime, wait_seconds: float, hours: float) -> datetime:
    return now + timedelta(seconds=wait_seconds, hours=min(hours, 24 * 366 * 100))


def _job_of(asked: ScheduledJob) -> JobFile:
    """Return the job that its owner describes with the tables of a job file.

    Its program starts its own processes and learns of the plan by TRIMTAB_… alone: nothing is put
    into its command.
    """
    model = asked.recipe["model"]
    if isinstance(model, Mapping) and model.get("config"):
        raise ChangeRefusedError(
            "the job names a file of its model", 'Name a known model: name = "llama3-8b".'
        )
    reads = [name for name in asked.reads if name in COUNT_OPTIONS]
    values = {"name": _NEW, "command": [_NEW], "launcher": "none", "reads": reads, **asked.recipe}
    return read_job(values, folder=Path())


def _launched(
    asked: ScheduledJob,
    types: Sequence[GpuType],
    fleet: SubmissionFleet,
    calibration: Callable[[TrainingJob], Calibration],
) -> _Sized:
    """Return the plans of a launch command: its layout, on each type that has such nodes."""
    top = Table("", asked.recipe)
    data = top.table("data")
    tokens = data.number("tokens", low=1, high=1e17)
    for table in (top, data):
        table.refuse_others()
    launched = asked.launched()
    job = launched.job
    if job.method is Method.INFERENCE:
        raise ChangeRefusedError("it serves a model", "Ask `trimtab estimate -- COMMAND`.")
    correction = calibration(job)
    rows = launched_rows(launched, types, calibration=correction)
    each, nodes = asked.each or 1, asked.nodes or 1
    seats = Counter(node.gpu_type for node in fleet.usable if node.gpus >= each)
    plans = [
        priced(gpu, row.job, row.estimate)
        for gpu, row in zip(types, rows, strict=True)
        if needed_bytes(row.estimate) <= gpu.memory_bytes and seats[gpu.name] >= nodes
    ]
    if not plans:
        raise ImpossibleProblemError(
            f"{nodes} x {each} GPUs of no type of {fleet.source} hold it as it is launched",
            "Ask `trimtab estimate -- COMMAND` for the memory that it needs.",
        )
    gpus = job.parallelism.gpus
    differs = f"it asks for {nodes * each} GPUs and starts {gpus} processes"
    return _Sized(
        plans=plans,
        tokens=tokens,
        warnings=(differs,) * (asked.each is not None and nodes * each != gpus),
        notes=(
            f"read as a job of {launched.dialect}",
            *(f"assumed: {entry}" for entry in launched.assumed),
            *(f"not read, though it may matter to memory: {name}" for name in launched.unread),
            *_smaller(job, types, correction),
        ),
    )


def _smaller(job: TrainingJob, types: Sequence[GpuType], correction: Calibration) -> Iterator[str]:
    """Yield a plan of the same step on fewer GPUs, with what the program would have to be told."""
    spread, micro_batch = job.parallelism, job.micro_batch or 1
    if spread.gpus == 1 or job.companions != Companions() or spread.context * spread.expert > 1:
        return
    question = PlanQuestion(
        job=replace(job, parallelism=Parallelism()),
        global_batch=micro_batch * (job.gradient_accumulation or 1) * spread.data,
        gpu_types=types,
        max_gpus=spread.gpus // 2,
        micro_batches=(micro_batch,),
        calibration=correction,
    )
    try:
        plans = [plan for plan in training_plans(question) if plan.fits]
    except ImpossibleProblemError:
        return
    if plans:
        best = min(plans, key=lambda plan: (plan.gpus, plan.cost))
        values = ", ".join(need.what for need in needs(best.job))
        chance = f"{100 * best.fit_probability:.0f} %"
        yield f"{best.gpus} x {best.gpu_type} would hold the same step ({chance}), told {values}"


def _wait(asked: ScheduledJob, placement: Placement, reader: CachedReader) -> list[float]:
    """Return q10, q50 and q90 of the wait of the placed job in s, none where that is not known."""
    if not placement.waits:
        return [0.0, 0.0, 0.0]
    plan, limit = placement.plan, asked.limit_hours
    platform = Platform.KUBERNETES if asked.document else Platform.SLURM

    def forecast() -> QueueWait | None:
        from forecasting.groups.queue_waits import places_in_line  # loads numba

        jobs = [job for job in reader.jobs_lately() if job.platform is platform and not job.cluster]
        if not jobs:
            return None
        as_of = max(job.last_seen_at for job in jobs)
        alike = [job for job in jobs if job.gpu_model == plan.gpu_type] or jobs
        usual = Counter(job.namespace for job in alike).most_common(1)[0][0]
        new = replace(
            alike[-1],
            job_id=_NEW,
            namespace=asked.queue or usual,
            gpu_model=plan.gpu_type,
            gpu_count=plan.gpus,
            first_seen_at=as_of,
            last_seen_at=as_of,
            scheduler=SchedulerFacts(
                state=JobState.PENDING,
                submitted_at=as_of,
                time_limit_seconds=None if limit is None else limit * SECONDS_PER_HOUR,
            ),
        )
        places = places_in_line([*jobs, new], as_of, only=new)
        return next((place.wait for place in places if place.job_id == _NEW), None)

    key = ("size", platform, asked.queue, plan.gpu_type, plan.gpus, limit)
    wait = reader.remember(key, forecast)
    return [wait.low, wait.median, wait.high] if wait is not None and wait.known else []


def _change_of(
    asked: ScheduledJob,
    job: JobFile | None,
    placement: Placement,
    store: _StoredFleet,
    settings: Settings,
    limit: float | None,
) -> list[Operation] | dict[str, str] | str:
    """Return the patch or options for a job that still waits, or why it stays as it is."""
    if not asked.is_open:
        return "it is not suspended"
    if not asked.consents:
        return f"its owner does not consent ({SIZE_ANNOTATION}: apply)"
    if not placement.plan.fits:
        return "no plan is likely enough to fit"
    if asked.document:
        return _patch_of(asked, job, placement, store.labels.get(placement.plan.gpu_type), limit)
    return _options_of(asked, job, placement, gpu_models_of(settings.slurm.gpu_models), limit)


def _options_of(
    asked: ScheduledJob,
    job: JobFile | None,
    placement: Placement,
    models: Mapping[str, str],
    limit: float | None,
) -> dict[str, str] | str:
    """Return the options of sbatch. The type of its GPUs is this Slurm's word for it."""
    model, each, count = placement.plan.gpu_type, placement.gpus_per_node, placement.node_count
    words = [word for word, name in models.items() if name == model]
    if model in (models.get(asked.gpu.casefold()), load_gpu_catalogue().recognise(asked.gpu)):
        words = [asked.gpu]
    name = next((name for name in GPU_OPTIONS if name in asked.options), "gres")
    if not words or "," in asked.options.get(name, ""):
        return f"slurm.gpu_models names no type of {model}, or --{name} has more"
    total = each * count if name == "gpus" else each
    options = {name: "gpu:" * (name == "gres") + f"{words[0]}:{total}"}
    if limit is not None:
        options["time"] = f"{limit:g}:00:00"
    if job is not None:
        plan = plan_values(job, placement)
        variables = (f"TRIMTAB_{name.upper()}={plan[name]}" for name in job.reads)
        export = asked.options.get("export", "ALL")
        options |= {"nodes": str(count), "export": ",".join((export, *variables))}
    return options


def _patch_of(
    asked: ScheduledJob,
    job: JobFile | None,
    placement: Placement,
    label: str | None,
    limit: float | None,
) -> list[Operation] | str:
    """Return the patch of a suspended object, which tests that it is still as it was read.

    Of a Job or JobSet every server lets the nodes and the limit be changed, and few the GPUs.
    """
    document, place = asked.document, asked.place
    version = value_at(document, "/metadata/resourceVersion")
    selector = value_at(document, f"{place}/spec/nodeSelector") or {}
    others = not isinstance(selector, Mapping) or set(selector) - {PRODUCT_LABEL}
    if others or any(value_at(document, at) for at in (f"{place}/spec/affinity", _OVERRIDES)):
        return "its owner chose nodes, and which these are is not read"
    if not label or not isinstance(version, str):
        return "its GPUs have no one label, or the object no resourceVersion"
    each, count = placement.gpus_per_node, placement.node_count
    fields: dict[str, Any] = {f"{place}/spec/nodeSelector{pointer(PRODUCT_LABEL)}": label}
    if document["kind"] == "TrainJob":
        nodes = {"nodeSelector": {PRODUCT_LABEL: label}}
        fields = {_OVERRIDES: [{"targetJobs": [{"name": "node"}], "spec": nodes}]}
        if job is not None:
            plan = plan_values(job, placement)
            variables = {f"TRIMTAB_{name.upper()}": plan[name] for name in job.reads}
            env = list_in(document, "spec", "trainer", "env")
            fields |= {
                f"{place}/numNodes": count,
                f"{place}/numProcPerNode": each,
                f"{place}/resourcesPerNode/limits{pointer(WHOLE_GPU)}": str(each),
                f"{place}/env": [
                    *(entry for entry in env if part(entry, "name") not in variables),
                    *({"name": name, "value": value} for name, value in variables.items()),
                ],
            }
    elif job is not None and (count, each) != (asked.nodes, asked.each):
        return "a Job takes other nodes, and no other number of GPUs"
    if limit is not None and document["kind"] == "Job":
        fields[f"/spec/{DEADLINE}"] = round(limit * SECONDS_PER_HOUR)
    tests = {"/metadata/resourceVersion": version, "/spec/suspend": True}
    checks = [{"op": "test", "path": at, "value": value} for at, value in tests.items()]
    changes = list(_operations(document, fields))
    return [*checks, *changes] if changes else "it has this size already"


def _operations(document: Mapping[str, Any], fields: Mapping[str, Any]) -> Iterator[Operation]:
    """Yield the operations that set fields, with the objects around them that are not there.

    Errors: ChangeRefusedError where something else stands in the place of such an object.
    """
    tree: Any = deepcopy(document)
    for at, value in fields.items():
        if value_at(tree, at) == value:
            continue
        *above, last = names_of(at)
        inside, depth = tree, 0
        while depth < len(above) and value_at(inside, pointer(above[depth])):
            inside, depth = value_at(inside, pointer(above[depth])), depth + 1
        if not isinstance(inside, dict):
            where = pointer(*above[:depth])
            raise ChangeRefusedError(f"{where} is not an object", "Give one that a server took.")
        names = [*above, last][depth:]
        for name in reversed(names[1:]):
            value = {name: value}
        op = "add" if value_at(inside, pointer(names[0])) is None else "replace"
        yield {"op": op, "path": pointer(*above[:depth], names[0]), "value": value}
        inside[names[0]] = value
