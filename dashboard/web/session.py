"""How a page finds the world: Streamlit runs pages as scripts, so nothing can be passed to them.

The one registered world is the only module-level state of the project.
"""

from dashboard.web.world import WebWorld

_registered: list[WebWorld] = []


def register(world: WebWorld) -> None:
    """Make `world` the one that pages see."""
    _registered[:] = [world]


def current_world() -> WebWorld:
    """Return the registered world."""
    if not _registered:
        raise RuntimeError("start the dashboard with `trimtab serve`, not with `streamlit run`")
    return _registered[0]
