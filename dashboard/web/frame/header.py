"""The line above every page: cluster, age of the data, alerts, choices and who looks; the tabs."""

import streamlit as st

from dashboard.common.escaping import markdown
from dashboard.common.rights import role_of
from dashboard.web.access.identity import ask_name, current_role, current_world
from dashboard.web.frame.alert_strip import alert_pill
from dashboard.web.frame.month import ask_month
from dashboard.web.frame.navigation import DAYS, JOBS, MONTH, PageRow, Tab
from dashboard.web.frame.page import freshness, show_link
from dashboard.web.frame.scope import ask_days, ask_filters, scope_note
from data.records.commands import Person

_MAX_NAMED = 2


def cluster_name() -> str:
    """Return the name of the cluster: its recording, else the sources that reported of it."""
    reader = current_world().reader
    recording = reader.recording()
    names = (
        recording.names
        if recording is not None
        else tuple(dict.fromkeys(report.source for report in reader.source_reports()))
    )
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"{', '.join(names[:_MAX_NAMED])}{more}" if names else "no source yet"


def page_header(row: PageRow, tab: Tab, person: Person) -> None:
    """Show what is common to all pages, the choices that this one follows, and its tabs."""
    with st.container(horizontal=True, vertical_alignment="center", key="header"):
        st.caption(f"**{markdown(cluster_name())}** · {markdown(freshness())}")
        alert_pill()
        if DAYS in tab.follows:
            ask_days()
        if MONTH in tab.follows:
            ask_month()
        if tab.follows & JOBS and current_role() != "owner":  # they name the namespaces of others
            ask_filters()
        _person(person)
    if len(row.tabs) > 1:
        with st.container(horizontal=True, vertical_alignment="center", key="tabs"):
            for other in row.tabs:
                if other is tab:
                    st.markdown(f"**{tab.title or row.subject.capitalize()}**", width="content")
                elif other.title:
                    show_link(other.view, other.title, icon=None, tab=other.view)
    scope_note(tab.follows)


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
