"""One board over time: work, memory against its limit, power, heat; a line per MIG instance."""

from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboard.charts.palette import (
    PROBLEM,
    PROPOSED,
    SEASONAL,
    UNATTRIBUTED_COLOUR,
    USED,
    draw_line,
    with_layout,
)

_LINES = (USED, PROPOSED, SEASONAL, UNATTRIBUTED_COLOUR, "#E69F00", "#D55E00", "#999999")
_PANELS = (
    ("utilization_ratio", "in use, %", 100.0),
    ("memory_used_mib", "memory, GiB", 1 / 1024),
    ("power_watts", "power, W", 1.0),
)

_HEAT = (
    ("temperature_celsius", "temperature of the GPU", PROBLEM),
    ("memory_temperature_celsius", "of its memory", PROPOSED),
)
_PANEL_PIXELS = 110


def board_history(history: pd.DataFrame) -> go.Figure:
    """Return the picture of StoreReader.board_history; gaps stay gaps."""
    slots = history.drop_duplicates("slot_start").sort_values("slot_start")
    heat = [line for line in _HEAT if slots[line[0]].notna().any()]
    titles = [title for _column, title, _scale in _PANELS] + ["temperature, °C"] * bool(heat)
    figure = make_subplots(rows=len(titles), cols=1, shared_xaxes=True, vertical_spacing=0.06)
    for number, (_instance, rows) in enumerate(history.groupby("mig_instance")):
        profile = rows["mig_profile"].iloc[-1]
        times = rows["slot_start"].dt.tz_localize(None)
        for panel, (column, _title, scale) in enumerate(_PANELS, start=1):
            name = f"{profile} ({_instance})" if profile else "whole GPU"
            place: dict[str, Any] = {"legendgroup": str(_instance), "row": panel, "col": 1}
            colour = _LINES[number % len(_LINES)]
            figures, in_legend = rows[column] * scale, panel == 1
            draw_line(figure, times, figures, name, colour, showlegend=in_legend, **place)
    for column, name, colour in heat:
        times = slots["slot_start"].dt.tz_localize(None)
        draw_line(figure, times, slots[column], name, colour, row=len(titles), col=1)
    limit = history["memory_total_mib"].max() / 1024
    if limit == limit:
        figure.add_hline(y=limit, line={"color": PROBLEM, "dash": "dash", "width": 1}, row=2, col=1)
    with_layout(figure, y_title=titles[0], height=_PANEL_PIXELS * len(titles) + 40)
    for panel, title in enumerate(titles, start=1):
        figure.update_yaxes(title=title, rangemode="tozero", row=panel, col=1)
    return figure
