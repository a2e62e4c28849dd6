"""The frame around every page: who looks, the navigation, and what is urgent."""

import streamlit as st

from dashboard.web.access.identity import current_role
from dashboard.web.frame.apply_switch import apply_banner, apply_sidebar
from dashboard.web.frame.demo_guide import demo_guide, first_plan, simulated_note
from dashboard.web.frame.header import page_header
from dashboard.web.frame.navigation import PAGES, pages_of
from dashboard.web.frame.page import PAGES_OF_RUN, frame, loss_banner, old_readings_banner
from dashboard.web.frame.scope import current_scope
from dashboard.web.frame.welcome import welcome

STYLE = """<style>
/* Where a chart is narrow its toolbar lies over its legend; the server does not know the width. */
@media (max-width: 640px) { .modebar { display: none } }
/* The header is one line; where it is narrow the age of the data is a second one. */
.st-key-header { flex-wrap: nowrap !important; gap: 0 0.75rem }
.st-key-header > * { flex-shrink: 0 }
.st-key-header > :first-child { flex-shrink: 1; min-width: 12rem }
@media (max-width: 1000px) {
  .st-key-header { flex-wrap: wrap !important }
  .st-key-header > :first-child { order: 1; flex: 1 0 100% !important; min-width: 0 }
}
[data-testid="stMainBlockContainer"] { padding-inline: 1.5rem }
@media (max-width: 640px) {
  [data-testid="stMainBlockContainer"] { padding: 0.5rem 1rem 1rem; gap: 0.5rem }
  /* The button that opens the list of pages lies left of it. */
  .st-key-tabs { flex-wrap: nowrap !important; overflow-x: auto }
  .st-key-header { padding-left: 2.5rem; gap: 0 0.4rem }
  /* Of the buttons for filters and the name the icon is seen, and the words are heard. */
  .st-key-header [data-testid="stPopover"] button { padding-inline: 0.4rem }
  .st-key-header > :nth-child(n + 3) [data-testid="stPopover"] p { font-size: 0 }
  [data-testid="stHeader"] { background: none; pointer-events: none }
  [data-testid="stHeader"] button { pointer-events: auto }
  [data-testid="stLayoutWrapper"]:has(> * > * > [data-testid="stMetric"])
    { width: calc(50% - 0.5rem) !important; flex-basis: auto !important }
}
/* A tab is a link to the page that is open: only the open one, which is text, is marked. */
.st-key-tabs { border-bottom: 1px solid rgba(128, 128, 128, 0.3); gap: 0 1rem }
.st-key-tabs a { background: none !important; padding-inline: 0 }
.st-key-tabs a p { font-weight: 400 !important }
.st-key-tabs p { margin: 0; padding-block: 0.25rem; font-size: 0.9rem }
.st-key-tabs [data-testid="stMarkdownContainer"] { margin-bottom: 0 }
.st-key-idle-parts a { background: none !important; padding-inline: 0 }
.st-key-idle-parts a p { font-weight: 400 !important }
/* Streamlit cuts the words of a link that is wider than its place. */
[data-testid="stSidebar"] [data-testid="stPageLink"] a { height: auto }
[data-testid="stSidebar"] [data-testid="stPageLink"] p { white-space: normal }
</style>"""
st.set_page_config(page_title="Trimtab", layout="wide", initial_sidebar_state=200)
role = current_role()
words = st.query_params.to_dict()
rows = {row.view: row for row in pages_of(role)}
pages = {
    view: st.Page(row.file(row.tab(words)), title=row.title, url_path=view, default=row is PAGES[0])
    for view, row in rows.items()
}
others = []
if role == "owner":
    # No page of theirs is the default one, whose address Streamlit leaves empty: links name each.
    others = [st.Page(lambda: None, title="Start", url_path="start", default=True)]
elif role == "none":
    others = [st.Page(lambda: None, title="Sign in", default=True)]
st.session_state[PAGES_OF_RUN] = pages
# Streamlit's own list of pages is drawn where the sidebar begins; ours stands with what follows it.
view = st.navigation([*others, *pages.values()], position="hidden")
if view.title == "Start":
    st.switch_page(pages["findings"], query_params=words)
st.html(STYLE)
with frame():
    person = welcome()
    if person is not None:
        row = rows[view.url_path or PAGES[0].view]
        tab = row.tab(words)
        with st.sidebar.container(gap="xxsmall", key="pages"):
            for page in pages.values():
                start = {"tab": row.tabs[0].view} if page is view and len(row.tabs) > 1 else {}
                st.page_link(page, query_params=start | current_scope().chosen)
        apply_sidebar(person)
        page_header(row, tab, person)
        with st.sidebar:
            simulated_note()
            demo_guide(tab.view)
        apply_banner()
        loss_banner()
        old_readings_banner()
        first_plan()
        if "tab" in words:
            # Of a link to the page that is open the browser's address would not follow.
            st.query_params["tab"] = tab.view
        view.run()
