"""The table of how many boards of each model to keep."""

import pandas as pd
import streamlit as st

from dashboard.capacity import WEEKS, CapacityRow, capacity_rows
from dashboard.figure_text import count_text
from dashboard.web.page import number, plain, table
from dashboard.web.session import current_world


def show_capacity() -> None:
    """Show what the demand of the last weeks asks to keep, beside what is there."""
    world = current_world()
    rows = capacity_rows(world.reader, world.settings.settings)
    st.subheader("Boards to keep")
    for row in rows:
        st.markdown(f"* {plain(row.gpu_model)}: {plain(_sentence(row))}")
    table(pd.DataFrame([_cells(row) for row in rows]), "capacity")
    st.caption(
        f"From the demand of the last {count_text(WEEKS, 'week')}, by the hour: GPUs that jobs "
        "held or waited for. A board that is kept costs its price used or not, a GPU-hour above "
        "the boards costs the on-demand price, or planning.shortfall_weight times the board's. "
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
        "boards": row.boards,
        "to keep": row.to_keep,
        "weeks": weeks,
        "demand, mean": row.demand_mean,
        "demand, q95": row.demand_q95,
        "waited, GPU-h": row.waited_gpu_hours,
        "board-hour": row.kept_price,
        "missing GPU-hour": row.missing_price,
        f"month now, {row.currency}": row.cost_now,
        f"month kept, {row.currency}": row.cost_kept,
        "missing, GPU-h a month": row.missing_gpu_hours,
        "autoscaler limit, boards": row.max_boards,
        "prices": row.prices_from,
        "hours known": row.hours_known,
    }
