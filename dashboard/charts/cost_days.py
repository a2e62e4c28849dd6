"""Cost of each day by state of use; GPU-hours where no price is known."""

import pandas as pd
import plotly.graph_objects as go

from dashboard.charts.palette import (
    FREE_COLOUR,
    IDLE,
    PROBLEM,
    UNATTRIBUTED_COLOUR,
    USED,
    hatched_marker,
    with_layout,
)

COLOURS = {
    "used": (USED, ""),
    "idle": (IDLE, ""),
    "shared": ("#44AA99", ""),
    "held, activity unknown": (PROBLEM, "/"),
    "free": (FREE_COLOUR, ""),
    "unattributed": (UNATTRIBUTED_COLOUR, "/"),
}
"""What colour and hatching each state of use has, from the bottom up."""
_FEW_DAYS = 8


def cost_days(charges: pd.DataFrame, *, unit: str, zone: str) -> go.Figure:
    """Return a bar a day of `zone`, stacked by state; `unit` GPU-h draws hours, another one money.

    `charges` are those of a daily statement (`dashboard/accounting/cost/charges.py`).
    """
    is_money = unit != "GPU-h"
    amounts = ["gpu_cost", "electricity_cost"] if is_money else ["hours"]
    charges = charges.sort_values("start")
    days = charges["start"].dt.tz_convert(zone).dt.strftime("%d %b")
    sums = charges[amounts].sum(axis=1, min_count=1).groupby([charges["state"], days]).sum()
    names = list(dict.fromkeys(days))
    figure = go.Figure()
    for state, (colour, pattern) in COLOURS.items():
        if state not in sums.index.get_level_values(0):
            continue
        figure.add_bar(
            x=names,
            y=sums[state].reindex(names),
            name=state,
            marker=hatched_marker(colour, pattern),
            hovertemplate=f"{state}: %{{y:,.3g}} {unit}<extra></extra>",
        )
    title = f"cost ({unit})" if is_money else "GPU-hours"
    figure = with_layout(figure, y_title=title, barmode="stack")
    ticks = min(len(names), _FEW_DAYS)
    figure.update_layout(xaxis={"title": f"day ({zone})", "type": "category", "nticks": ticks})
    return figure
