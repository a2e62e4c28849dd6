"""`trimtab estimate`: peak GPU memory per plan, with the breakdown (MARP)."""

import argparse
import sys
from contextlib import nullcontext

from dashboard.cli.output import print_json, print_rows, say
from dashboard.cli.world import open_or_ask, settings_of
from dashboard.submission.asked_estimate import AskedEstimate, EstimateAnswer, estimate_answer
from dashboard.submission.estimate import LIMIT, breakdown_rows, model_line
from dashboard.submission.model_source import model_of_argument
from data.store.place import is_postgres_url, is_there, store_path


def estimate(options: argparse.Namespace) -> int:
    """Print the plans that fit, best first, or how one fixed layout fits on every GPU type."""
    settings = settings_of(options).settings
    model = model_of_argument(options.model)
    asked = AskedEstimate.of(vars(options))
    asked.job(model.shape)  # refused before a store is opened for it
    url = settings.store.url
    there = is_postgres_url(url) or is_there(store_path(url))
    with open_or_ask(url) if there else nullcontext() as store:
        reader = None if store is None else store.reader
        found = estimate_answer(asked, model, reader, currency=settings.energy.currency)
    for kind, texts in (("warning", found.warnings), ("note", found.notes)):
        for text in texts:
            say(f"{kind}: {text}", file=sys.stderr)
    if options.format == "json":
        print_json(found.document())
        return 0
    if options.format == "table":
        _say(found)
    print_rows(found.rows, options.format, columns=tuple(found.rows[0]), empty="")
    if options.format == "table":
        first = found.estimates[0]
        say(f"\nThe first of them at its {first.binding_event}:")
        print_rows(breakdown_rows(first), "table", columns=("part", "gib"), empty="")
    return 0


def _say(found: EstimateAnswer) -> None:
    """Say on stderr what the figures rest on."""
    first = found.estimates[0]
    lines = [
        f"{model_line(found.job)}; GPU types of {found.origin}.",
        f"A plan fits where its peak stays within the usable memory with {LIMIT} or more.",
        "What is free now comes first. A command must name what stands under told.",
    ]
    lines += [f"config.json: {one}" for one in found.assumed]
    lines += [
        f"tier {first.tier}" + (f"; missing: {', '.join(first.missing)}" * bool(first.missing))
    ]
    lines += [f"assumed: {', '.join(first.assumed)}"] if first.assumed else []
    lines += list(first.notes)
    for line in lines:
        say(line, file=sys.stderr)
