"""The portfolio: what is proposed, what became of it, and the decision."""

from functools import partial

import pandas as pd
import streamlit as st

from dashboard.charts.idle_waterfall import idle_waterfall
from dashboard.charts.plan_steps import plan_steps
from dashboard.idle_sum import IDLE_COLUMNS, idle_rows, idle_sum
from dashboard.web.boards import boards_of
from dashboard.web.cards import card
from dashboard.web.identity import current_role, signed_in
from dashboard.web.page import chart, empty_state, finding, number, plain, table, tense
from dashboard.web.session import current_world
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.decisions import FOR_MEMORY
from data.records.findings import number_of, reference
from data.records.lifecycle import OPEN, State
from data.store import StoredRecommendation
from planner.recommendations.portfolio import worth_of

_SHOWN = 20
_SHOWN_ROWS = 200
_WORTH_A_WORD = 0.5
_ALWAYS = frozenset({State.PROPOSED, State.APPROVED, State.APPLIED, State.WRITTEN, State.REJECTED})


def _waiting(count: int) -> str:
    noun = "recommendation" if count == 1 else "recommendations"
    waits = "waits" if count == 1 else "wait"
    return f"{count} {noun} {tense(f'{waits} for a decision', 'would have been made')}"


def _memory(count: int) -> str:
    """Say how many are there to keep a job from running out of memory: no saving counts them."""
    if not count:
        return ""
    what = "1 of them keeps a job" if count == 1 else f"{count} of them keep jobs"
    return f" {what} from running out of GPU memory."


def _taken(cost: float, currency: str) -> str:
    """Say why the sum may be less than one row: some changes serve jobs, and cost."""
    if cost < _WORTH_A_WORD:
        return ""
    return f", {cost:.0f} {currency} already taken off for changes that serve jobs and cost"


def visible(found: tuple[StoredRecommendation, ...]) -> tuple[StoredRecommendation, ...]:
    """Return what the person may see: an owner sees their own jobs only."""
    decision_service = current_world().decision_service
    person = signed_in(decision_service.settings().access)
    return decision_service.visible(person, found) if person else ()


reader = current_world().reader
energy = current_world().settings.settings.energy
if not empty_state():
    stored = visible(reader.recommendations(now=current_world().clock()))
    waiting = [one for one in stored if one.state == "proposed"]
    urgent = [one for one in waiting if one.recommendation.action in FOR_MEMORY]
    worth, taken = worth_of(one.recommendation for one in waiting)
    currency = next(
        (
            one.recommendation.savings.cost.unit
            for one in waiting
            if one.recommendation.savings.cost
        ),
        "",
    )
    hours = max((row.recommendation.savings.horizon_hours for row in waiting), default=0)
    finding(
        f"{_waiting(len(waiting))}; together they {tense('would save', 'would have saved')} "
        f"{worth:.0f} {currency} over the {tense('next ', '')}{hours:g} h"
        f"{tense('', ' after')}{_taken(taken, currency)}.{_memory(len(urgent))}"
        if waiting
        else tense("No recommendation waits for a decision.", "Nothing would be recommended.")
    )
    named = number_of(st.query_params.get("finding", ""))
    asked_for = [one for one in stored if named and one.finding == named]
    if asked_for:
        card(max(asked_for, key=StoredRecommendation.meant), "asked")
    elif named:
        st.write(f"{reference(named)} is not known here, or no recommendation of it is kept.")
    plan = reader.latest_plan()
    # An owner sees their own jobs; the plan is of everybody's.
    if plan is not None and plan.jobs and current_role() != "owner":
        boards = partial(boards_of, catalogue=load_gpu_catalogue())
        draw = partial(plan_steps, plan, boards)
        chart(reader.remember(("plan steps", plan.plan_id), draw), "plan")
        today = tense("today's allocation", "the allocation then")
        st.caption(
            f"The plan of {plan.created_at:%Y-%m-%d %H:%M} UTC over its horizon: "
            f"{number(plan.cost, plan.currency)} instead of "
            f"{number(plan.cost_of_now, plan.currency)} for {today}, with a certified "
            f"gap of {100 * plan.gap_ratio:.2f} % to the lower bound."
        )
    moving = [one for one in stored if one.state in OPEN]
    if moving:
        st.subheader("Under way")
    for one in moving:
        card(one, "moving")
    present = {one.state for one in stored}
    states = [str(one) for one in State if one in present or one in _ALWAYS]
    asked = st.query_params.get("state", "proposed")
    state = st.segmented_control(
        "State", states, default=asked if asked in states else "proposed", key="state"
    )
    chosen = [one for one in stored if one.state == (state or "proposed") and one.state not in OPEN]
    if not chosen:
        st.write(f"None is {state or 'proposed'}.")
    st.query_params["state"] = state or "proposed"
    for one in chosen[:_SHOWN]:
        card(one, "list")
    if len(chosen) > _SHOWN:
        st.caption(f"The first {_SHOWN} of {len(chosen)} as cards; all are in the table.")
    if stored:
        st.subheader("All")
        table(
            pd.DataFrame(
                [
                    {
                        "finding": one.reference,
                        "id": one.recommendation.recommendation_id,
                        "state": one.state,
                        "action": one.recommendation.action.spec.title,
                        "job": one.recommendation.target,
                        "now": one.recommendation.now.describe(),
                        "proposed": one.recommendation.summary,
                        "saves": one.recommendation.savings.cost.central
                        if one.recommendation.savings.cost
                        else None,
                        "risk": str(one.recommendation.risk),
                        "decided by": one.decided_by,
                        "comment": one.comment,
                    }
                    for one in stored
                ]
            ),
            "recommendations",
            headings={"saves": f"saves ({currency or energy.currency})"},
        )
    if plan is not None and current_role() != "owner":
        idle = idle_sum(plan)
        if sentence := idle.sentence():
            st.subheader("From idle to freed")
            st.write(plain(sentence))
            chart(idle_waterfall(idle), "idle")
            with st.expander("Each job, and why what stays idle stays"):
                rows = pd.DataFrame(idle_rows(plan), columns=list(IDLE_COLUMNS))
                amounts = {name: f"{name} (GPUs)" for name in IDLE_COLUMNS[1:6]}
                table(rows[:_SHOWN_ROWS], "idle", every=lambda: rows, headings=amounts)
                if len(rows) > _SHOWN_ROWS:
                    st.caption(f"The first {_SHOWN_ROWS} of {len(rows)}; the files hold all.")
