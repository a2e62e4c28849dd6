"""Filters that live in the address: whoever opens it sees the same page."""

from collections.abc import Sequence

import streamlit as st

ALL = "all"


def held(name: str) -> str:
    """Return a choice's value before its control is drawn: of the session, else the address."""
    return str(st.session_state.get(name, st.query_params.get(name, ALL)))


def choose(
    label: str, options: Sequence[str], name: str, *, bare: int = 0, persists: bool = False
) -> str:
    """Ask for one of the options; the first is the start and is left out of the address.

    `bare` is the width in pixels of one whose label is heard and not seen. One that `persists` is
    in force on pages without it too.
    """
    return str(
        st.selectbox(
            label,
            options,
            key=name,
            bind="query-params",
            width=bare or "stretch",
            label_visibility="collapsed" if bare else "visible",
            persist_state="session" if persists else None,
        )
    )


def pick(
    label: str, options: Sequence[str], name: str, *, usual: int = 0, seen: bool = True
) -> str:
    """Ask for one of a few options, all of them in sight; the address leaves the usual one out.

    The label of one that is not `seen`, of the header, is heard alone; its choice lasts on pages
    without it. A segmented control would show the chosen one in the colour of the main button,
    which is too dark to be read as text in dark mode.
    """
    return str(
        st.radio(
            label,
            options,
            usual,
            key=name,
            bind="query-params",
            horizontal=True,
            label_visibility="visible" if seen else "collapsed",
            persist_state=None if seen else "session",
        )
    )


def choose_page(rows: int, page_size: int) -> int:
    """Ask which page of a long table is shown; give its first row."""
    pages = max(1, -(-rows // page_size))
    if pages == 1:
        return 0
    page = st.number_input(
        f"Page of {pages:,}", 1, None, 1, key="page", bind="query-params", width=160
    )
    return (min(int(page), pages) - 1) * page_size
