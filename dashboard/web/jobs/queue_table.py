"""The table of the jobs that wait for GPUs."""

from collections.abc import Sequence
from dataclasses import asdict

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.resources.queue_rows import QueueRow, WaitQuery, wait_document
from dashboard.resources.resource import View
from dashboard.web.access.identity import current_world
from dashboard.web.frame.page import finding, number, opener_of_rows, table, tense
from data.base.counts import count_text
from data.base.errors import NotKnownError
from data.facts.quotas import Quota

_OF_SOONER = {
    "more_minutes": "more, min",
    "more_minutes_q10": "more, min, q10",
    "more_minutes_q90": "more, min, q90",
}


def show_queue(rows: Sequence[QueueRow], answer: DeltaGenerator) -> None:
    """Show who waits, in order of submission within each queue; the answer above the filters."""
    with answer:
        finding(_answer(rows))
    if not rows:
        return
    table(
        pd.DataFrame([_cells(row) for row in rows]),
        "queue",
        links={"job": "jobs?job="},
        opens=opener_of_rows("job", [{"job": row.job_id} for row in rows]),
    )
    st.caption(
        "Ahead are jobs that were submitted earlier to the same queue; its scheduler may order "
        "them otherwise. How much longer a job waits is forecast from past starts of its queue: "
        "the median, and a band that should hold four of five. An empty cell is unknown."
    )
    if any(row.elsewhere for row in rows):
        st.caption(
            "Free elsewhere: GPUs of the same model in other clusters, less what waits there. "
            "Whether the job can run there, with its data and its rights, its owner knows."
        )


def show_sooner(job_id: str) -> None:
    """Show the changes that would start a waiting job sooner, each with its own wait."""
    world = current_world()
    view = View(reader=world.reader, settings=world.settings.settings, clock=world.clock)
    query = WaitQuery(job=job_id)
    try:
        answer = view.remember(("wait", job_id), lambda: wait_document(view, query))
    except NotKnownError:
        st.write("It does not wait for GPUs any more.")
        return
    if not answer.sooner:
        st.write("No change is known that would start it sooner.")
        return
    table(pd.DataFrame(map(asdict, answer.sooner)), "sooner", headings=_OF_SOONER)
    st.caption("Whether the job's program can do with it, its owner knows.")


def show_quotas(quotas: Sequence[Quota]) -> None:
    """Show what schedulers let their queues hold, where any tells."""
    if not quotas:
        return
    st.header("Quotas")
    rows = pd.DataFrame([_limits(quota) for quota in quotas])
    several = len({quota.source for quota in quotas}) > 1
    table(rows if several else rows.drop(columns="source"), "quotas")
    st.caption(
        "As schedulers enforce them. An empty limit is none; an empty number of what is used or "
        "waits is unknown."
    )


def _limits(quota: Quota) -> dict[str, object]:
    return {
        "kind": str(quota.kind),
        "queue": quota.queue,
        "per": quota.per,
        "resource": quota.resource,
        "flavor": quota.flavor,
        "GPU model": quota.gpu_model,
        "quota": quota.nominal,
        "used": quota.used,
        "may borrow": quota.borrowing_limit,
        "lends": quota.lending_limit,
        "waiting": quota.pending,
        "parent": quota.parent,
        "source": quota.source,
        "as of": quota.observed_at,
    }


def _answer(rows: Sequence[QueueRow]) -> str:
    if not rows:
        return f"No job {tense('waits', 'waited')} for GPUs."
    count = count_text(
        len(rows), tense("job waits", "job waited"), tense("jobs wait", "jobs waited")
    )
    hours = [row.waited_hours for row in rows if row.waited_hours is not None]
    longest = f", the longest for {number(max(hours), 'h')} so far" if hours else ""
    return f"{count} for {count_text(sum(row.gpus for row in rows), 'GPU')}{longest}."


def _cells(row: QueueRow) -> dict[str, object]:
    return {
        "job": row.job_id,
        "queue": row.queue,
        "GPUs": row.gpus,
        "GPU model": row.gpu_model,
        "waited, h": row.waited_hours,
        "waits for": row.reason,
        "quota": row.quota,
        "free elsewhere": row.elsewhere,
        "jobs ahead": row.jobs_ahead,
        "GPUs ahead": row.gpus_ahead,
        "more, min": row.more_minutes,
        "more, min, q10": row.more_minutes_q10,
        "more, min, q90": row.more_minutes_q90,
        "forecast": row.rests_on,
        "user": row.user,
        "team": row.account,
    }
