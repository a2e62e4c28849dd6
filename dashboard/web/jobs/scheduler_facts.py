"""Facts of a job's scheduler, as one table; none when only telemetry names the job."""

import pandas as pd
import streamlit as st

from dashboard.web.frame.page import table
from data.facts.jobs import Job


def scheduler_facts(job: Job) -> None:
    """Show state, reason, user, nodes and times of a job. Text is the cluster's own: untrusted."""
    facts = job.scheduler
    if facts is None:
        return
    st.subheader("Scheduler")
    limit = facts.time_limit_seconds
    rows = {
        "state": str(facts.state),
        "reason": facts.reason,
        "workload": facts.workload,
        "user": facts.user,
        "account": facts.account,
        "QOS": facts.qos,
        "nodes": ", ".join(facts.nodes),
        "submitted": _time(facts.submitted_at),
        "started": _time(facts.started_at),
        "ended": _time(facts.ended_at),
        "time limit": "" if limit is None else f"{limit / 3600:.2f} h",
        "managed by": ", ".join(facts.managed_by),
        **dict(facts.extra),
    }
    texts = {name: value for name, value in rows.items() if value}
    table(pd.DataFrame({"fact": list(texts), "value": list(texts.values())}), "scheduler")


def _time(at: object) -> str:
    return "" if at is None else f"{at:%Y-%m-%d %H:%M} UTC"
