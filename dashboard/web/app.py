"""The pages and their order."""

import streamlit as st

from dashboard.web.page import frame

st.set_page_config(page_title="Trimtab", layout="wide")
pages = [
    st.Page("views/overview.py", title="Overview", default=True),
    st.Page("views/jobs.py", title="Jobs"),
    st.Page("views/job.py", title="Job"),
    st.Page("views/forecasts.py", title="Forecasts"),
    st.Page("views/plan.py", title="Plan"),
    st.Page("views/recommendations.py", title="Recommendations"),
    st.Page("views/energy.py", title="Energy & ESG"),
    st.Page("views/health.py", title="Health"),
]
chosen = st.navigation(pages)
with frame():
    chosen.run()
