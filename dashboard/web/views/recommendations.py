"""The portfolio: what is proposed, what became of it, and the decision."""

import pandas as pd
import streamlit as st

from dashboard.web.cards import card
from dashboard.web.page import empty_state, finding, table
from dashboard.web.session import current_world
from data.clock import utc_now

_SHOWN = 20
reader = current_world().store.reader
if not empty_state():
    stored = reader.recommendations(now=utc_now())
    waiting = [one for one in stored if one.state == "proposed"]
    worth = sum(
        one.recommendation.savings.cost.central
        for one in waiting
        if one.recommendation.savings.cost
    )
    currency = next(
        (
            one.recommendation.savings.cost.unit
            for one in waiting
            if one.recommendation.savings.cost
        ),
        "",
    )
    finding(
        f"{len(waiting)} recommendations wait for a decision; together they would save "
        f"{worth:.0f} {currency} over the next day."
        if waiting
        else "No recommendation waits for a decision."
    )
    states = ["proposed", "approved", "written", "rejected", "expired", "superseded"]
    asked = st.query_params.get("state", "proposed")
    state = st.segmented_control(
        "State", states, default=asked if asked in states else "proposed", key="state"
    )
    chosen = [one for one in stored if one.state == (state or "proposed")]
    if not chosen:
        st.write(f"None is {state or 'proposed'}.")
    for one in chosen[:_SHOWN]:
        card(one, "list")
    if stored:
        st.subheader("All")
        table(
            pd.DataFrame(
                [
                    {
                        "id": one.recommendation.recommendation_id,
                        "state": one.state,
                        "action": str(one.recommendation.action),
                        "job": one.recommendation.job_id,
                        "now": one.recommendation.now.describe(),
                        "proposed": one.recommendation.proposed.describe(),
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
        )
