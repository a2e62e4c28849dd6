"""Every job, sorted by waste."""

from datetime import timedelta

import pandas as pd
import streamlit as st

from dashboard.web.page import empty_state, finding, table
from dashboard.web.session import current_world
from data.clock import utc_now

_PAGE = 100
world = current_world()
reader = world.store.reader
if not empty_state():
    end = reader.latest_sample_at() or utc_now()
    used = reader.energy(start=end - timedelta(days=1), end=end, by="job").set_index("key")
    proposed = {
        one.recommendation.job_id: str(one.recommendation.action)
        for one in reader.recommendations(now=utc_now())
        if one.state in ("proposed", "approved")
    }
    rows = pd.DataFrame(
        [
            {
                "job": job.job_id,
                "name": job.name,
                "namespace": job.namespace,
                "owner": job.owner,
                "kind": str(job.kind),
                "platform": str(job.platform),
                "GPUs": job.gpu_count,
                "GPU model": job.gpu_model + (f" {job.mig_profile}" if job.mig_profile else ""),
                "running": job.last_seen_at >= end - timedelta(hours=1),
                "proposed": proposed.get(job.job_id, ""),
            }
            for job in reader.jobs()
        ]
    )
    rows["GPU-hours, 24 h"] = rows["job"].map(used["gpu_hours"])
    rows["idle GPU-hours, 24 h"] = rows["job"].map(used["idle_gpu_hours"])
    rows["energy, 24 h (kWh)"] = rows["job"].map(used["energy_kwh"])
    wasted = rows["idle GPU-hours, 24 h"].sum()
    finding(
        f"{int(rows['running'].sum())} jobs run; {wasted:.0f} of "
        f"{rows['GPU-hours, 24 h'].sum():.0f} GPU-hours of the last 24 h were idle."
    )
    left, middle, right, far = st.columns([2, 1, 1, 1])
    search = left.text_input("Search", st.query_params.get("q", ""), key="q")
    namespaces = ["all", *sorted(set(rows["namespace"]))]
    chosen = st.query_params.get("namespace", "all")
    namespace = middle.selectbox(
        "Namespace", namespaces, index=namespaces.index(chosen) if chosen in namespaces else 0
    )
    kinds = ["all", *sorted(set(rows["kind"]))]
    kind = right.selectbox("Kind", kinds)
    running = far.checkbox("Running only", value=True)
    st.query_params.from_dict(
        {key: value for key, value in {"q": search, "namespace": namespace}.items() if value}
    )
    if search:
        text = rows["job"] + " " + rows["name"] + " " + rows["owner"]
        rows = rows[text.str.contains(search, case=False, regex=False)]
    if namespace != "all":
        rows = rows[rows["namespace"] == namespace]
    if kind != "all":
        rows = rows[rows["kind"] == kind]
    if running:
        rows = rows[rows["running"]]
    rows = rows.sort_values("idle GPU-hours, 24 h", ascending=False, na_position="last")
    pages = max(1, -(-len(rows) // _PAGE))
    page = st.number_input(f"Page of {pages}", 1, pages, 1) if pages > 1 else 1
    table(rows.iloc[(page - 1) * _PAGE : page * _PAGE], "jobs")
    names = rows["job"].tolist()
    if names:
        job = st.selectbox("Open a job", names)
        if st.button("Open"):
            st.session_state["job"] = job
            st.switch_page("views/job.py", query_params={"id": job})
