"""A recommendation as a card: what, for whom, now to proposed, savings, risk, decision.

Each card is a fragment: opening its evidence or typing a comment leaves the rest of the page alone.
"""

from typing import Literal

import streamlit as st

from dashboard.web.decision_panel import decision_panel
from dashboard.web.evidence import show_evidence
from dashboard.web.page import plain, range_text
from data.store import StoredRecommendation

TITLES = {
    "fewer-gpus": "Fewer GPUs",
    "smaller-gpu": "Smaller GPU",
    "mig-slice": "MIG slice",
    "power-cap": "Power cap",
    "reclaim": "Reclaim idle GPU",
}
_COLOURS: dict[str, Literal["violet", "green", "blue", "red", "gray"]] = {
    "proposed": "violet",
    "approved": "green",
    "written": "blue",
    "rejected": "red",
    "applying": "blue",
    "applied": "green",
    "verified": "green",
    "kept": "green",
    "failing": "red",
    "fell-short": "red",
    "refused": "red",
    "unknown": "red",
}


@st.fragment
def card(stored: StoredRecommendation, place: str) -> None:
    """Show one recommendation with its buttons; `place` keeps the keys of two pages apart."""
    one = stored.recommendation
    key = f"{place}-{one.recommendation_id}"
    with st.container(border=True, key=f"card-{key}"):
        title, state = st.columns([4, 1])
        title.markdown(
            f"**{TITLES[one.action]}** · {plain(one.job_id)}  \n"
            f"{plain(one.now.describe())} → **{plain(one.proposed.describe())}**"
        )
        by = f" by {stored.decided_by}" if stored.decided_by else ""
        with state.container(horizontal=True, horizontal_alignment="right"):
            st.badge(plain(f"{stored.state}{by}"), color=_COLOURS.get(stored.state, "gray"))
        _savings(stored)
        remark = f" “{stored.comment}”" if stored.comment else ""
        st.caption(
            plain(
                f"Risk {one.risk}. Confidence {one.confidence}. "
                f"Expires {one.expires_at:%Y-%m-%d %H:%M} UTC. {one.recommendation_id}{remark}"
            )
        )
        why = st.expander("Why", key=f"{key}-why", on_change="rerun")
        if why.open:
            with why:
                show_evidence(one, key)
        decision_panel(stored, key)


def _savings(stored: StoredRecommendation) -> None:
    savings = stored.recommendation.savings
    shown = (
        ("cost", savings.cost),
        ("GPU-hours", savings.gpu_hours),
        ("energy", savings.energy_kwh),
        ("emissions", savings.emissions_kgco2e),
    )
    for cell, (label, value) in zip(st.columns(4), shown, strict=True):
        with cell.container(gap=None):
            st.caption(f"saves {label} in {savings.horizon_hours:g} h")
            st.markdown(plain(range_text(value)))
