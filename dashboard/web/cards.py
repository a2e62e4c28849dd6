"""A recommendation as a card: what, for whom, now to proposed, savings, risk, decision.

Each card is a fragment: opening its evidence or typing a comment leaves the rest of the page alone.
"""

from typing import Literal

import streamlit as st

from dashboard.figure_text import range_text
from dashboard.web.decision_panel import decision_panel
from dashboard.web.evidence import show_evidence
from dashboard.web.page import plain, tense
from data.records.decisions import Recommendation
from data.store import StoredRecommendation

_COLOURS: dict[str, Literal["violet", "green", "blue", "red", "gray"]] = {
    "proposed": "violet",
    "approved": "green",
    "written": "blue",
    "rejected": "red",
    "snoozed": "gray",
    "applying": "blue",
    "applied": "green",
    "verified": "green",
    "kept": "green",
    "failing": "red",
    "fell-short": "red",
    "refused": "red",
    "unknown": "red",
}
_NOTICEABLE_HOURS = 0.01


@st.fragment
def card(stored: StoredRecommendation, place: str) -> None:
    """Show one recommendation with its buttons; `place` keeps the keys of two pages apart."""
    one = stored.recommendation
    key = f"{place}-{one.recommendation_id}"
    with st.container(border=True, key=f"card-{key}"):
        title, state = st.columns([4, 1])
        title.markdown(
            f"{stored.reference} · **{one.action.spec.title}** · {plain(one.target)}  \n"
            f"{plain(one.now.describe())} → **{plain(one.summary)}**"
        )
        by = f" by {stored.decided_by}" if stored.decided_by else ""
        with state.container(horizontal=True, horizontal_alignment="right"):
            st.badge(plain(f"{stored.state}{by}"), color=_COLOURS.get(stored.state, "gray"))
        _savings(stored)
        effect = effect_text(one)
        if effect:
            st.caption(plain(effect))
        remark = f" “{stored.comment}”" if stored.comment else ""
        st.caption(
            plain(
                f"Risk {one.risk}. Confidence {one.confidence}. "
                f"{tense('Expires', 'Would have expired on')} {one.expires_at:%Y-%m-%d %H:%M} UTC. "
                f"{one.recommendation_id}{remark}"
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
    market = savings.market_emissions_kgco2e
    for cell, (label, value) in zip(st.columns(4), shown, strict=True):
        with cell.container(gap=None):
            st.caption(
                f"{tense('saves', 'would have saved')} {label} in {savings.horizon_hours:.4g} h"
            )
            st.markdown(plain(range_text(value)))
            if label == "emissions" and market is not None:
                st.caption(plain(f"location-based; market-based {range_text(market)}"))


def effect_text(one: Recommendation) -> str:
    """Return when a change holds, what making it takes, and by how much work is done later."""
    found = []
    if one.transition is not None and one.transition.seconds.high > 0:
        seconds = one.transition.seconds
        parts = ", ".join(what for what, _seconds in one.transition.parts)
        found.append(
            f"The change takes {seconds.central:.0f} ({seconds.low:.0f}–{seconds.high:.0f}) s "
            f"({parts}); it is counted in the savings."
        )
    if one.transition is not None and one.transition.queue:
        found.append(f"Expected wait in the queue {one.transition.queue}.")
    if one.delay_hours is not None:
        later = one.delay_hours
        found.append(
            f"Its work may be done {later.central:.2g} ({later.low:.2g}–{later.high:.2g}) h later."
            if later.high >= _NOTICEABLE_HOURS
            else "Its work is done as early as now."
        )
    return " ".join(found)
