"""The commands that show what the store knows, and the settings in force."""

import argparse
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from dashboard.accounting.cost.applications import ApplicationRow, application_rows
from dashboard.cli.terminal.ask import answer_of, rows_of, selection_of
from dashboard.cli.terminal.context import asks_a_server, open_for_reading, settings_of
from dashboard.cli.terminal.option_types import JOB_FIELDS, JOB_ORDERS
from dashboard.cli.terminal.output import FINDINGS, print_json, print_rows, say
from dashboard.cli.terminal.remote_server import refuse_with_server
from dashboard.common.replay_clock import present
from dashboard.resources.listings import LISTINGS, empty_message, running_since
from dashboard.resources.queue_rows import WAIT, SoonerRow
from dashboard.resources.rows import JobRow, job_row
from data.base.counts import count_text
from data.base.errors import SettingsError
from data.base.rows import columns_of
from data.facts.job_pages import JobFilter, JobUse
from data.facts.jobs import Job
from data.settings.load import setting_rows
from data.store import StoreReader

_MAX_ROWS = 1_000_000
_OF_STORE = ("application", "user", "state", "kind", "search", "running", "use", "sort")
"""Options by which the store itself chooses or orders jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedJobRow(JobRow):
    """A job as last known, and its last day: None what was never reported.

    `utilization_ratio` is the part of its GPU-hours of known activity in which they did work,
    `memory_mib` the largest reading of one of its GPUs.
    """

    gpu_hours: float | None
    utilization_ratio: float | None
    memory_mib: float | None
    energy_kwh: float | None


def jobs(options: argparse.Namespace) -> int:
    """List the jobs known now, or the applications that own them."""
    options.listed = "applications" if options.by == "application" else "jobs"
    filters = [name for name in _OF_STORE if getattr(options, name)]
    if options.idle:
        _refuse_with_idle(options, filters)
        options.listed = "idle-jobs"
    if not filters:
        return list_(options)
    if asks_a_server(options):
        refuse_with_server(options, *_OF_STORE)
    for name in ("model", "node", "since"):
        if getattr(options, name):
            raise SettingsError(
                f"--{name} does not go with what else chooses or orders jobs",
                f"Leave --{name} out, or {', '.join(f'--{word}' for word in _OF_STORE)}.",
            )
    fields = tuple((name, word) for name in JOB_FIELDS if (word := getattr(options, name)))
    query = JobFilter(fields=fields, search=options.search, running=options.running)
    if options.by == "application" and (options.use or options.sort):
        raise SettingsError(
            "applications have no --use and no order of their own",
            "Leave --use and --sort out, or list jobs.",
        )
    empty_text = LISTINGS["jobs"].empty if query == JobFilter() else "No row is like that."
    kind: type[Any] = JobRow
    with open_for_reading(settings_of(options)) as store:
        reader, order = store.reader, JOB_ORDERS[options.sort or "name"]
        rows: list[Any]
        if options.by == "application":
            since = running_since(reader, partial(present, reader))
            kind = ApplicationRow
            rows = list(application_rows(_matches(reader, query), running_since=since))
        elif options.use:
            kind, rows = UsedJobRow, [_used_row(used) for used in _used_jobs(reader, query, order)]
        elif options.sort:
            rows = [job_row(used.job) for used in _used_jobs(reader, query, order)]
        else:
            rows = [job_row(job) for job in _matches(reader, query)]
        empty = "" if rows else empty_message(reader, empty_text)
    documents = [asdict(row) for row in rows]
    print_rows(documents, options.format, columns=columns_of(kind), empty=empty)
    return 0


def _refuse_with_idle(options: argparse.Namespace, filters: list[str]) -> None:
    others = [f"--{name}" for name in filters] + ["--by application"] * (
        options.by == "application"
    )
    if others:
        raise SettingsError(f"--idle does not go with {others[0]}", "Leave one of them out.")


def _matches(reader: StoreReader, query: JobFilter) -> Iterable[Job]:
    if query == JobFilter():
        return reader.jobs()
    return [used.job for used in _used_jobs(reader, query, JOB_ORDERS["name"])]


def _used_jobs(reader: StoreReader, query: JobFilter, order: str) -> Iterable[JobUse]:
    """Return these jobs with what they held in the day before the newest sample."""
    end = reader.latest_sample_at() or present(reader)
    return reader.job_page(
        query,
        start=end - timedelta(days=1),
        end=end,
        running_since=running_since(reader, partial(present, reader)),
        order=order,
        most=_MAX_ROWS,
    ).rows


def _used_row(used: JobUse) -> UsedJobRow:
    return UsedJobRow(
        **asdict(job_row(used.job)),
        gpu_hours=used.gpu_hours,
        utilization_ratio=used.utilization_ratio,
        memory_mib=used.memory_mib,
        energy_kwh=used.energy_kwh,
    )


def list_(options: argparse.Namespace) -> int:
    """List what the command is called after; 3 where something is urgent that nobody took on."""
    rows, empty = rows_of(options, options.listed, selection_of(options))
    rows = rows[: vars(options).get("limit")]
    columns = LISTINGS[options.listed].table_columns()
    print_rows([asdict(row) for row in rows], options.format, columns=columns, empty=empty)
    return FINDINGS * any(getattr(row, "acknowledged_by", None) == "" for row in rows)


def queue(options: argparse.Namespace) -> int:
    """List the jobs that wait, or show one with what would start it sooner."""
    if not options.job:
        return list_(options)
    selectors = selection_of(options).model_dump(exclude_defaults=True)
    if name := next(iter(selectors), ""):
        raise SettingsError(
            f"--{name} {selectors[name]} chooses among jobs, and {options.job} is one",
            f"Leave --{name} or {options.job} out.",
        )
    answer = answer_of(options, WAIT, job=options.job)
    if options.format == "json":
        print_json(answer)
        return 0
    if options.format == "table":
        job = answer.job
        wait = (
            "how much longer is unknown"
            if job.more_minutes is None
            else f"{job.more_minutes:.3g} ({job.more_minutes_q10:.3g}–{job.more_minutes_q90:.3g}) "
            "min more"
        )
        say(
            f"{job.job_id} waits for {job.gpus} × {job.gpu_model or 'any GPU'} in {job.queue}, "
            f"behind {count_text(job.jobs_ahead, 'job')} ({job.reason or 'no reason told'}): "
            f"{wait}; {job.rests_on}."
        )
    rows = list(map(asdict, answer.sooner))
    empty = "No change is known that would start it sooner."
    print_rows(rows, options.format, columns=columns_of(SoonerRow), empty=empty)
    return 0


def settings(options: argparse.Namespace) -> int:
    """List every setting in force and where it came from."""
    print_rows(
        setting_rows(settings_of(options)),
        options.format,
        columns=("name", "value", "origin", "meaning"),
        empty="",
    )
    return 0


def audit_verify(options: argparse.Namespace) -> int:
    """Check the chain and its rows; 3 when one was edited, removed or reordered.

    The head it prints, kept elsewhere, proves later that the end was not cut off.
    """
    with open_for_reading(settings_of(options)) as store:
        entries = store.reader.audit()
        problems = store.reader.verify_audit(head=options.head)
    for problem in problems:
        say(problem)
    if not problems:
        say(f"{count_text(len(entries), 'entry', 'entries')}, chain intact.")
        if entries:
            say(f"head {entries[-1].entry_hash}")
    return FINDINGS if problems else 0
