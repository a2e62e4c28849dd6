"""The fleet over time: used, idle, unknown, unattributed, free; and the sum of the forecasts."""

from collections.abc import Sequence
from datetime import datetime

import pandas as pd
import plotly.graph_objects as go

from dashboard.charts.forecast_band import add_band
from dashboard.charts.palette import FREE, IDLE, NAMELESS, PROBLEM, USED, dress, faded
from data.records.forecasts import QuantilePath

_BANDS = (
    ("used_gpus", "used", USED),
    ("idle_allocated_gpus", "allocated but idle", IDLE),
    ("unknown_gpus", "allocated, utilization unknown", PROBLEM),
    ("unattributed_gpus", "busy for nobody known", NAMELESS),
    ("free_gpus", "free", FREE),
)
_RARE = ("unknown_gpus", "unattributed_gpus")


def fleet_timeline(
    fleet: pd.DataFrame, demand: tuple[Sequence[datetime], QuantilePath] | None = None
) -> go.Figure:
    """Return the stacked areas of a fleet history (see StoreReader.fleet_history), in GPUs.

    `demand` is the sum of the jobs' forecasts in used GPUs (see StoreReader.demand_total). Their
    quantiles are summed as if all jobs peaked together, so the band is wider than the q10-q90 of
    the sum.
    """
    figure = go.Figure()
    for column, name, colour in _BANDS:
        if column in _RARE and not fleet[column].gt(0).any():
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
    if demand is not None:
        times, path = demand
        add_band(figure, [at.replace(tzinfo=None) for at in times], path, 1.0)
    return dress(figure, y_title="GPUs")
