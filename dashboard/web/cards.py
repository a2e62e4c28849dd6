"""A recommendation as a card: what, for whom, now to proposed, savings, risk, decision.

Each card is a fragment: opening its evidence or typing a comment leaves the rest of the page alone.
"""

from collections.abc import Callable
from typing import Literal

import streamlit as st

from dashboard.web.evidence import show_evidence
from dashboard.web.page import plain, range_text
from dashboard.web.session import current_world
from data.errors import TrimtabError
from data.records.decisions import Decision, Recommendation
from data.store import StoredRecommendation

TITLES = {
    "fewer-gpus": "Fewer GPUs",
    "smaller-gpu": "Smaller GPU",
    "mig-slice": "MIG slice",
    "power-cap": "Power cap",
    "co-locate": "Share a board",
    "reclaim": "Reclaim idle GPU",
    "shift-in-time": "Wait for cheaper or cleaner hours",
    "scale-out": "More GPUs before a peak",
    "time-limit": "Shorter time limit",
    "add-gpus": "More boards needed",
    "consolidate": "Power a node down",
}
_COLOURS: dict[str, Literal["violet", "green", "blue", "red", "gray"]] = {
    "proposed": "violet",
    "approved": "green",
    "written": "blue",
    "rejected": "red",
}
_PERSON = "person"
_NOTICEABLE_HOURS = 0.01


@st.fragment
def card(stored: StoredRecommendation, place: str) -> None:
    """Show one recommendation with its buttons; `place` keeps the keys of two pages apart."""
    one = stored.recommendation
    key = f"{place}-{one.recommendation_id}"
    with st.container(border=True, key=f"card-{key}"):
        title, state = st.columns([4, 1])
        title.markdown(
            f"**{TITLES[one.action]}** · {plain(one.target)}  \n"
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
                f"Expires {one.expires_at:%Y-%m-%d %H:%M} UTC. {one.recommendation_id}{remark}"
            )
        )
        why = st.expander("Why", key=f"{key}-why", on_change="rerun")
        if why.open:
            with why:
                show_evidence(one, key)
        if stored.state == "proposed":
            _decide(stored, key)
        elif stored.state in ("approved", "written"):
            _change(stored, key)


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
            st.caption(f"saves {label} in {savings.horizon_hours:g} h")
            st.markdown(plain(range_text(value)))
            if label == "emissions" and market is not None:
                st.caption(plain(f"location-based; market-based {range_text(market)}"))


def effect_text(one: Recommendation) -> str:
    """Give when a change holds, what making it takes, and by how much work is done later."""
    found = []
    if one.transition is not None and one.transition.seconds.high > 0:
        seconds = one.transition.seconds
        parts = ", ".join(what for what, _seconds in one.transition.parts)
        found.append(
            f"The change takes {seconds.central:.0f} ({seconds.low:.0f}–{seconds.high:.0f}) s "
            f"({parts}); it is counted in the savings."
        )
    if one.delay_hours is not None:
        later = one.delay_hours
        found.append(
            f"Its work may be done {later.central:.2g} ({later.low:.2g}–{later.high:.2g}) h later."
            if later.high >= _NOTICEABLE_HOURS
            else "Its work is done as early as now."
        )
    return " ".join(found)


def _person(key: str) -> str:
    """Ask who decides, once per session: there is no sign-in yet."""
    given: str = st.text_input("Your name", st.session_state.get(_PERSON, ""), key=f"{key}-by")
    return given


def _decide(stored: StoredRecommendation, key: str) -> None:
    """Ask for the decision; from the click until the store has answered the buttons are off."""
    waiting = f"{key}-waiting"
    pending: Decision | None = st.session_state.get(waiting)
    name, comment, yes, no = st.columns([2, 3, 1, 1], vertical_alignment="bottom")
    with name:
        by = _person(key)
    remark = comment.text_input("Comment", key=f"{key}-comment")
    for cell, label, decision in (
        (yes, "Approve", Decision.APPROVED),
        (no, "Reject", Decision.REJECTED),
    ):
        cell.button(
            label,
            key=f"{key}-{decision}",
            width="stretch",
            disabled=pending is not None,
            on_click=st.session_state.__setitem__,
            args=(waiting, decision),
        )
    if pending is not None:
        del st.session_state[waiting]
        if _succeeds(lambda: current_world().decide(_digest(stored), pending, by, remark), key):
            st.session_state[_PERSON] = by
        st.rerun()
    _last_refusal(key)


def _change(stored: StoredRecommendation, key: str) -> None:
    """Show the exact change, and write it to its file on demand."""
    with st.expander("Change", expanded=stored.state == "approved"):
        try:
            st.code(current_world().preview(_digest(stored)), language=None)
        except TrimtabError as error:
            st.warning(plain(str(error)))
            return
        if stored.state != "approved":
            return
        name, write = st.columns([2, 5], vertical_alignment="bottom")
        with name:
            by = _person(f"{key}-write")
        if write.button("Write the change file", key=f"{key}-write"):
            _succeeds(lambda: current_world().write_change(_digest(stored), by), key)
            st.rerun()
        _last_refusal(key)


def _digest(stored: StoredRecommendation) -> str:
    return stored.recommendation.digest


def _succeeds(action: Callable[[], object], key: str) -> bool:
    """Run a command; keep its refusal, so that it is still there after the page has been drawn."""
    try:
        action()
    except TrimtabError as error:
        st.session_state[f"{key}-refused"] = str(error)
        return False
    return True


def _last_refusal(key: str) -> None:
    refused = st.session_state.pop(f"{key}-refused", "")
    if refused:
        st.error(plain(refused))
