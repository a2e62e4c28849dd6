"""The inbox: one row a finding, the open one below with its reason, change and decision."""

from functools import partial

import pandas as pd
import streamlit as st

from dashboard.accounting.savings.idle_bridge import idle_sum
from dashboard.web.access.identity import current_world
from dashboard.web.findings.decision_dialog import decision_dialog
from dashboard.web.findings.finding_list import (
    choose_rows,
    every_row,
    findings_grid,
    open_row,
    rows_in_scope,
)
from dashboard.web.findings.finding_panel import finding_panel
from dashboard.web.findings.finding_rows import InboxRow
from dashboard.web.findings.idle_bar import (
    idle_answer,
    plan_in_scope,
    show_idle_bar,
    show_idle_jobs,
    worth_a_day,
)
from dashboard.web.findings.outcome import watch
from dashboard.web.findings.plan import show_plan
from dashboard.web.frame.page import drawer, empty_state, export, finding, old_readings, tense
from data.base.counts import count_text
from data.records.findings import number_of, reference
from data.records.lifecycle import OPEN
from data.records.plans import Plan


def answer(rows: tuple[InboxRow, ...], plan: Plan | None) -> None:
    """Open with what waits for a decision, its worth, and what of the idle GPUs can be freed.

    Advice is in no sum.
    """
    waiting = [row for row in rows if row.state == "to decide"]
    waits = tense(
        f"{count_text(len(waiting), 'finding waits', 'findings wait')} for a decision",
        f"{count_text(len(waiting), 'finding')} would have been made",
    )
    saves = f", together worth {worth}" if (worth := worth_a_day(waiting)) else ""
    total = idle_sum(plan) if plan else None
    idle = f"; {idle_answer(total)}" if total and total.held else ""
    finding(
        f"{waits}{saves}{idle}."
        if waiting
        else "No plan has been made yet, so there is no finding."
        if current_world().reader.last_cycle() is None
        else f"No finding waits for a decision: {count_text(late, 'has', 'have')} expired."
        if (late := sum(row.expired for row in rows)) and old_readings()
        else tense("No finding waits for a decision.", "Nothing would have been recommended.")
    )


def export_of(rows: tuple[InboxRow, ...]) -> pd.DataFrame:
    """Return all findings as the files hold them."""
    return pd.DataFrame(
        [
            {
                "finding": row.reference,
                "id": row.revision.recommendation_id,
                "state": row.status.state,
                "action": row.revision.action.spec.title,
                "target": row.revision.target,
                "namespace": row.revision.namespace,
                "owner": row.owner,
                "since": row.status.finding.opened_at,
                "now": row.revision.now.describe(),
                "proposed": row.revision.summary,
                "money_a_day": row.worth and row.worth.central,
                "money_a_day_low": row.worth and row.worth.low,
                "money_a_day_high": row.worth and row.worth.high,
                "kwh_a_day": row.energy_a_day,
                "risk": str(row.revision.risk),
                "decided_by": row.status.revision.decided_by if row.status.revision else "",
                "comment": row.status.revision.comment if row.status.revision else "",
            }
            for row in rows
        ]
    )


if not empty_state():
    world = current_world()
    every = every_row()
    looked_at = rows_in_scope(every)
    costs = (row.revision.savings.cost for row in every)
    currency = next((cost.unit for cost in costs if cost), world.settings.settings.energy.currency)
    plan = plan_in_scope()
    answer(looked_at, plan)
    if plan is not None:
        show_idle_bar(plan, looked_at)
        show_idle_jobs(plan)
    rows = choose_rows(looked_at) if every else []
    query = st.query_params.get("finding", "")
    if rows:
        selected = findings_grid(rows, currency)
        opened = open_row(rows, every, selected)
    else:
        if every:
            st.info("No finding fits these filters. Clear the search, or choose another state.")
        opened = next((row for row in every if row.number == number_of(query)), None)
    decision_dialog()
    revisions = [row.status.revision for row in every if row.status.revision]
    watch(
        {
            revision.recommendation.digest: revision.state
            for revision in revisions
            if revision.state in OPEN
        }
    )
    if opened is not None:
        finding_panel(opened)
    elif query and (missing := number_of(query)):
        st.write(f"{reference(missing)} is not known here, or no recommendation of it is kept.")
    if every:
        total = count_text(len(every), "finding")
        st.caption(f"{len(rows)} of {total} listed; the files hold all of them.")
        export("findings", lambda: export_of(every))
    latest_plan = world.reader.latest_plan()
    if plan is not None and latest_plan is not None:
        drawer("The plan over time", "over-time", partial(show_plan, latest_plan))
