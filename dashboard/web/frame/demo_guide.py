"""Note of the demo beside every page, and the guide through its first minutes.

The guide reads from the store how far the visitor has come. It ends by itself: once its last step
is done and read, the next page is without it. Nothing is remembered of the visit but that, and
whether it was hidden.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

import streamlit as st

from dashboard.accounting.savings.ledger import ledger, total_gpu_hours
from dashboard.common.escaping import markdown
from dashboard.common.figures import range_text
from dashboard.web.access.identity import current_world
from dashboard.web.frame.page import show_link
from data.base.counts import count_text
from data.base.units import SECONDS_PER_HOUR
from data.records.lifecycle import STANDING_STATES, State
from data.settings.all_settings import Settings

_HIDDEN, _ENDED = "guide-hidden", "guide-ended-on"
_GUIDE_PAGES = ("overview", "findings", "savings")
_LOOK_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the guide, and the tab where it is taken."""

    title: str
    text: str
    view: str
    done: bool


def simulated_note() -> None:
    """Say beside every page that the cluster is simulated, and how fast its time runs."""
    world = current_world()
    if not world.decision_service.settings().changes_simulation:
        return
    text = "**Simulated cluster**: no real job is reached."
    if world.demo_pace is not None:
        pace = f"{SECONDS_PER_HOUR / world.demo_pace:.0f} s"
        clock = markdown(f"{world.clock():%H:%M}")
        text += f" An hour there takes {pace}; this page is of {clock} UTC."
    st.caption(f":material/science: {text}")


def first_plan() -> None:
    """Show the progress of the first plan of a simulated cluster while it is being made."""
    world = current_world()
    if world.decision_service.settings().changes_simulation and world.cycle_state().doing:
        _first_plan()


@st.fragment(run_every=_LOOK_SECONDS)
def _first_plan() -> None:
    """Show the progress of the first plan; show the page anew when it is there."""
    doing = current_world().cycle_state().doing
    if not doing:
        st.rerun()
    st.info(f"The first plan is being made: {markdown(doing)}.", icon=":material/hourglass:")


def demo_guide(view: str) -> None:
    """Show the guide beside the tabs that it leads to, until it is hidden; only in the demo."""
    if current_world().demo_pace is None or view not in _GUIDE_PAGES:
        return
    if st.session_state.get(_ENDED, view) != view:
        st.session_state[_HIDDEN] = True
    if st.session_state.get(_HIDDEN, False):
        st.button("Show the guide", on_click=_hide, args=(False,), width="stretch")
        return
    st.fragment(_panel, run_every=_LOOK_SECONDS if _waiting() else None)(_progress(), view)


def guide_steps(states: dict[str, State], measured: str, wait: str) -> tuple[Step, ...]:
    """Return the steps for what became of the recommendations; `measured` is '' until one was."""
    reached = set(states.values())
    applied = bool(reached & (STANDING_STATES | {State.ROLLED_BACK, State.APPLYING}))
    return (
        Step(
            title="See what is wasted",
            text="The sentence at the top of each page is its finding. Orange is what is "
            "allocated and idle; the dashed part of the picture is the forecast.",
            view="overview",
            done=applied
            or bool(reached - {State.PROPOSED, State.EXPIRED, State.SUPERSEDED, State.SNOOZED}),
        ),
        Step(
            title="Approve and apply one",
            text="Click a finding: why, and what changes exactly, stand below the list. Press "
            "Approve and apply and give a name. Roll back undoes it.",
            view="findings",
            done=applied,
        ),
        Step(
            title="Watch it being verified",
            text=measured or wait,
            view="savings",
            done=bool(measured),
        ),
    )


def _panel(before: tuple[object, ...], view: str) -> None:
    """Draw the guide; once something has happened since the page was drawn, draw that anew."""
    if _progress() != before or st.session_state.get(_HIDDEN, False):
        st.rerun()
    with st.container(border=True, key="guide"):
        measured = _measured()
        steps = guide_steps(current_world().store.reader.states(), measured, _wait())
        current = next((step for step in steps if not step.done), steps[-1])
        st.markdown("**The first five minutes**")
        for place, step in enumerate(steps, start=1):
            icon = ":material/check_circle:" if step.done else f":material/counter_{place}:"
            show_link(step.view, step.title, icon=icon)
            if step is current:
                st.caption(markdown(step.text))
        if measured:
            st.session_state[_ENDED] = view
            st.caption(
                "Next, your own fleet: `trimtab doctor --prometheus URL` says what is missing, "
                "`trimtab serve --prometheus URL` opens this dashboard on it, read-only."
            )
        st.button("Hide the guide", on_click=_hide, args=(True,), width="stretch")


def _hide(hidden: bool) -> None:
    st.session_state[_HIDDEN] = hidden
    st.session_state.pop(_ENDED, None)


def _progress() -> tuple[object, ...]:
    """Return the values that the guide's picture follows from."""
    states = current_world().store.reader.states()
    return (tuple(sorted((digest, str(state)) for digest, state in states.items())), _measured())


def _waiting() -> bool:
    states = current_world().store.reader.states().values()
    open_ones = STANDING_STATES - {State.VERIFIED, State.FELL_SHORT, State.KEPT} | {State.APPLYING}
    return any(state in open_ones for state in states)


def _measured() -> str:
    """Return the measured savings in words, '' before anything was measured."""
    world = current_world()
    total = total_gpu_hours(ledger(world.store.reader, now=world.clock()))
    if total.realised is None:
        return ""
    return f"Saved {range_text(total.realised)} of {range_text(total.predicted)} promised."


def _wait() -> str:
    """Say when the next change will be measured."""
    world = current_world()
    settings = world.decision_service.settings()
    slots = count_text(settings.apply.verify_slots, "slot")
    slots = f"{slots} of {settings.planning.slot_minutes} min"
    pending = [
        row
        for row in ledger(world.store.reader, now=world.clock())
        if row.measurement is None and row.state in STANDING_STATES
    ]
    if not pending:
        return f"Savings shows what a change really brought, {slots} after it was made."
    wait = max(_due(settings, pending[0].applied_at) - world.clock(), timedelta())
    seconds = wait.total_seconds() / (world.demo_pace or 1)
    if not seconds:
        return "The samples after the change are being read."
    return f"Applied. {slots} are measured after it: about {seconds:.0f} s left."


def _due(settings: Settings, applied_at: datetime) -> datetime:
    """Return when a change is measured: after its slots and the one in which it was made."""
    minutes = (settings.apply.verify_slots + 1) * settings.planning.slot_minutes
    return applied_at + timedelta(minutes=minutes)
