"""What is foreseen of a job's memory, in words with the remedies."""

import pandas as pd
import streamlit as st

from dashboard.submission.memory_outlook import memory_findings
from dashboard.web.page import plain, table
from dashboard.web.session import current_world
from data.records.memory import MemoryFinding, MemoryOutlook


def _findings(job_id: str = "") -> tuple[MemoryFinding, ...]:
    world = current_world()
    seconds = world.settings.settings.planning.slot_minutes * 60
    return world.reader.remember(
        ("memory", seconds, job_id),
        lambda: memory_findings(world.reader, slot_seconds=seconds, job_id=job_id),
    )


def memory_line(job_id: str) -> None:
    """Say below a job's memory what will run out, with what can be done, or where room is."""
    for one in _findings(job_id):
        alarm = one.outlook is MemoryOutlook.RUNS_OUT
        (st.warning if alarm else st.info)(plain(f"{one.why}."))
        for advice in one.advice:
            mark = {True: " — fits", False: " — not enough alone", None: ""}[advice.fits]
            st.markdown(f"- {plain(advice.text + mark)}")
        st.caption(plain("; ".join(one.evidence)))


def memory_section() -> None:
    """List every job whose memory will run out or has become free."""
    found = _findings()
    st.subheader("Memory")
    if not found:
        st.write("No running job is foreseen to run out of GPU memory.")
        return
    table(
        pd.DataFrame(
            [
                {
                    "job": one.job_id,
                    "outlook": str(one.outlook),
                    "chance (%)": None if one.probability is None else 100 * one.probability,
                    "at": one.at,
                    "room (GiB)": one.room_mib / 1024 or None,
                    "why": one.why,
                }
                for one in found
            ]
        ),
        "memory",
    )
