"""Energy or emissions by day, job, namespace or GPU model."""

import pandas as pd
import plotly.graph_objects as go

from dashboard.charts.palette import FREE, USED, dress, safe

_MOST_BARS = 30


def energy_bars(energy: pd.DataFrame, *, by: str, kgco2e_per_kwh: float | None = None) -> go.Figure:
    """Give GPU energy in kWh per key (see StoreReader.energy), what no job held in grey.

    With `kgco2e_per_kwh` (per kWh of GPU energy, overhead included) bars are emissions in kgCO2e.
    Keys without known power are left out; days keep their order, others are sorted by size.
    """
    known = energy.dropna(subset=["energy_kwh"])
    if by != "day":
        known = known.sort_values("energy_kwh", ascending=False).head(_MOST_BARS)
    names = [safe(key) if key else "(not allocated)" for key in known["key"]]
    factor, unit = (1.0, "kWh") if kgco2e_per_kwh is None else (kgco2e_per_kwh, "kgCO2e")
    figure = go.Figure(
        go.Bar(
            x=names,
            y=known["energy_kwh"] * factor,
            marker_color=[USED if key else FREE for key in known["key"]],
            hovertemplate=f"%{{x}}: %{{y:.1f}} {unit}<extra></extra>",
        )
    )
    what = "GPU energy" if kgco2e_per_kwh is None else "emissions"
    figure = dress(figure, y_title=f"{what} ({unit})", showlegend=False)
    figure.update_layout(
        xaxis={"title": f"{by.replace('_', ' ')}{' (UTC)' * (by == 'day')}", "type": "category"},
        hovermode="closest",
    )
    return figure
