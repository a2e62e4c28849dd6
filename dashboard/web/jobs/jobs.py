"""Every job, sorted by waste: filtered, sorted and cut into pages by the store."""

from dataclasses import replace
from datetime import timedelta

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.accounting.cost.applications import application_of
from dashboard.common.escaping import markdown
from dashboard.resources.listings import running_since
from dashboard.resources.queue_rows import queue_rows
from dashboard.web.access.identity import current_world
from dashboard.web.frame.address_filters import ALL, choose, choose_page, held
from dashboard.web.frame.page import empty_state, finding, goes_to, number, table, tense
from dashboard.web.frame.scope import current_scope
from dashboard.web.jobs.queue_table import show_queue, show_quotas
from data.base.counts import count_text
from data.facts.job_pages import JobFilter, JobPage, JobUse
from data.store import StoredRecommendation
from data.store.facts.job_sql import ORDERS
from data.store.handles.tenant_reader import OwnedReader

_PAGE = 100
_EVERY = 1_000_000
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


def rows_of(page: JobPage, proposed: dict[str, StoredRecommendation]) -> pd.DataFrame:
    """Return a page of jobs as a table; what was never reported stays empty."""
    return pd.DataFrame([row_of(row, proposed) for row in page.rows])


def row_of(used: JobUse, proposed: dict[str, StoredRecommendation]) -> dict[str, object]:
    """Return one job as a row."""
    job, facts = used.job, used.job.scheduler
    stored = proposed.get(job.job_id)
    return {
        "job": job.job_id,
        "idle GPU-hours, 24 h": used.idle_gpu_hours,
        "GPU-hours, 24 h": used.gpu_hours,
        "kWh, 24 h": used.energy_kwh,
        "state": str(facts.state) if facts else "",
        "GPUs": job.gpu_count,
        "GPU model": f"{job.gpu_model} {job.mig_profile}".rstrip(),
        "finding": stored.reference if stored else "",
        "proposed": stored.recommendation.action.spec.title if stored else "",
        "namespace": job.namespace,
        "team": facts.account if facts else "",
        "application": application_of(job),
        "user": facts.user if facts else "",
        "owner": job.owner,
        "kind": str(job.kind),
        "platform": str(job.platform),
        "name": job.name,
        "last seen": job.last_seen_at,
    }


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


def ask(filters: JobFilter, *, most: int, order: str = "name", skipped: int = 0) -> JobPage:
    """Return a page of the jobs that fit, with what they held in the last day."""
    end = reader.latest_sample_at() or world.clock()
    return reader.job_page(
        filters,
        start=end - timedelta(days=1),
        end=end,
        running_since=running_since(reader, world.clock),
        order=order,
        most=most,
        skipped=skipped,
    )


def show_jobs(filters: JobFilter, order: str, answer: DeltaGenerator) -> None:
    """Show the jobs that fit, the answer above their filters."""
    proposed = {
        stored.recommendation.job_id: stored
        for stored in reader.recommendations(now=world.clock())
        if stored.state in ("proposed", "approved")
    }
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
        table(
            rows_of(page, proposed),
            "jobs",
            links={"job": "jobs?job=", "finding": "findings?finding="},
            opens=goes_to("job", [{"job": used.job.job_id} for used in page.rows]),
            every=lambda: rows_of(ask(filters, order=order, most=_EVERY), proposed),
        )
        last = first + len(page.rows)
        st.caption(
            f"{first + 1:,}–{last:,} of {count_text(page_one.found, 'job')}. An empty cell is what "
            "no source reported; the files hold all of them."
        )
    else:
        st.info("No job fits these filters. Clear the search or choose “all” and “ever seen”.")


if not empty_state():
    answer = st.container()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.text_input("Search id, name or owner", key="q", bind="query-params")
        # An owner sees no jobs of others, so no places in line.
        kinds = ["running", *([] if isinstance(reader, OwnedReader) else ["waiting"]), "ever seen"]
        queue = choose("Show", kinds, "show") == "waiting"
        # The queue has an order of its own.
        order = next(iter(ORDERS)) if queue else choose("Largest first by", list(ORDERS), "order")
        filters = job_filter()
    if queue:
        fitting = replace(filters, fields=(*filters.fields, ("state", "pending")), running=False)
        ids = {used.job.job_id for used in ask(fitting, most=_EVERY).rows}
        show_queue([row for row in queue_rows(reader) if row.job_id in ids], answer)
        show_quotas(reader.quotas())
    else:
        show_jobs(filters, order, answer)
