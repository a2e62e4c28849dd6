"""The bar of idle GPUs: what can be freed now, after a change, and what is needed; by job."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pandas as pd
import streamlit as st

from dashboard.accounting.cost.prices import price_list
from dashboard.accounting.savings.idle_bridge import IDLE_COLUMNS, IdleSum, Segment, idle_rows
from dashboard.accounting.savings.ledger import sum_of
from dashboard.charts.palette import FREE_COLOUR, IDLE, PROPOSED
from dashboard.common.figures import range_text
from dashboard.decisions.findings import OPEN
from dashboard.web.access.identity import current_role, current_world
from dashboard.web.findings.finding_rows import InboxRow
from dashboard.web.frame.page import money_note, old_readings, show_link, table, tense
from dashboard.web.frame.scope import scoped_jobs
from data.base.counts import count_text
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.plans import Plan

_SHOWN, _LEAST, _DAY_HOURS = 0.05, 0.005, 24
_STRIPES = f"repeating-linear-gradient(135deg, {PROPOSED} 0 6px, #e6bcd3 6px 12px)"
_SEGMENT_FILLS = {
    Segment.NOW: PROPOSED,
    Segment.AFTER: _STRIPES,
    Segment.NEEDED: IDLE,
    Segment.UNKNOWN: FREE_COLOUR,
}
_BAR = "display:flex;gap:2px;height:44px;border-radius:6px;overflow:hidden"
_PART = (
    "display:flex;align-items:center;min-width:44px;padding-left:8px;color:#111;"
    "font-weight:600;text-decoration:none"
)


def worth_a_day(rows: Iterable[InboxRow]) -> str:
    """Return the joint savings a day of the findings to decide on, in words; advice is in no sum.

    Every page and the bar of idle GPUs say this figure: it is the sum of the column of money.
    """
    total = sum_of([row.worth for row in rows if row.worth and row.status.state == OPEN])
    return f"{range_text(total)} a day{money_note()}" if total else ""


def plan_in_scope() -> Plan | None:
    """Return the latest plan with the jobs that are looked at.

    None for owners, before the first one, and where nothing is proposed of old readings.
    """
    plan, jobs = current_world().reader.latest_plan(), scoped_jobs()
    # An owner sees their own jobs; the plan is of everybody's.
    if plan is None or current_role() == "owner" or old_readings():
        return None
    if jobs is None:
        return plan
    mine = tuple(job for job in plan.jobs if job.job_id in jobs)
    return replace(plan, jobs=mine, unread_gpus=0.0, unread_jobs=0)


def idle_answer(total: IdleSum) -> str:
    """Return in words what of the idle GPUs can be freed."""
    after = sum(gpus for _change, gpus, _jobs in total.after)
    further = f", {after:,.1f} after a change" if after >= _SHOWN else ""
    return (
        f"of {total.held:,.1f} GPUs in the plan, {total.idle:,.1f} {tense('are', 'were')} "
        f"forecast to be idle: {total.freed:,.1f} can be freed now{further}"
    )


def show_idle_bar(plan: Plan, findings: Sequence[InboxRow]) -> None:
    """Show the bar, each part with its GPUs, jobs and worth; a part opens its jobs.

    The worth of what can be freed now is that of the findings to decide on, of the others rent.
    """
    rows = idle_rows(plan)
    models = {job.job_id: job.now.gpu_model for job in plan.jobs}
    prices = price_list(current_world().settings.settings, load_gpu_catalogue())
    day = {"start": plan.created_at, "end": plan.created_at + pd.Timedelta(days=1)}
    parts = {segment: sum(row.part(segment) for row in rows) for segment in Segment}
    parts[Segment.UNKNOWN] += plan.unread_gpus
    amounts = {segment: gpus for segment, gpus in parts.items() if gpus >= _SHOWN}
    if not amounts:
        return
    bar = "".join(
        f'<a href="findings?idle={segment}" aria-label="{gpus:.1f} GPUs {segment.words}" '
        f'style="{_PART};background:{_SEGMENT_FILLS[segment]};flex:{gpus:.3f} 1 0">{gpus:.1f}</a>'
        for segment, gpus in amounts.items()
    )
    st.html(f'<div style="{_BAR}">{bar}</div>')
    with st.container(horizontal=True, key="idle-parts"):
        for segment, gpus in amounts.items():
            mine = [row for row in rows if row.part(segment) >= _LEAST]
            hours: dict[str, float] = defaultdict(float)
            for row in mine:
                hours[models[row.job]] += _DAY_HOURS * row.part(segment)
            worth = f"rent {prices.rent(hours.items(), **day).text(plan.currency)} a day"
            if segment is Segment.NOW:
                worth = f"findings worth {worth_a_day(findings) or 'nothing'}"
            with st.container(gap=None, width=300):
                show_link("findings", f"{segment.words} · {gpus:,.1f} GPUs", idle=segment)
                st.caption(f"{count_text(len(mine), 'job')} · {worth}")
    st.caption(
        f"GPUs that jobs hold and are forecast not to use, mean of the plan of "
        f"{plan.created_at:%Y-%m-%d %H:%M} UTC."
    )


def show_idle_jobs(plan: Plan) -> None:
    """Show the jobs of the part that the address names, and why each is as it is."""
    word = st.query_params.get("idle", "")
    if word not in list(Segment):
        return
    segment = Segment(word)
    st.header(f"Idle GPUs: {segment.words}")
    rows = [row for row in idle_rows(plan) if row.part(segment) >= _LEAST]
    # Words first: a table that is wider than the page hides its last columns.
    order = [*IDLE_COLUMNS[:3], *IDLE_COLUMNS[7:], *IDLE_COLUMNS[3:7]]
    frame = pd.DataFrame(rows, columns=list(IDLE_COLUMNS))[order]
    amounts = {name: f"{name} (GPUs)" for name in IDLE_COLUMNS[1:7]}
    table(frame, "idle", headings=amounts, links={"job": "jobs?job="}, most=8)
    show_link("findings", "Close", icon=":material/close:", idle="")
