"""State of applying, on every page: the kill switch and who is signed in."""

from typing import Literal

import streamlit as st

from dashboard.common.escaping import markdown
from dashboard.web.access.identity import current_world
from dashboard.web.frame.action_button import Post, PressOutcome, action_button
from dashboard.web.frame.welcome import sign_in_button
from data.records.commands import Person

_PATH = "api/v1/stop"


def apply_banner() -> None:
    """Say at the top of the page when applying is stopped or its worker cannot work."""
    world = current_world()
    stop = world.decision_service.stopped()
    if stop is not None:
        text = stop.describe()
        st.error(markdown(f"{text[0].upper()}{text[1:]}. Nothing is sent to any cluster."))
    problem = world.worker_problem()
    if problem:
        st.error(markdown(f"The apply worker cannot work: {problem}"))


def apply_sidebar(person: Person) -> None:
    """Show the switch, and the way out of a sign-in, beside the pages."""
    world = current_world()
    with st.sidebar:
        if person.via == "oidc":
            sign_in_button("Sign out", "DELETE")
        if world.decision_service.stopped() is not None:
            _switch("Resume applying", person, "DELETE", None)
        elif world.decision_service.settings().apply.enabled:
            _switch("Stop applying", person, "POST", {"reason": "stopped on the page"})
        else:
            st.caption("Read-only: apply.enabled is off.")
        refused = st.session_state.pop("switch-refused", "")
        if refused:
            st.error(markdown(refused))


def _switch(
    label: str, person: Person, method: Literal["POST", "DELETE"], body: dict[str, object] | None
) -> None:
    post = Post(name="Refused", path=_PATH, body=body, method=method)
    action_button(
        label, key=f"switch-{method}", then=_hear, posts=[post], by=person.name, wide=True
    )


def _hear(answers: PressOutcome) -> None:
    st.session_state["switch-refused"] = " ".join(answers.refused)
