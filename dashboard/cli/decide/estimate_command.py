"""`trimtab estimate`: peak GPU memory per plan, with the breakdown (MARP)."""

import argparse
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields
from typing import TYPE_CHECKING

from dashboard.cli.terminal.context import open_store_or_holder, settings_of
from dashboard.cli.terminal.output import print_json, print_rows, say
from dashboard.submission.estimates.estimate import LIMIT, breakdown_rows, model_line
from dashboard.submission.estimates.query import (
    EstimateAnswer,
    EstimateRequest,
    estimate_answer,
    launched_answer,
    require_count,
)
from dashboard.submission.estimates.serving_estimate import (
    SERVE_OPTIONS,
    ServiceRequest,
    served_answer,
)
from dashboard.submission.job.model_source import model_of_argument
from dashboard.submission.launchers.launched_job import LaunchOptions, is_launch, launched_job
from data.base.errors import ImpossibleProblemError
from data.settings.store import is_file, is_postgres_url, store_path

if TYPE_CHECKING:
    from data.store import StoreReader

MAX_GPUS = 64


def estimate(options: argparse.Namespace) -> int:
    """Print the plans that fit, best first, or how one fixed layout fits on every GPU type."""
    answered = _query(options)  # refused before a store is open
    url = settings_of(options).settings.store.url
    there = is_postgres_url(url) or is_file(store_path(url))
    with open_store_or_holder(url) if there else nullcontext() as store:
        answer = answered(None if store is None else store.reader)
    for kind, texts in (("warning", answer.warnings), ("note", answer.notes)):
        for text in texts:
            say(f"{kind}: {text}", file=sys.stderr)
    if options.format == "json":
        print_json(answer.document())
        return 0
    if options.format == "table":
        _say(answer)
    print_rows(answer.rows, options.format, columns=tuple(answer.rows[0]), empty="")
    if options.format == "table":
        first = answer.estimates[0]
        say(f"\nThe first of them at its {first.binding_event}:")
        print_rows(breakdown_rows(first), "table", columns=("part", "gib"), empty="")
    return 0


def _query(options: argparse.Namespace) -> Callable[["StoreReader | None"], EstimateAnswer]:
    """Return the function that answers: of a launched job, or of a model and its batch."""
    if options.gpus is not None:
        require_count("gpus", options.gpus)
    if is_launch(options.model):
        names = ("config", "framework", "gpus", "batch", "seq")
        asked_too = [entry.name for entry in fields(EstimateRequest)]
        same = {
            name: getattr(options, name)
            for name in (*asked_too, "serve", *SERVE_OPTIONS)
            if name not in (*names, "gpu", "top")
            and getattr(options, name) not in (None, "", [], False)
        }
        launch = LaunchOptions(**{name: getattr(options, name) for name in names}, same=same)
        launched = launched_job(options.model, launch)
        return lambda reader: launched_answer(launched, reader, gpu=options.gpu)
    for name in ("batch", "seq"):
        if getattr(options, name) is None:
            raise ImpossibleProblemError(
                f"--{name} is missing", f"Say it: trimtab estimate {options.model[0]} --{name} N."
            )
    model = model_of_argument(options.config or options.model[0])
    if options.serve:
        service = ServiceRequest.of(vars(options) | {"gpus": options.gpus or MAX_GPUS})
        service.launched(model, service.tensor or 1)
        return lambda reader: served_answer(service, model, reader)
    _refuse_serving(options)
    query = EstimateRequest.of(vars(options) | {"gpus": options.gpus or MAX_GPUS})
    query.job(model.shape)
    return lambda reader: estimate_answer(query, model, reader)


def _refuse_serving(options: argparse.Namespace) -> None:
    """Refuse an option that only an engine has. Errors: ImpossibleProblemError."""
    for name in SERVE_OPTIONS:
        if getattr(options, name) not in (None, ""):
            flag = f"--{name.replace('_', '-')} {getattr(options, name)}"
            raise ImpossibleProblemError(
                f"{flag} has no use without --serve", f"Add --serve, or take {flag} out."
            )


def _say(answer: EstimateAnswer) -> None:
    """Say on stderr what the figures rest on."""
    first = answer.estimates[0]
    lines = [
        f"{model_line(answer.job)}; GPU types of {answer.origin}.",
        f"A plan fits where its peak stays within the usable memory with {LIMIT} or more.",
    ]
    if "told" in answer.rows[0]:
        lines.append("What is free now comes first. A command must name what stands under told.")
    lines += [f"config.json: {entry}" for entry in answer.assumed]
    lines += [
        f"tier {first.tier}" + (f"; missing: {', '.join(first.missing)}" * bool(first.missing))
    ]
    lines += [f"assumed: {', '.join(first.assumed)}"] if first.assumed else []
    lines += list(first.notes)
    for line in lines:
        say(line, file=sys.stderr)
