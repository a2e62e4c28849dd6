"""Forecast of a job's memory, in words with the remedies."""

import streamlit as st

from dashboard.common.escaping import markdown
from dashboard.web.access.identity import current_world
from data.base.errors import sentence
from data.records.memory import MemoryOutlook


def memory_line(job_id: str) -> None:
    """Say below a job's memory what will run out, with what can be done, or where room is."""
    for finding in current_world().reader.memory_outlook() or ():
        if finding.job_id != job_id:
            continue
        alarm = finding.outlook is MemoryOutlook.RUNS_OUT
        (st.warning if alarm else st.info)(markdown(sentence(finding.why)))
        for advice in finding.advice:
            mark = {True: " — fits", False: " — not enough alone", None: ""}[advice.fits]
            st.markdown(f"- {markdown(advice.text + mark)}")
        st.caption(markdown("; ".join(finding.evidence)))
