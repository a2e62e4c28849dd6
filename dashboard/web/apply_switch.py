"""Whether changes can be applied, on every page: the kill switch and who is signed in."""

from collections.abc import Callable

import streamlit as st

from dashboard.web.page import plain
from dashboard.web.session import current_world
from data.errors import TrimtabError
from data.records.commands import Person


def apply_banner() -> None:
    """Say at the top of the page when applying is stopped or its worker cannot work."""
    world = current_world()
    found = world.decision_service.stopped()
    if found is not None:
        said = found.describe()
        st.error(plain(f"{said[0].upper()}{said[1:]}. Nothing is sent to any cluster."))
    problem = world.worker_problem()
    if problem:
        st.error(plain(f"The apply worker cannot work: {problem}"))


def apply_sidebar(person: Person) -> None:
    """Show the switch, and the way out of a sign-in, beside the pages."""
    world = current_world()
    with st.sidebar:
        if person.via == "oidc":
            st.button("Sign out", on_click=st.logout)
        if world.decision_service.stopped() is not None:
            st.button("Resume applying", on_click=_resume, args=(person,), width="stretch")
        elif world.decision_service.settings().apply.enabled:
            st.button("Stop applying", on_click=_stop, args=(person,), width="stretch")
        else:
            st.caption("Read-only: apply.enabled is off.")
        refused = st.session_state.pop("switch-refused", "")
        if refused:
            st.error(plain(refused))


def _stop(person: Person) -> None:
    _try(lambda: current_world().decision_service.stop(person, "stopped on the page"))


def _resume(person: Person) -> None:
    _try(lambda: current_world().decision_service.resume(person))


def _try(action: Callable[[], object]) -> None:
    try:
        action()
    except TrimtabError as error:
        st.session_state["switch-refused"] = str(error)
