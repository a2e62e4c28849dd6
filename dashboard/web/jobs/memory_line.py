"""Forecast of a job's memory, in words with the remedies."""

import pandas as pd
import streamlit as st

from dashboard.common.escaping import markdown
from dashboard.web.access.identity import current_world
from dashboard.web.frame.page import table
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


def memory_section() -> None:
    """List every job whose memory will run out or has become free."""
    outlook = current_world().reader.memory_outlook()
    st.header("Memory")
    if outlook is None:
        st.write("No cycle has looked at the memory of running jobs yet.")
        return
    if not outlook:
        st.write("No running job is foreseen to run out of GPU memory.")
        return
    table(
        pd.DataFrame(
            [
                {
                    "job": finding.job_id,
                    "outlook": str(finding.outlook),
                    "chance (%)": None
                    if finding.probability is None
                    else 100 * finding.probability,
                    "at": finding.at,
                    "room (GiB)": finding.room_mib / 1024 or None,
                    "why": finding.why,
                }
                for finding in outlook
            ]
        ),
        "memory",
        links={"job": "jobs?job="},
        prose={"why": 520},
    )
