"""`trimtab serving`: what inference engines say of their requests, and the replicas they need."""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from dashboard.cli.terminal.output import print_rows, say

if TYPE_CHECKING:
    from collectors.readings.serving_signals import LatencyHistogram, ServiceSample

_P95 = 0.95
SIGNAL_COLUMNS = (
    "engine", "model", "job", "address", "running", "waiting", "kv_cache_ratio", "prompt_tokens",
    "generation_tokens", "preemptions", "finished", "first_token_mean_s", "first_token_p95_s",
    "per_token_mean_s", "queue_wait_mean_s", "request_mean_s",
)  # fmt: skip
_SERVICE_COLUMNS = (
    "job_id", "state", "engine", "model", "replicas", "required_replicas", "max_required_replicas",
    "requests_per_second", "carried_per_second", "waiting_requests", "wait_seconds", "late_minutes",
)  # fmt: skip


def signals(options: argparse.Namespace) -> int:
    """Print a row per replica of every file; on stderr what was dropped and why."""
    from collectors.readings.dcgm_readings import Dropped
    from collectors.readings.serving_signals import read_serving_file

    dropped = Dropped()
    samples = [sample for name in options.file for sample in read_serving_file(Path(name), dropped)]
    for reason, count in dropped.as_pairs():
        say(f"dropped: {count} {reason}", file=sys.stderr)
    rows = [_row(sample) for sample in samples]
    print_rows(rows, options.format, columns=SIGNAL_COLUMNS, empty="")
    return 0


def services(options: argparse.Namespace) -> int:
    """List the services of the latest cycle: the table has what a person asks for first.

    All columns are in CSV and JSON, the slots ahead in the JSON alone.
    """
    from dashboard.cli.terminal.ask import rows_of, selection_of
    from dashboard.resources.rows import ServiceRow
    from data.base.rows import columns_of

    rows, _empty = rows_of(options, "serving", selection_of(options))
    columns: tuple[str, ...] = _SERVICE_COLUMNS
    if options.format != "table":
        columns = tuple(name for name in columns_of(ServiceRow) if name != "slots")
    empty = "No inference engine was read in the latest cycle: does prometheus.url scrape one?"
    documents = [asdict(row) for row in rows[: options.limit]]
    print_rows(documents, options.format, columns=columns, empty=empty)
    return 0


def _row(sample: "ServiceSample") -> dict[str, object]:
    first = sample.first_token_seconds
    values = (
        sample.engine,
        sample.model,
        sample.job_id or None,
        sample.address or None,
        sample.running_requests,
        sample.waiting_requests,
        sample.kv_cache_ratio,
        sample.prompt_tokens_total,
        sample.generation_tokens_total,
        sample.preemptions_total,
        sample.finished_requests_total,
        _mean(first),
        None if first is None else first.quantile_seconds(_P95),
        _mean(sample.per_token_seconds),
        _mean(sample.queue_wait_seconds),
        _mean(sample.request_seconds),
    )
    return dict(zip(SIGNAL_COLUMNS, values, strict=True))


def _mean(histogram: "LatencyHistogram | None") -> float | None:
    return None if histogram is None else histogram.mean_seconds


def replicas(options: argparse.Namespace) -> int:
    """Print the replicas needed, with one and two less and one more."""
    from dashboard.cli.terminal.context import settings_of
    from planner.serving.queueing import ServiceLoad, WaitObjective, outlook, replicas_needed

    promised = settings_of(options).settings.serving
    load = ServiceLoad(
        requests_per_second=options.rate,
        service_seconds=options.service_seconds,
        slots_per_replica=options.slots,
        arrival_scv=options.arrival_scv,
        service_scv=options.service_scv,
    )
    objective = WaitObjective(
        wait_seconds=promised.wait_seconds if options.wait is None else options.wait,
        share=promised.wait_ratio if options.share is None else options.share,
    )
    needed = replicas_needed(load, objective)
    sizes = [
        outlook(load, number, objective.wait_seconds)
        for number in range(max(1, needed - 2), needed + 2)
    ]
    rows = [
        {
            "replicas": each.replicas,
            "meets": "yes" if each.replicas >= needed else "no",
            "utilization_ratio": each.utilization_ratio,
            "late_ratio": each.late_ratio,
            "mean_wait_s": each.mean_wait_seconds,
        }
        for each in sizes
    ]
    print_rows(rows, options.format, columns=tuple(rows[0]), empty="")
    return 0
