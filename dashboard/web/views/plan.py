"""The plan as a picture: who is where when, what it costs, what is certified, who lends to whom."""

import pandas as pd
import streamlit as st

from dashboard.charts.fleet_timeline import total_demand
from dashboard.charts.plan_gantt import capacity_band, node_heat, plan_gantt
from dashboard.plan_rows import bound_rows, node_rows, tenant_rows
from dashboard.web.boards import boards_of
from dashboard.web.page import chart, empty_state, figures, finding, number, plain, table
from dashboard.web.session import current_world
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.units import SECONDS_PER_HOUR

_GPUS_A_PAGE = 96
# With more GPUs, nodes come first as one row each. (A bare text here would be shown on the page.)
_DETAIL_UP_TO = 256

world = current_world()
reader = world.store.reader
plan = None if empty_state() else reader.latest_plan()
if plan is None and reader.latest_sample_at() is not None:
    st.info("No cycle has run yet: run `trimtab cycle`, then reload this page.")
if plan is not None:
    hours = plan.slot_seconds / SECONDS_PER_HOUR
    horizon = hours * len(plan.slot_starts)
    gpus = sum(one.gpus for one in plan.nodes)
    off_hours = hours * sum(one.on.count(False) for one in plan.nodes)
    saved = plan.cost_of_now - plan.cost
    finding(
        f"The next {horizon:.3g} h cost {number(plan.cost, plan.currency)}, "
        f"{number(saved, plan.currency)} less than today's allocation, and at most "
        f"{100 * plan.gap_ratio:.2f} % more than any plan could; nodes can be off for "
        f"{number(off_hours, 'h')}."
    )
    revised = "" if plan.revised_jobs is None else f", {plan.revised_jobs} jobs revised"
    figures(
        {
            "cost": (
                number(plan.cost, plan.currency),
                f"today's allocation {number(plan.cost_of_now, plan.currency)}",
            ),
            "certified lower bound": (
                number(plan.lower_bound, plan.currency),
                f"by {plan.bounds[0].name}" if plan.bounds else "",
            ),
            "certified gap": (f"{100 * plan.gap_ratio:.2f} %", f"planned in {plan.seconds:.2g} s"),
            "changes per job and day": (
                f"{plan.changes_per_job_day:.2f}",
                f"{plan.moves} moves between nodes{revised}",
            ),
        }
    )
    for violation in plan.violations[:5]:
        st.warning(plain(f"A limit is broken at a price: {violation}."), icon="⚠️")
    catalogue = load_gpu_catalogue()
    size = {
        one: boards_of(one, catalogue=catalogue)
        for job in plan.jobs
        for _start, _end, one in job.stretches()
    }
    planned = [0.0] * len(plan.slot_starts)
    for job in plan.jobs:
        for start, end, step in job.stretches():
            for slot in range(start, end):
                planned[slot] += size[step]
    total = total_demand(reader.forecasts(plan.plan_id))
    demand = None
    if total is not None:
        path = total[1]
        demand = (total[0], path.q10, path.q50, path.q90)
    st.subheader("Demand and capacity")
    chart(capacity_band(plan, planned, demand, float(gpus)), "demand")
    st.caption(
        "The demand of jobs with a forecast, quantiles added up as if all peaked together; "
        "planned are the boards that all jobs hold."
    )
    st.subheader("Who is where")
    models = sorted({one.gpu_model for one in plan.nodes})
    with st.container(horizontal=True):
        wanted = st.query_params.get("model", "all")
        options = ["all", *models]
        model = st.selectbox(
            "GPU model", options, index=options.index(wanted) if wanted in options else 0
        )
        st.query_params["model"] = model
        nodes = sorted(
            (one for one in plan.nodes if model in ("all", one.gpu_model)),
            key=lambda one: (one.gpu_model, one.node),
        )
        per_page = max(1, _GPUS_A_PAGE // max((one.gpus for one in nodes), default=1))
        pages = [nodes[at : at + per_page] for at in range(0, len(nodes), per_page)]
        names = [f"{part[0].node} – {part[-1].node}" for part in pages]
        page = st.selectbox("Nodes", range(len(names)), format_func=lambda at: names[at])
    if gpus > _DETAIL_UP_TO:
        chart(node_heat(plan), "heat")
        st.caption("GPUs in use of the nodes that are on; blank where a node is off.")
    if pages:
        why = {
            one.recommendation.job_id: one.recommendation.why
            for one in reader.recommendations(now=world.clock())
            if one.recommendation.plan_id == plan.plan_id
        }
        chart(plan_gantt(plan, pages[page or 0], why), "gantt")
        st.caption(
            "Every row is a GPU. A diamond marks where the plan changes something; hover tells "
            "what and why. Jobs without a known place are not drawn."
        )
    lost = [one for one in plan.jobs if one.unplaced]
    if lost:
        with st.expander(f"{len(lost)} jobs have no known place"):
            rows = [{"job": one.job_id, "why": one.unplaced} for one in lost]
            table(pd.DataFrame(rows), "unplaced")
    left, right = st.columns(2)
    with left:
        st.subheader("Lower bounds")
        table(pd.DataFrame(bound_rows(plan)), "bounds")
        st.caption("The first holds for every plan, the others for every placement of this one.")
    with right:
        st.subheader("Nodes that can be off")
        empty = [row for row in node_rows(plan) if row["off_hours"] > 0]
        if empty:
            table(pd.DataFrame(empty)[["node", "gpu_model", "gpus", "off_hours", "off"]], "off")
        else:
            st.write("None: every node holds a job all the time.")
    if plan.tenants:
        st.subheader("Who lends and who borrows")
        table(pd.DataFrame(tenant_rows(plan)), "tenants")
        st.caption(
            "Boards. A tenant borrows what is above its quota; it lends what it leaves of its own "
            "as far as others borrow. Without stated quotas, equal shares are shown and not kept."
        )
