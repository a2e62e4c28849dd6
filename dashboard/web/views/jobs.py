"""Every job, sorted by waste."""

from datetime import timedelta

import pandas as pd
import streamlit as st

from dashboard.web.page import empty_state, finding, table
from dashboard.web.session import current_world

_PAGE = 100
_ALL = "all"
_WASTE = {
    "idle GPU-hours, 24 h": "idle_gpu_hours",
    "GPU-hours, 24 h": "gpu_hours",
    "kWh, 24 h": "energy_kwh",
}


def choose(column: st.delta_generator.DeltaGenerator, label: str, values: pd.Series) -> str:
    """Ask for one of the values or all, starting with what the address says."""
    options = [_ALL, *sorted(set(values))]
    asked = st.query_params.get(label.lower(), _ALL)
    start = options.index(asked) if asked in options else 0
    return str(column.selectbox(label, options, index=start))


world = current_world()
reader = world.store.reader
if not empty_state():
    end = reader.latest_sample_at() or world.clock()
    used = reader.energy(start=end - timedelta(days=1), end=end, by="job").set_index("key")
    proposed = {
        one.recommendation.job_id: str(one.recommendation.action)
        for one in reader.recommendations(now=world.clock())
        if one.state in ("proposed", "approved")
    }
    rows = pd.DataFrame(
        [
            {
                "job": job.job_id,
                "owner": job.owner,
                "namespace": job.namespace,
                "kind": str(job.kind),
                "state": str(job.scheduler.state) if job.scheduler else "",
                "GPUs": job.gpu_count,
                "GPU model": job.gpu_model + (f" {job.mig_profile}" if job.mig_profile else ""),
                "proposed": proposed.get(job.job_id, ""),
                "platform": str(job.platform),
                "name": job.name,
                "running": job.last_seen_at >= end - timedelta(hours=1),
            }
            for job in reader.jobs()
        ]
    )
    for place, (title, column) in enumerate(_WASTE.items(), start=1):
        rows.insert(place, title, rows["job"].map(used[column]))
    wasted = rows["idle GPU-hours, 24 h"].sum()
    finding(
        f"{int(rows['running'].sum())} jobs run; {wasted:.0f} of "
        f"{rows['GPU-hours, 24 h'].sum():.0f} GPU-hours of the last 24 h were idle."
    )
    cells = st.columns([3, 2, 2, 2, 2], vertical_alignment="bottom")
    search = cells[0].text_input("Search", st.query_params.get("q", ""), key="q")
    asked = {
        "namespace": choose(cells[1], "Namespace", rows["namespace"]),
        "owner": choose(cells[2], "Owner", rows["owner"]),
        "kind": choose(cells[3], "Kind", rows["kind"]),
    }
    running = cells[4].checkbox("Running only", value=st.query_params.get("running") != "no")
    st.query_params.from_dict(
        {key: value for key, value in asked.items() if value != _ALL}
        | ({"q": search} if search else {})
        | ({} if running else {"running": "no"})
    )
    if search:
        text = rows["job"] + " " + rows["name"] + " " + rows["owner"]
        rows = rows[text.str.contains(search, case=False, regex=False)]
    for column, value in asked.items():
        if value != _ALL:
            rows = rows[rows[column] == value]
    if running:
        rows = rows[rows["running"]]
    rows = rows.sort_values("idle GPU-hours, 24 h", ascending=False, na_position="last")
    pages = max(1, -(-len(rows) // _PAGE))
    page = st.number_input(f"Page of {pages}", 1, pages, 1) if pages > 1 else 1
    table(rows.iloc[(page - 1) * _PAGE : page * _PAGE], "jobs")
    names = rows["job"].tolist()
    if names:
        with st.container(horizontal=True, vertical_alignment="bottom"):
            job = st.selectbox("Open a job", names, width=480)
            if st.button("Open"):
                st.switch_page("views/job.py", query_params={"id": job})
    else:
        st.info("No job fits these filters. Clear the search or choose “all”.")
