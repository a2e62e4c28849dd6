"""Person who looks at a page, and the world as they may see it.

The person is the local one, one named by a trusted proxy, or one signed in. Streamlit runs pages as
scripts, which take no arguments: the one registered world is the only module-level state.
"""

import streamlit as st

from dashboard.api.http.authentication import OPEN, PERSON_HEADER, SIGN_IN_COOKIE, proxied
from dashboard.common.rights import role_of, view_of
from dashboard.web.access.context import WebWorld
from data.base.clock import utc_now
from data.base.errors import NotSignedInError
from data.records.commands import Person
from data.settings.access import AccessSettings

_NAME = "person"
_registered: list[WebWorld] = []


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


def current_role() -> str:
    """Return the role of who looks, none for nobody."""
    access = whole_world().decision_service.settings().access
    person = signed_in(access)
    return "none" if person is None else role_of(person, access)


def register(world: WebWorld) -> None:
    """Make `world` the one that pages see."""
    _registered[:] = [world]


def current_world() -> WebWorld:
    """Return the world as who looks may see it: an owner's reader has their own jobs alone.

    Errors: NotSignedInError where nobody is signed in, as in a thread behind the page.
    """
    world = whole_world()
    access = world.decision_service.settings().access
    if access.mode == "local":
        return world
    person = signed_in(access)
    if person is None:
        raise NotSignedInError("nobody is signed in here", "Sign in, and open the page again.")
    mine = view_of(person, access, world.reader)
    return world if mine is world.reader else world.looking_through(mine)


def whole_world() -> WebWorld:
    """Return the registered world: for asking who somebody is, not for showing rows."""
    if not _registered:
        raise RuntimeError("start the dashboard with `trimtab serve`, not with `streamlit run`")
    return _registered[0]
