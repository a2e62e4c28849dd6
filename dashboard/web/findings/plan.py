"""The plan as a picture: who is where when, what it costs, what is certified, who lends to whom."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from dashboard.charts.plan_gantt import capacity_band, plan_gantt
from dashboard.common.escaping import markdown
from dashboard.resources.plan_rows import (
    autoscaler_note,
    bound_rows,
    job_rows,
    node_rows,
    tenant_rows,
)
from dashboard.web.access.identity import current_world
from dashboard.web.findings.what_if_panel import what_if_panel
from dashboard.web.frame.address_filters import choose
from dashboard.web.frame.page import chart, figures, number, opener_by_name, table, tense
from dashboard.web.frame.scope import current_scope
from data.base.counts import count_text
from data.base.errors import UnknownGpuModelError
from data.base.units import SECONDS_PER_HOUR
from data.catalogue.gpu_catalogue import GpuCatalogue, load_gpu_catalogue
from data.records.plans import Configuration, NodePlan, Plan

_GPUS_A_PAGE, _BROKEN = 96, 5
_MAX_ROWS = 200
_OF_TENANTS = {name: f"{name} (GPUs)" for name in ("quota", "guaranteed", "now")}


def show_plan(plan: Plan) -> None:
    """Show the plan over time, and what would change it."""
    _answer(plan)
    _show_demand(plan)
    _show_places(plan)
    _show_rows(plan)
    what_if_panel(plan.plan_id)


def _answer(plan: Plan) -> None:
    """Say the plan's cost and what is certified of it."""
    hours = plan.slot_seconds / SECONDS_PER_HOUR
    off_hours = hours * sum(node.on.count(False) for node in plan.nodes)
    can = tense("can be", "could have been")
    off = f"; nodes {can} powered off for {number(off_hours, 'node-h')}" if off_hours else ""
    today = tense("today's allocation", "the allocation then") + autoscaler_note(plan)
    length = f"{hours * len(plan.slot_starts):.3g} h"
    st.write(
        f"{tense(f'The next {length} cost', f'The {length} after would have cost')} "
        f"{number(plan.cost, plan.currency)}, "
        f"{number(plan.cost_of_now - plan.cost, plan.currency)} less than {today}, and "
        f"within {100 * plan.gap_ratio:.2f} % of the optimum{off}."
    )
    revised = (
        "" if plan.revised_jobs is None else f", {count_text(plan.revised_jobs, 'job')} revised"
    )
    figures(
        {
            "cost": (
                number(plan.cost, plan.currency),
                f"{today} {number(plan.cost_of_now, plan.currency)}",
            ),
            "certified lower bound": (
                number(plan.lower_bound, plan.currency),
                f"by {plan.bounds[0].name}" if plan.bounds else "",
            ),
            "certified gap": (f"{100 * plan.gap_ratio:.2f} %", f"planned in {plan.seconds:.2g} s"),
            "changes per job and day": (
                f"{plan.changes_per_job_day:.2f}",
                f"{count_text(plan.moves, 'move')} between nodes{revised}",
            ),
        }
    )
    models = [job.now.gpu_model for job in plan.jobs for _board in range(job.now.gpu_count)]
    for unknown in load_gpu_catalogue().lacking(models):
        st.warning(markdown(f"Left out of these costs: {unknown}"), icon="⚠️")
    for violation in plan.violations[:_BROKEN]:
        st.warning(markdown(f"A limit is broken at a price: {violation}."), icon="⚠️")
    if (more := len(plan.violations) - _BROKEN) > 0:
        st.caption(f"{count_text(more, 'more limit')} broken: `trimtab plan --format json`.")


def boards_of(configuration: Configuration, *, catalogue: GpuCatalogue) -> float:
    """Return the boards that a configuration takes.

    A MIG instance is 1/instances of one, the place beside another job half of one; a profile that
    the catalogue does not know counts as a whole board.
    """
    if configuration.boards is not None:
        return configuration.boards
    if configuration.shared_with:
        return configuration.gpu_count / 2
    if not configuration.mig_profile:
        return configuration.gpu_count
    try:
        profile = catalogue.get(configuration.gpu_model).mig_profile(configuration.mig_profile)
    except UnknownGpuModelError:
        profile = None
    return configuration.gpu_count / (profile.max_instances if profile else 1)


def _planned_boards(plan: Plan) -> list[float]:
    """Return the boards that all jobs hold in each slot."""
    catalogue = load_gpu_catalogue()
    planned = [0.0] * len(plan.slot_starts)
    for job in plan.jobs:
        for start, end, step in job.stretches():
            boards = boards_of(step, catalogue=catalogue)
            for slot in range(start, end):
                planned[slot] += boards
    return planned


def _show_demand(plan: Plan) -> None:
    """Show the demand's band, the boards held and the capacity."""
    reader = current_world().reader
    planned = reader.remember(("planned", plan.plan_id), lambda: _planned_boards(plan))
    total, demand = reader.demand_total(), None
    if total is not None:
        times, path = total
        naive = [at.replace(tzinfo=None) for at in times]
        demand = (naive, path.q10, path.q50, path.q90)
    st.header("Demand and capacity")
    gpus = sum(node.gpus for node in plan.nodes)
    chart(capacity_band(plan, planned, demand, float(gpus)), "demand")
    st.caption(
        "The demand of jobs with a forecast, quantiles added up as if all peaked together; "
        "planned are the GPUs of all jobs."
    )


def _show_places(plan: Plan) -> None:
    """Show the placement over time: some of the nodes as a Gantt chart."""
    world = current_world()
    reader = world.reader
    st.header("Placement over time")
    pages = _node_pages(plan, current_scope().model)
    names = [" – ".join(dict.fromkeys((part[0].node, part[-1].node))) for part in pages]
    page = choose("Nodes", names, "nodes") if names else ""
    if not names:
        st.info(markdown(f"No node of the plan has {current_scope().model}."))
    if pages:
        why = {
            stored.recommendation.job_id: stored.recommendation.why
            for stored in reader.recommendations(now=world.clock())
            if stored.recommendation.plan_id == plan.plan_id
        }
        nodes = pages[names.index(page) if page in names else 0]
        chart(
            reader.remember(
                ("gantt", plan.plan_id, nodes[0].node, nodes[-1].node),
                lambda: plan_gantt(plan, nodes, why),
            ),
            "gantt",
            opens=opener_by_name("job", "job"),
        )
        st.caption(
            "Every row is a GPU. A diamond marks where the plan changes something; hover tells "
            "what and why, a click on a block opens its job. Jobs without a known place are not "
            "drawn."
        )


def _node_pages(plan: Plan, model: str) -> list[Sequence[NodePlan]]:
    """Return the nodes of a model, '' for all, a picture's worth at a time."""
    nodes = sorted(
        (node for node in plan.nodes if model in ("", node.gpu_model)),
        key=lambda entry: (entry.gpu_model, entry.node),
    )
    per_page = max(1, _GPUS_A_PAGE // max((node.gpus for node in nodes), default=1))
    return [nodes[at : at + per_page] for at in range(0, len(nodes), per_page)]


def _show_rows(plan: Plan) -> None:
    """Show jobs without a place, bounds, nodes that can be off, tenants, and every job's steps."""
    lost = [job for job in plan.jobs if job.unplaced]
    if lost:
        with st.expander(f"{count_text(len(lost), 'job has', 'jobs have')} no known place"):
            rows = pd.DataFrame([{"job": entry.job_id, "why": entry.unplaced} for entry in lost])
            table(rows.head(_MAX_ROWS), "unplaced", every=lambda: rows)
    first, right = st.columns(2)
    with first:
        st.header("Lower bounds")
        table(pd.DataFrame(bound_rows(plan)), "bounds")
        st.caption("The first holds for every plan, the others for every placement of this one.")
    with right:
        st.header("Nodes that can be off")
        _show_off(plan)
    if plan.tenants:
        st.header("Lending and borrowing of quota")
        table(pd.DataFrame(tenant_rows(plan)), "tenants", headings=_OF_TENANTS)
        st.caption(
            "Boards. A tenant borrows what is above its quota; it lends what it leaves of its own "
            "as far as others borrow. Without stated quotas, equal shares are shown and not kept."
        )
    st.header("Changes")
    _show_changes(plan)


def _show_off(plan: Plan) -> None:
    """Show the nodes that can be off, the longest first."""
    empty = [row for row in node_rows(plan) if row.off_hours > 0]
    if not empty:
        st.write("None: every node has a job all the time.")
        return
    rows = pd.DataFrame(empty)[["node", "gpu_model", "gpus", "off_hours", "off"]]
    rows = rows.sort_values(["off_hours", "node"], ascending=[False, True], ignore_index=True)
    table(rows.head(_MAX_ROWS), "off", every=lambda: rows)


def _show_changes(plan: Plan) -> None:
    """Show the jobs that the plan gives another configuration; the files hold all jobs."""
    changed = {job.job_id for job in plan.jobs if any(map(job.is_asked, job.steps))}
    rows = [row for row in job_rows(plan) if row["job_id"] in changed]
    if not rows:
        st.write("None: every job keeps what it has.")
        return
    table(pd.DataFrame(rows[:_MAX_ROWS]), "steps", every=lambda: pd.DataFrame(job_rows(plan)))
    total = count_text(len(plan.jobs), "job")
    st.caption(f"{len(changed)} of {total} to change; the files hold every job's steps.")
