"""Access of a page to the world: Streamlit runs pages as scripts, which take no arguments.

The one registered world is the only module-level state of the project.
"""

from dashboard.common.rights import view_of
from dashboard.web.access.context import WebWorld
from data.base.errors import NotSignedInError

_registered: list[WebWorld] = []


def register(world: WebWorld) -> None:
    """Make `world` the one that pages see."""
    _registered[:] = [world]


def current_world() -> WebWorld:
    """Return the world as who looks may see it: an owner's reader has their own jobs alone.

    Errors: NotSignedInError where nobody is signed in, as in a thread behind the page.
    """
    from dashboard.web.access.identity import signed_in  # it asks for the world itself

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
