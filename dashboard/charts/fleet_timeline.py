"""The fleet over time: used, allocated but idle, unknown, free."""

import pandas as pd
import plotly.graph_objects as go

from dashboard.charts.palette import FREE, IDLE, PROBLEM, USED, dress, faded

_BANDS = (
    ("used_gpus", "used", USED),
    ("idle_allocated_gpus", "allocated but idle", IDLE),
    ("unknown_gpus", "allocated, utilization unknown", PROBLEM),
    ("free_gpus", "free", FREE),
)


def fleet_timeline(fleet: pd.DataFrame) -> go.Figure:
    """Give the stacked areas of a fleet history (see StoreReader.fleet_history), in GPUs."""
    figure = go.Figure()
    for column, name, colour in _BANDS:
        if column == "unknown_gpus" and not fleet[column].gt(0).any():
            continue
        figure.add_scatter(
            x=fleet["slot_start"].dt.tz_localize(None),
            y=fleet[column].clip(lower=0),
            name=name,
            stackgroup="gpus",
            mode="lines",
            line={"width": 0.5, "color": colour},
            fillcolor=faded(colour, 0.8),
            hovertemplate="%{y:.1f} GPUs",
        )
    return dress(figure, y_title="GPUs")
