"""Cause of a slow job, in words with what to try."""

import streamlit as st

from dashboard.common.escaping import markdown
from dashboard.web.access.identity import current_world
from data.records.slow_work import SlowCause

_UNTOLD = (
    "Unknown: no source tells what keeps its boards at work. DCGM's profiling metrics would "
    "(SM, tensor and engine activity, PCIe and NVLink)."
)


def slow_work_line(job_id: str) -> None:
    """Show the cause of a slow job, how sure it is, what it loses and what to try."""
    st.subheader("What limits its speed")
    mine = [entry for entry in current_world().reader.slow_work() if entry.job_id == job_id]
    if not mine:
        st.write(_UNTOLD)
        return
    (slow_work,) = mine
    words = slow_work.describe()
    text = markdown(words[:1].upper() + words[1:])
    if not slow_work.cause.is_slow:
        st.write(f"Not slow: {markdown(words)}" if slow_work.cause is SlowCause.BUSY else text)
        return
    (st.info if slow_work.confidence == "weak" else st.warning)(text)
    lost = slow_work.lost_ratio
    st.write(
        "What it costs is unknown: boards do not tell how much slower they work."
        if lost is None
        else f"It takes {100 * lost.central:.0f} % ({100 * lost.low:.0f}–{100 * lost.high:.0f} %) "
        "of the time of its boards."
    )
    st.markdown(f"- To try: {markdown(slow_work.remedy)}")
    st.caption(markdown(", ".join(f"{name} {value:.2f}" for name, value in slow_work.signals)))
