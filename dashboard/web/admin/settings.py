"""The settings in force, where each came from, and which differ from the default."""

import pandas as pd
import streamlit as st

from dashboard.web.access.identity import current_world
from dashboard.web.frame.page import finding, table
from data.base.counts import count_text
from data.settings.load import setting_rows

world = current_world()
rows = pd.DataFrame(setting_rows(world.settings))
rows["value"] = rows["value"].map(lambda value: "—" if value == "" else str(value))
changed = rows[rows["origin"] != "default"]
total = count_text(len(rows), "setting")
finding(f"{len(changed)} of {total} changed from the default; secrets are not shown.")
cells = st.columns([3, 2], vertical_alignment="bottom")
search = cells[0].text_input("Search", key="q", bind="query-params")
only = cells[1].checkbox("Changed only", key="changed", bind="query-params")
matches = changed if only else rows
if search:
    text = matches["name"] + " " + matches["meaning"]
    matches = matches[text.str.contains(search, case=False, regex=False)]
if matches.empty:
    st.info("No setting fits. Clear the search or show the unchanged ones too.")
else:
    table(matches, "settings")
st.caption(
    "Settings are read when the process starts: from trimtab.toml, then the environment, then the "
    "command line. Change them there and restart."
)
