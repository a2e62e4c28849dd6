"""Streamlit as this server runs it."""

from pathlib import Path
from typing import Any

from streamlit import config
from streamlit.starlette import App

from dashboard.web.access.context import WebWorld
from dashboard.web.access.identity import register
from data.settings.access import host_of

_OPTIONS: dict[str, Any] = {
    "browser.gatherUsageStats": False,
    # The grid's own export knows no formulas; ours (`page.table`) does.
    "client.disableDataExport": True,
    "client.showErrorDetails": "none",
    "client.toolbarMode": "minimal",
    "global.developmentMode": False,
    # Its tracebacks take the way of all lines of the log, where there is a limit of them.
    "logger.enableRich": False,
    # A full collection costs 0.2 s of every page, more than drawing it; Python does its own.
    "runner.postScriptGC": False,
    # A page shows what it is told to, not each text that stands alone in its script.
    "runner.magicEnabled": False,
    "server.fileWatcherType": "none",
    "server.enableStaticServing": False,
    "server.headless": True,
    "theme.light.primaryColor": "#0072B2",
    "theme.dark.primaryColor": "#1A78B0",
    # Small print is a faded text colour, and code in it a faded one of its own: both 4.5 to 1.
    "theme.light.textColor": "#10141A",
    "theme.light.codeTextColor": "#10141A",
    "theme.dark.codeTextColor": "#8FE3B8",
    "theme.headingFontSizes": ["1.6rem", "1.15rem", "1.05rem", "1rem", "1rem", "1rem"],
    "theme.metricValueFontSize": "1.4rem",
    "theme.paddingTop": "1rem",
}


def _forget_foreign_options() -> None:
    """Take back what Streamlit read of the working directory, the user's folder or an environment.

    Whoever writes `.streamlit/config.toml` where the server is started is not who configures it.
    """
    for name, option in config.get_config_options().items():
        if config.is_manually_set(name):
            config.set_option(name, option.default_val)


def page_app(world: WebWorld, **parts: Any) -> App:
    """Return the ASGI application of the pages, with the server's other parts around them."""
    access = world.settings.settings.access
    public = access.public_origins() or ("http://localhost",)
    # Without an address Streamlit looks for one over the network.
    address = {"browser.serverAddress": host_of(public[0].partition("://")[2])}
    _forget_foreign_options()
    for option, value in (_OPTIONS | address).items():
        config.set_option(option, value)
    if access.mode == "oidc":
        # What a browser began at one web process may come back to another.
        config.set_option("server.cookieSecret", access.oidc_cookie_secret)
    register(world)
    return App(Path(__file__).parents[1] / "app.py", **parts)
