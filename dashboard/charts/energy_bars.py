"""Energy by day, job, namespace or GPU model."""

import pandas as pd
import plotly.graph_objects as go

from dashboard.charts.palette import FREE, USED, dress, safe


def energy_bars(energy: pd.DataFrame, *, by: str) -> go.Figure:
    """Give GPU energy in kWh per key (see StoreReader.energy), what no job held in grey."""
    known = energy.dropna(subset=["energy_kwh"])
    if by != "day":
        known = known.sort_values("energy_kwh", ascending=False).head(30)
    names = [safe(key) if key else "(not allocated)" for key in known["key"]]
    figure = go.Figure(
        go.Bar(
            x=names,
            y=known["energy_kwh"],
            marker_color=[USED if key else FREE for key in known["key"]],
            hovertemplate="%{x}: %{y:.1f} kWh<extra></extra>",
        )
    )
    figure = dress(figure, y_title="GPU energy (kWh)", showlegend=False)
    figure.update_layout(
        xaxis={"title": by.replace("_", " "), "type": "category"}, hovermode="closest"
    )
    return figure
