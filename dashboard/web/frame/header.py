"""The line above every page: its name, product, cluster, age of the data and who looks."""

import streamlit as st

from dashboard.common.escaping import markdown
from dashboard.common.rights import role_of
from dashboard.web.access.identity import ask_name, current_role, current_world
from dashboard.web.frame.page import freshness
from dashboard.web.frame.scope import ask_scope, scope_note
from data.records.commands import Person

_NAMED = 2


def cluster_name() -> str:
    """Return the name of the cluster: its recording, else the sources that reported of it."""
    reader = current_world().reader
    recording = reader.recording()
    names = (
        recording.names
        if recording is not None
        else tuple(dict.fromkeys(report.source for report in reader.source_reports()))
    )
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}" if names else "no source yet"


def page_header(title: str, person: Person) -> None:
    """Show the page's one heading of the first rank, and what is common to all pages."""
    with st.container(
        horizontal=True,
        vertical_alignment="center",
        horizontal_alignment="distribute",
        key="header",
    ):
        st.title(title, anchor=False, width="content")
        if current_role() != "owner":  # the filters name the namespaces of others
            ask_scope()
        _person(person)
    st.caption(f"**Trimtab** · {markdown(cluster_name())} · {markdown(freshness())}")
    scope_note(title)


def _person(person: Person) -> None:
    role = role_of(person, current_world().decision_service.settings().access)
    if person.via != "local":
        st.caption(markdown(f"{person.name}, {role}"), width="content")
        return
    label = markdown(person.name) if person.name else "Your name"
    with st.popover(label, icon=":material/person:", width="content"):
        ask_name("header-name")
        st.caption(
            "Decisions are recorded under it. It is kept until this tab is closed. The account "
            "that started this server is the admin: access.mode is local."
        )
