"""Every job, sorted by waste: filtered, sorted and cut into pages by the store."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.accounting.cost.applications import application_of
from dashboard.accounting.cost.prices import price_list
from dashboard.accounting.savings.idle_bridge import keep_reason
from dashboard.common.escaping import markdown
from dashboard.resources.listings import running_since
from dashboard.resources.queue_rows import queue_rows
from dashboard.web.access.identity import current_world
from dashboard.web.findings.idle_bar import plan_in_scope
from dashboard.web.frame.address_filters import ALL, choose, choose_page, held, pick
from dashboard.web.frame.page import empty_state, finding, number, opener_of_rows, table, tense
from dashboard.web.frame.scope import current_scope
from dashboard.web.jobs.queue_table import show_queue, show_quotas
from data.base.counts import count_text
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.job_pages import JobFilter, JobPage, JobUse
from data.records.slow_work import SlowCause, SlowWork
from data.store.facts.job_sql import ORDERS
from data.store.handles.tenant_reader import OwnedReader

_DAY = timedelta(days=1)
_SHOWN = [
    "job",
    "kind",
    "configuration",
    "utilization_ratio",
    "idle GPU-hours, 24 h",
    "memory_ratio",
    "limited by",
    "cost, 24 h",
    "finding",
    "proposed, or why not",
]
"""Columns that fit a page of 1,440 pixels; the files have the others too."""

_PAGE = 100
_MAX_ROWS = 1_000_000
_LABELS = {
    "application": "Application",
    "user": "User",
    "owner": "Owner",
    "state": "State",
    "kind": "Kind",
}
# The page Findings has a choice called state too, and would take this one's over.
_NAMES = {"state": "job-state"}
world = current_world()
reader = world.reader


def rows_of(page: JobPage, page_end: datetime) -> pd.DataFrame:
    """Return a page of jobs as a table; what was never reported stays empty."""
    proposed = {
        stored.recommendation.job_id: stored
        for stored in reader.recommendations(now=world.clock())
        if stored.state in ("proposed", "approved")
    }
    slow = {entry.job_id: entry for entry in reader.slow_work()}
    plan = plan_in_scope()
    reasons = {} if plan is None else {job.job_id: keep_reason(job.idle) for job in plan.jobs}
    prices = price_list(world.settings.settings, load_gpu_catalogue())
    rows = []
    for used in page.rows:
        job, facts = used.job, used.job.scheduler
        finding_of_it, limit = proposed.get(job.job_id), used.memory_total_mib or job.gpu_memory_mib
        model = f"{job.gpu_model} {job.mig_profile}".rstrip()
        hours = [(job.gpu_model, used.gpu_hours or 0.0)]
        rows.append(
            {
                "job": job.job_id,
                "kind": str(job.kind),
                "configuration": f"{job.gpu_count} × {model}",
                "utilization_ratio": used.utilization_ratio,
                "idle GPU-hours, 24 h": used.idle_gpu_hours,
                "memory_ratio": used.memory_mib / limit
                if used.memory_mib is not None and limit
                else None,
                "limited by": limit_of(slow.get(job.job_id)),
                "cost, 24 h": prices.rent(hours, page_end - _DAY, page_end).amount,
                "finding": finding_of_it.reference if finding_of_it else "",
                "proposed, or why not": finding_of_it.recommendation.action.spec.title
                if finding_of_it
                else reasons.get(job.job_id, ""),
                "GPU-hours, 24 h": used.gpu_hours,
                "kWh, 24 h": used.energy_kwh,
                "memory_mib": used.memory_mib,
                "GPUs": job.gpu_count,
                "GPU model": model,
                "state": str(facts.state) if facts else "",
                "namespace": job.namespace,
                "team": facts.account if facts else "",
                "application": application_of(job),
                "user": facts.user if facts else "",
                "owner": job.owner,
                "platform": str(job.platform),
                "name": job.name,
                "last seen": job.last_seen_at,
            }
        )
    return pd.DataFrame(rows)


def limit_of(slow: SlowWork | None) -> str:
    """Return in a few words what limits a job's speed, '' where nobody can tell."""
    if slow is None or slow.cause is SlowCause.UNKNOWN:
        return ""
    if not slow.cause.is_slow:
        return "GPU compute"
    lost = slow.lost_ratio
    return f"{slow.cause}, {100 * lost.central:.0f} % of its time" if lost else str(slow.cause)


def job_filter() -> JobFilter:
    """Ask for the filters of this page, and add those of the header."""
    choices = reader.job_choices()
    lists = {field: [ALL, *choices[field]] for field in _LABELS}
    texts = [held(_NAMES.get(field, field)) for field in lists]
    labels = [
        value for value, values in zip(texts, lists.values(), strict=True) if value in values[1:]
    ]
    with st.popover(markdown(", ".join(labels) or "Filter"), icon=":material/filter_list:"):
        pairs = [
            (field, choose(_LABELS[field], values, _NAMES.get(field, field)))
            for field, values in lists.items()
        ]
    terms = tuple((field, value) for field, value in pairs if value != ALL)
    return JobFilter(
        fields=(*current_scope().chosen.items(), *terms),
        search=st.session_state.get("q", "").strip(),
        running=st.session_state.get("show", "running") == "running",
    )


def newest() -> datetime:
    """Return the end of the day that the table tells of."""
    return reader.latest_sample_at() or world.clock()


def ask(filters: JobFilter, *, most: int, order: str = "name", skipped: int = 0) -> JobPage:
    """Return a page of the jobs that fit, with what they held in the last day."""
    return reader.job_page(
        filters,
        start=newest() - _DAY,
        end=newest(),
        running_since=running_since(reader, world.clock),
        order=order,
        most=most,
        skipped=skipped,
    )


def show_slow(filters: JobFilter, answer: DeltaGenerator) -> None:
    """Show the running jobs that are slow, the one that loses the largest share first."""
    page = ask(filters, most=_MAX_ROWS)
    causes = {entry.job_id: entry for entry in reader.slow_work() if entry.cause.is_slow}

    def lost(used: JobUse) -> float:
        ratio = causes[used.job.job_id].lost_ratio
        return -1.0 if ratio is None else ratio.central

    rows = sorted((used for used in page.rows if used.job.job_id in causes), key=lost, reverse=True)
    with answer:
        of = f"{len(rows):,} of {count_text(page.running, 'running job')}"
        finding(f"{of} {'is' if len(rows) == 1 else 'are'} slow.")
    if rows:
        show_table(replace(page, rows=tuple(rows)), lambda: replace(page, rows=tuple(rows)))
        st.caption("Of jobs whose GPUs tell what keeps them at work. A row opens the job.")


def show_table(page: JobPage, every: Callable[[], JobPage]) -> None:
    """Show a page of jobs; the files hold every one."""
    table(
        rows_of(page, newest())[_SHOWN],
        "jobs",
        headings={
            "cost, 24 h": f"{world.settings.settings.energy.currency}, 24 h",
            "configuration": "GPUs",
        },
        links={"job": "jobs?job=", "finding": "findings?finding="},
        opens=opener_of_rows("job", [{"job": used.job.job_id} for used in page.rows]),
        every=lambda: rows_of(every(), newest()),
    )


def show_jobs(filters: JobFilter, order: str, answer: DeltaGenerator) -> None:
    """Show the jobs that fit, the answer above their filters."""
    page_one = ask(filters, order=order, most=_PAGE)
    with answer:
        suffix = " matching the filters" if filters.fields or filters.search else ""
        running = count_text(
            page_one.running, tense("job runs", "job ran"), tense("jobs run", "jobs ran")
        )
        finding(
            f"{running}{suffix}; "
            f"{number(page_one.idle_gpu_hours, '').strip()} of "
            f"{'their' if filters.running else 'all'} "
            f"{number(page_one.gpu_hours, 'GPU-hours')} of the last 24 h were idle."
        )
    first = choose_page(page_one.found, _PAGE)
    page = ask(filters, order=order, most=_PAGE, skipped=first) if first else page_one
    if page.rows:
        show_table(page, lambda: ask(filters, order=order, most=_MAX_ROWS))
        last = first + len(page.rows)
        st.caption(
            f"{first + 1:,}–{last:,} of {count_text(page_one.found, 'job')}. An empty cell is what "
            "no source reported; the files hold all jobs and columns. Memory is the largest "
            "reading of one GPU in 24 h, as a share of what it has."
        )
    else:
        st.info("No job fits these filters. Clear the search or choose “all” and “ever seen”.")


if not empty_state():
    answer = st.container()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.text_input("Search id, name or owner", key="q", bind="query-params")
        # An owner sees no jobs of others, so no places in line.
        waiting = [] if isinstance(reader, OwnedReader) else ["waiting"]
        show = pick("Show", ["running", *waiting, "slow", "ever seen"], "show")
        # Those that wait and those that are slow have an order of their own.
        is_ordered = show in ("running", "ever seen")
        order = choose("Largest first by", list(ORDERS), "order") if is_ordered else ""
        filters = job_filter()
    if show == "slow":
        show_slow(replace(filters, running=True), answer)
    elif show == "waiting":
        fitting = replace(filters, fields=(*filters.fields, ("state", "pending")), running=False)
        ids = {used.job.job_id for used in ask(fitting, most=_MAX_ROWS).rows}
        show_queue([row for row in queue_rows(reader) if row.job_id in ids], answer)
        show_quotas(reader.quotas())
    else:
        show_jobs(filters, order, answer)
