"""The way in and out of a page: the button of a sign-in, and what is shown before it."""

from typing import Literal

import streamlit as st

from dashboard.common.escaping import markdown
from dashboard.common.rights import role_of
from dashboard.web.access.identity import signed_in, whole_world
from dashboard.web.access.sign_in import REFUSAL
from dashboard.web.frame.action_button import Post, PressOutcome, action_button
from data.records.commands import Person
from data.settings.access import AccessSettings


def _refusals(access: AccessSettings) -> dict[str, str]:
    """Return the reasons for failed sign-ins, by the code in the address of the page."""
    claim = access.oidc_name_claim
    verified = " or that email_verified is true" if claim == "email" else ""
    return {
        "name": f"The identity provider did not say your {claim}{verified}. Have it say so, or "
        "name another claim in access.oidc_name_claim.",
        "size": "The identity provider's token about you is too long: at most 128,000 characters "
        "are read. Have it send only the groups that matter here.",
        "old": "Your sign-in at the identity provider is too long ago. Sign out there, and in.",
        "answer": "The identity provider did not answer, or its answer cannot be believed. The "
        "log of the server says why.",
    }


def sign_in_button(label: str, method: Literal["POST", "DELETE"]) -> None:
    """Draw the button that begins or ends a sign-in by OpenID Connect."""
    post = Post(name=label, path="api/v1/sign-in", method=method)
    action_button(
        label, key=f"sign-in-{method}", then=_hear_sign_in, posts=[post], primary=method == "POST"
    )
    for refusal in st.session_state.pop("sign-in-refused", ()):
        st.error(markdown(refusal))


def _hear_sign_in(answers: PressOutcome) -> None:
    st.session_state["sign-in-refused"] = answers.refused


def welcome() -> Person | None:
    """Return the person who looks when they may; otherwise say what to do and give None."""
    access = whole_world().decision_service.settings().access
    person = signed_in(access)
    if person is None:
        st.markdown("# Sign in to see the fleet.")
        if access.mode == "oidc":
            refusal = _refusals(access).get(st.query_params.get(REFUSAL, ""), "")
            if refusal:
                st.error(markdown(refusal))
            sign_in_button("Sign in", "POST")
        return None
    if role_of(person, access) == "none":
        st.error(markdown(f"{person.name} has no role here. Ask one of the admins."))
        return None
    return person
