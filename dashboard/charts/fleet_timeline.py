"""The fleet over time: used, idle, unknown, unattributed, free; and the sum of the forecasts."""

from collections.abc import Sequence
from datetime import datetime

import pandas as pd
import plotly.graph_objects as go

from dashboard.charts.forecast_band import add_band
from dashboard.charts.palette import FREE, IDLE, NAMELESS, PROBLEM, USED, dress, faded
from data.records.forecasts import DemandForecast, ForecastSkipped, QuantilePath, Quantity

_BANDS = (
    ("used_gpus", "used", USED),
    ("idle_allocated_gpus", "allocated but idle", IDLE),
    ("unknown_gpus", "allocated, utilization unknown", PROBLEM),
    ("unattributed_gpus", "busy for nobody known", NAMELESS),
    ("free_gpus", "free", FREE),
)
_RARE = ("unknown_gpus", "unattributed_gpus")


def fleet_timeline(
    fleet: pd.DataFrame, forecasts: Sequence[DemandForecast | ForecastSkipped] = ()
) -> go.Figure:
    """Give the stacked areas of a fleet history (see StoreReader.fleet_history), in GPUs.

    Forecasts are added up to a band of used GPUs. Quantiles of jobs are summed as if all jobs
    peaked together, so the band is wider than the q10-q90 of the sum.
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
    total = total_demand(forecasts)
    if total is not None:
        times, path = total
        add_band(figure, times, path, 1.0)
    return dress(figure, y_title="GPUs")


def total_demand(
    forecasts: Sequence[DemandForecast | ForecastSkipped],
) -> tuple[list[datetime], QuantilePath] | None:
    """Add up the demand of jobs whose forecasts share the first one's slots.

    Give its times and its quantiles, those of the jobs added up as if all peaked together.
    """
    known = [one for one in forecasts if isinstance(one, DemandForecast)]
    paths = [
        path
        for one in known
        if one.slot_starts == known[0].slot_starts
        and (path := one.path(Quantity.EFFECTIVE_GPUS)) is not None
    ]
    if not paths:
        return None
    total = QuantilePath(
        quantity=Quantity.EFFECTIVE_GPUS,
        model="sum of jobs",
        q10=tuple(map(sum, zip(*(path.q10 for path in paths), strict=True))),
        q50=tuple(map(sum, zip(*(path.q50 for path in paths), strict=True))),
        q90=tuple(map(sum, zip(*(path.q90 for path in paths), strict=True))),
        backtest=None,
    )
    return [at.replace(tzinfo=None) for at in known[0].slot_starts], total
