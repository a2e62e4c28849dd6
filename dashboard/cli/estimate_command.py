"""`trimtab estimate`: peak GPU memory per plan, with the breakdown (MARP)."""

import argparse
import sys
from typing import Any

from dashboard.cli.output import print_json, print_rows, say
from dashboard.cli.world import open_or_ask, settings_of
from dashboard.submission.estimate import (
    LIMIT,
    Offers,
    breakdown_rows,
    chosen_types,
    estimate_document,
    layout_row,
    layouts,
    model_line,
    offered,
    plan_row,
)
from dashboard.submission.fleet import SubmissionFleet, catalogue_types, fleet_of_store
from dashboard.submission.model_source import model_of_argument
from dashboard.submission.planning import calibration_of, family_of, limit_warning
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.errors import ImpossibleProblemError
from data.settings import Settings
from data.store.place import is_postgres_url, is_there, store_path
from planner.memory.calibration import Calibration
from planner.memory.predictor import MemoryEstimate
from planner.memory.training_job import Adapter, Method, Recompute, TrainingJob
from planner.memory.training_plans import GpuType, PlanQuestion, smallest_cluster, training_plans

_DEGREES = ("data", "tensor", "pipeline")


def estimate(options: argparse.Namespace) -> int:
    """Print the plans that fit, best first, or how one fixed layout fits on every GPU type."""
    loaded = settings_of(options)
    read = model_of_argument(options.model)
    job = _job(options, read.shape)
    types, origin, calibration, fleet = _known(loaded.settings, family_of(job))
    types = chosen_types(types, options.gpu)
    degrees = {name: value for name in _DEGREES if (value := getattr(options, name)) is not None}
    said: dict[str, list[str]] = {"warnings": [], "notes": []}
    if degrees:
        found = layouts(
            job, types, global_batch=options.batch, degrees=degrees, calibration=calibration
        )
        rows = [layout_row(one) for one in found]
        estimates = [one.estimate for one in found]
    else:
        offers = _offers(_question(options, job, types, calibration), fleet)
        plans = offers.plans[: max(1, options.top)]
        currency = loaded.settings.energy.currency
        rows = [plan_row(offer, currency=currency, tokens=options.tokens) for offer in plans]
        estimates = [offer.plan.estimate for offer in plans]
        late = limit_warning(
            plans[0].plan, options.tokens, options.time_limit, whose="--time-limit"
        )
        said["warnings"] = [text for text in (offers.warning, late) if text]
        said["notes"] = [offers.remark] * bool(offers.remark)
    for kind, texts in said.items():
        for text in texts:
            say(f"{kind.removesuffix('s')}: {text}", file=sys.stderr)
    if options.format == "json":
        document: dict[str, Any] = {
            "model": model_line(job),
            "model_assumed": list(read.assumed),
            "gpu_types_from": origin,
            **said,
            "plans": [
                row | {"estimate": estimate_document(one)}
                for row, one in zip(rows, estimates, strict=True)
            ],
        }
        print_json(document)
        return 0
    if options.format == "table":
        _say(job, read.assumed, origin, estimates[0])
    print_rows(rows, options.format, columns=tuple(rows[0]), empty="")
    if options.format == "table":
        say(f"\nThe first of them at its {estimates[0].binding_event}:")
        print_rows(breakdown_rows(estimates[0]), "table", columns=("part", "gib"), empty="")
    return 0


def _offers(question: PlanQuestion, fleet: SubmissionFleet | None) -> Offers:
    """Return the plans to list. Errors: ImpossibleProblemError when none of them fits."""
    offers = offered(training_plans(question), fleet)
    if not offers.plans:
        raise ImpossibleProblemError(offers.warning, smallest_cluster(question))
    return offers


def _say(job: TrainingJob, assumed: tuple[str, ...], origin: str, first: MemoryEstimate) -> None:
    """Say on stderr what the figures rest on."""
    lines = [
        f"{model_line(job)}; GPU types of {origin}.",
        f"A plan fits where its peak stays within the usable memory with {LIMIT} or more.",
        "What is free now comes first. A command must name what stands under told.",
    ]
    lines += [f"config.json: {one}" for one in assumed]
    lines += [
        f"tier {first.tier}" + (f"; missing: {', '.join(first.missing)}" * bool(first.missing))
    ]
    lines += [f"assumed: {', '.join(first.assumed)}"] if first.assumed else []
    lines += list(first.notes)
    for line in lines:
        say(line, file=sys.stderr)


def _job(options: argparse.Namespace, shape: Any) -> TrainingJob:
    method = Method(options.method)
    for name in ("batch", "seq", "gpus"):
        if getattr(options, name) < 1:
            raise ImpossibleProblemError(
                f"--{name} of {getattr(options, name)}", f"Give --{name} as 1 or more."
            )
    for name, most in (("tokens", 1e17), ("time_limit", 24 * 365)):
        value = getattr(options, name)
        if value is not None and not 0 < value <= most:
            raise ImpossibleProblemError(
                f"--{name.replace('_', '-')} of {value}", f"Give a number from 0 to {most:g}."
            )
    return TrainingJob(
        shape=shape,
        framework=options.framework,
        method=method,
        adapter=Adapter(rank=options.adapter_rank) if method is Method.ADAPTER else None,
        micro_batch=options.micro_batch,
        sequence_length=options.seq,
        length_varies=None if options.lengths is None else options.lengths == "vary",
        precision=options.precision or None,
        optimizer=options.optimizer or None,
        quantization=options.quantization,
        recompute=Recompute(options.recompute) if options.recompute else None,
    )


def _question(
    options: argparse.Namespace,
    job: TrainingJob,
    types: tuple[GpuType, ...],
    calibration: Calibration | None,
) -> PlanQuestion:
    fixed: dict[str, Any] = {}
    if job.micro_batch is not None:
        fixed["micro_batches"] = (job.micro_batch,)
    if job.recompute is not None:
        fixed["recomputes"] = (job.recompute,)
    return PlanQuestion(
        job=job,
        global_batch=options.batch,
        gpu_types=types,
        max_gpus=options.gpus,
        calibration=calibration,
        **fixed,
    )


def _known(
    settings: Settings, family: str
) -> tuple[tuple[GpuType, ...], str, Calibration | None, SubmissionFleet | None]:
    """Return the fleet's GPU types and the family's calibration from the store, if there is one."""
    catalogue = load_gpu_catalogue()
    url = settings.store.url
    if not is_postgres_url(url) and not is_there(store_path(url)):
        return catalogue_types(catalogue), "the catalogue", None, None
    with open_or_ask(url) as store:
        fleet = fleet_of_store(store.reader, catalogue)
        calibration = calibration_of(family, store.reader.measured_peaks(family))
    types = fleet.gpu_types(catalogue)
    if types:
        return types, "the fleet in the store", calibration, fleet
    return catalogue_types(catalogue), "the catalogue", calibration, None
