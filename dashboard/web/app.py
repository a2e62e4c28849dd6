"""The frame around every page: who looks, the navigation, and what is urgent."""

import streamlit as st

from dashboard.web.access.identity import current_role
from dashboard.web.frame.alert_strip import urgent_strip
from dashboard.web.frame.apply_switch import apply_banner, apply_sidebar
from dashboard.web.frame.demo_guide import demo_guide, simulated_banner
from dashboard.web.frame.header import page_header
from dashboard.web.frame.navigation import navigation, page_file
from dashboard.web.frame.page import frame, loss_banner, old_readings_banner
from dashboard.web.frame.scope import current_scope
from dashboard.web.frame.welcome import welcome

st.set_page_config(page_title="Trimtab", layout="wide", initial_sidebar_state=220)
role = current_role()
pages = {
    section: [st.Page(row.file, title=row.title, default=row.view == "overview") for row in rows]
    for section, rows in navigation(role).items()
}
if role == "owner":
    # No page of theirs is the default one, whose address Streamlit leaves empty: links name each.
    start = st.Page(lambda: None, title="Start", url_path="start", default=True)
    pages = {"": [start], **pages}
elif role == "none":
    pages = {"": [st.Page(page_file("overview"), title="Sign in", default=True)]}
# Streamlit's own list of pages is no list to a screen reader: sections stand between its items.
view = st.navigation(pages, position="hidden")
if view.title == "Start":
    st.switch_page(page_file("findings"), query_params=st.query_params.to_dict())
# Where a chart is narrow its toolbar lies over its legend; the server does not know the width.
st.html("<style>@media (max-width: 640px) { .modebar { display: none } }</style>")
ways = st.sidebar.container(gap="xxsmall", key="pages")
with frame():
    person = welcome()
    if person is not None:
        apply_sidebar(person)
        page_header(view.title, person)
        for section, listed in pages.items():
            if not section:
                continue
            ways.caption(f"**{section}**")
            for page in listed:
                ways.page_link(page, query_params=current_scope().chosen)
        apply_banner()
        loss_banner()
        old_readings_banner()
        urgent_strip()
        simulated_banner()
        demo_guide(view.title)
        view.run()
