"""Person who looks at a page: the local one, one named by a trusted proxy, or one signed in."""

from collections.abc import Mapping
from typing import Literal

import streamlit as st

from dashboard.api.http.authentication import OPEN, PERSON_HEADER, SIGN_IN_COOKIE, proxied
from dashboard.common.escaping import markdown
from dashboard.common.rights import role_of
from dashboard.web.access.session import whole_world
from dashboard.web.frame.action_button import Post, PressOutcome, action_button
from data.base.clock import utc_now
from data.records.commands import Person
from data.settings.access import AccessSettings

_NAME = "person"
REFUSAL = "refused"
"""What of a page's address says why a sign-in came to nothing."""


def known_name() -> str:
    """Return the name given in local mode, '' before it is given."""
    return str(st.session_state.get(_NAME, ""))


def remember_name(name: str) -> None:
    """Keep the name that a decision was made under for the session."""
    st.session_state[_NAME] = " ".join(name.split())


def ask_name(key: str) -> str:
    """Ask for the name in local mode; it is kept for the session as soon as it is given."""
    name: str = st.text_input(
        "Your name",
        known_name(),
        key=key,
        on_change=lambda: remember_name(str(st.session_state.get(key, ""))),
    )
    return name


def signed_in(access: AccessSettings) -> Person | None:
    """Return the signed-in person, None for nobody. In local mode the name is '' until it is given.

    A session that a proxy opened keeps its person until its connection ends.
    """
    if access.mode == "proxy":
        stated = st.context.headers.get(PERSON_HEADER)
        return None if stated is None else proxied(stated)
    if access.mode == "oidc":
        session = st.context.cookies.get(SIGN_IN_COOKIE)
        return whole_world().store.reader.signed_in(session, utc_now()) if session else None
    if access.mode == "open":
        return OPEN
    account = st.context.headers.get(PERSON_HEADER, "")
    return Person(name=known_name(), via="local", account=account)


def acting(access: AccessSettings, key: str) -> Person | None:
    """Return the person who made a click, None when nobody is signed in.

    In local mode it is the name in the `ask_name` of that key as it stood at the click, else the
    name of the session.
    """
    if access.mode == "local":
        name = str(st.session_state.get(key, known_name()))
        account = st.context.headers.get(PERSON_HEADER, "")
        return Person(name=name, via="local", account=account)
    return signed_in(access)


def claimed(claims: Mapping[str, object], access: AccessSettings) -> Person | None:
    """Return the person of verified claims; None without a name or with an unverified address."""
    name = claims.get(access.oidc_name_claim)
    # A name with blanks around it or an odd character in it would look like another's.
    if not isinstance(name, str) or not name or name != name.strip() or not name.isprintable():
        return None
    if access.oidc_name_claim == "email" and claims.get("email_verified") is not True:
        return None
    groups = claims.get(access.oidc_groups_claim)
    entries = groups if isinstance(groups, list | tuple) else []
    return Person(
        name=name, groups=tuple(entry for entry in entries if isinstance(entry, str)), via="oidc"
    )


def current_role() -> str:
    """Return the role of who looks, none for nobody."""
    access = whole_world().decision_service.settings().access
    person = signed_in(access)
    return "none" if person is None else role_of(person, access)


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
        label,
        key=f"sign-in-{method}",
        then=_hear_sign_in,
        posts=[post],
        primary=method == "POST",
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
        st.markdown("## Sign in to see the fleet.")
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
