"""Costs: what this month and the last cost, by tenant and down to the job, against budgets."""

import pandas as pd
import streamlit as st

from dashboard.accounting.cost.budgets import drivers_text
from dashboard.accounting.cost.focus import focus_csv, focus_rows
from dashboard.accounting.cost.statement import make_cost_statement
from dashboard.accounting.energy.periods import PeriodLength
from dashboard.accounting.facility.capacity import WEEKS, CapacityRow, capacity_rows
from dashboard.charts.cost_days import cost_days
from dashboard.common.escaping import markdown
from dashboard.web.access.identity import current_role, current_world
from dashboard.web.account.cost_parts import (
    LEVELS,
    CostView,
    answer_of,
    asked_names,
    figures_of,
    places_of,
    rows_of,
    view_of_month,
)
from dashboard.web.frame.action_button import File, file_buttons
from dashboard.web.frame.month import current_month
from dashboard.web.frame.page import (
    chart,
    drawer,
    empty_state,
    figures,
    finding,
    number,
    opener_of_rows,
    show_link,
    table,
)
from data.base.counts import count_text
from data.store import StoreReader


def show_capacity() -> None:
    """Show what the demand of the last weeks asks to keep, beside what is there."""
    world = current_world()
    rows = capacity_rows(world.reader, world.settings.settings)
    for row in rows:
        st.markdown(f"* {markdown(row.gpu_model)}: {markdown(_sentence(row))}")
    table(pd.DataFrame([_cells(row) for row in rows]), "capacity")
    st.caption(
        f"From the demand of the last {count_text(WEEKS, 'week')}, by the hour: GPUs that jobs "
        "were allocated or waited for. A GPU that is kept costs its price used or not, a GPU-hour "
        "above those costs the on-demand price, or planning.shortfall_weight times the GPU's. "
        "*Weeks* are what single weeks asked for alone: on recorded clusters the best number of "
        "the month after lay between them in 50 to 65 % of months. Electricity is not counted. The "
        "same by command: `trimtab capacity`."
    )


def _sentence(row: CapacityRow) -> str:
    if row.cost_now is None or row.cost_kept is None:
        return f"{row.boards} there; {row.advice}."
    saved = row.cost_now - row.cost_kept
    saves = f", {number(saved, row.currency)} a month less" if saved > 0 else ""
    return f"{row.boards} there; {row.advice}{saves}."


def _cells(row: CapacityRow) -> dict[str, object]:
    weeks = "" if row.to_keep_low is None else f"{row.to_keep_low}–{row.to_keep_high}"
    return {
        "GPU model": row.gpu_model,
        "GPUs": row.boards,
        "to keep": row.to_keep,
        "weeks": weeks,
        "demand, mean": row.demand_mean,
        "demand, q95": row.demand_q95,
        "waited, GPU-h": row.waited_gpu_hours,
        "GPU-hour": row.kept_price,
        "missing GPU-hour": row.missing_price,
        f"month now, {row.currency}": row.cost_now,
        f"month kept, {row.currency}": row.cost_kept,
        "missing, GPU-h a month": row.missing_gpu_hours,
        "autoscaler limit, GPUs": row.max_boards,
        "prices": row.prices_from,
        "hours known": row.hours_known,
    }


_MAX_ROWS = 500


def focus_file(view: CostView, reader: StoreReader) -> str:
    """Return the charges of what is looked at as FOCUS CSV, read anew when somebody asks.

    That is in a thread in which nobody is signed in: `reader` is that of who looks.
    """
    month = make_cost_statement(
        reader,
        view.settings,
        start=view.month.start,
        end=view.month.end,
        every=PeriodLength.DAY,
        takes=view.takes,
    )
    return focus_csv(focus_rows(month.within(month.start, month.end, view.names), view.settings))


def breadcrumbs(view: CostView) -> None:
    """Show the way back up."""
    if not view.names:
        return
    # A link to the same page that asks nothing would leave the address as it is.
    here = {"tab": "costs"}
    passed: dict[str, str] = {}
    with st.container(horizontal=True, vertical_alignment="center"):
        show_link("costs", "All tenants", **here)
        for level, name in list(view.names.items())[:-1]:
            passed[level] = name
            show_link("costs", name, **here, **passed)
        level, name = list(view.names.items())[-1]
        st.markdown(f"**{markdown(f'{level} {name}')}**")
        if level == "job":
            show_link("job", "Open the job", job=name)


def show(view: CostView) -> None:
    """Show chart, table and files of what is looked at."""
    total, currency = view.month.total, view.month.currency
    reader = current_world().reader
    zone = view.settings.report.timezone
    unit = "GPU-h" if total.gpu_cost is None else currency
    chart(cost_days(view.month.charges, unit=unit, zone=zone), "costs")
    rows = rows_of(view)
    st.header(f"By {view.by}")
    hidden = [name for name in rows.columns if "q10" in name or "q90" in name]
    leads = view.by != LEVELS[-1]
    table(
        rows.drop(columns=hidden)[:_MAX_ROWS],
        f"costs-by-{view.by}",
        every=lambda: rows,
        links={"job": "jobs?job="} if view.by == "job" else None,
        opens=opener_of_rows("costs", places_of(view, rows)) if leads else None,
    )
    file_buttons(
        File(
            label="FOCUS CSV",
            make=lambda: focus_file(view, reader),
            name=f"focus-{view.month.start:%Y-%m}.csv",
            kind="text/csv",
            key="focus",
        )
    )


if not empty_state():
    view = view_of_month(asked_names(), is_last=current_month().is_last)
    if view is not None:
        finding(answer_of(view))
        breadcrumbs(view)
        figures(figures_of(view))
        if view.rest is not None and not view.is_last:
            teams = () if view.names else view.book.tenants
            st.caption(markdown(drivers_text(view.rest, teams, view.month.currency)))
        if len(view.month.charges):
            show(view)
        if not view.names and current_role() != "owner":
            drawer("GPUs to keep", "keep", show_capacity)
        for line in view.month.unknown:
            st.markdown(f"* Unknown: {markdown(line)}")
        st.caption(
            f"Up to {view.book.at:%Y-%m-%d %H:%M} UTC, made once an hour; months and days of "
            f"{markdown(view.settings.report.timezone)}. A tenant is the "
            f"{view.month.tenant_is.replace('-', ' ')} of a job (tenants.by). Idle is allocated "
            "and not in use; free GPUs are charged to nobody. The same by command: `trimtab "
            "statement --budgets`."
        )
