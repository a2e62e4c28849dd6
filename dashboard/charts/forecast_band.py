"""Charts of forecasts: history a line, forecast a band, plan steps on top, limit dashed."""

from collections.abc import Sequence
from datetime import datetime

import pandas as pd
import plotly.graph_objects as go

from dashboard.charts.palette import (
    BANDS,
    FORECAST,
    HV,
    PROBLEM,
    PROPOSED,
    USED,
    draw_line,
    with_layout,
    with_opacity,
)
from data.records.forecasts import DemandForecast, GroupForecast, QuantilePath


def forecast_band(
    history: pd.DataFrame,
    column: str,
    *,
    y_title: str,
    forecast: DemandForecast | GroupForecast | None = None,
    path: QuantilePath | None = None,
    steps: Sequence[float] | None = None,
    limit: float | None = None,
    scale: float = 1.0,
) -> go.Figure:
    """Return history and forecast of one quantity; values are multiplied by `scale` for the axis.

    `steps` are the planned values per slot, in the axis' unit like `limit`.
    """
    figure = go.Figure()
    past = history["slot_start"].dt.tz_localize(None)
    draw_line(figure, past, history[column] * scale, "measured", USED)
    if forecast is not None:
        times = [at.replace(tzinfo=None) for at in forecast.slot_starts]
        if path is not None:
            add_band(figure, times, path, scale)
        if steps is not None:
            draw_line(figure, times, list(steps), "plan", PROPOSED, width=2.5, line=HV)
    if limit is not None:
        figure.add_hline(
            y=limit, line={"color": PROBLEM, "dash": "dash", "width": 1.5}, annotation_text="limit"
        )
    return with_layout(figure, y_title=y_title, height=300)


def add_band(figure: go.Figure, times: list[datetime], path: QuantilePath, scale: float) -> None:
    """Draw q10 to q90 as a band and q50 as a dotted line, values times `scale`."""
    low, middle, high = ([entry * scale for entry in row] for row in (path.q10, path.q50, path.q90))
    draw_band(figure, times, (low, high), middle, "forecast q10–q90")


def draw_band(
    figure: go.Figure,
    times: Sequence[datetime],
    edges: tuple[Sequence[float], Sequence[float]],
    middle: Sequence[float],
    name: str,
) -> None:
    """Draw the band between two edges, low and high, and the median as a dotted line."""
    low, high = edges
    figure.add_scatter(
        x=[*times, *reversed(times)],
        y=[*high, *reversed(low)],
        name=name,
        fill="toself",
        fillcolor=with_opacity(FORECAST, 0.4),
        line={"width": 0},
        hoverinfo="skip",
    )
    line = {"color": FORECAST, "dash": "dot", "width": 2}
    figure.add_scatter(x=times, y=middle, name="forecast q50", line=line)


_OPTIONAL_COLUMNS = ("unknown_gpus", "unattributed_gpus")


def fleet_timeline(
    fleet: pd.DataFrame, demand: tuple[Sequence[datetime], QuantilePath] | None = None
) -> go.Figure:
    """Return the stacked areas of a fleet history (see StoreReader.fleet_history), in GPUs.

    `demand` is the sum of the jobs' forecasts in used GPUs (see StoreReader.demand_total). Their
    quantiles are summed as if all jobs peaked together, so the band is wider than the q10-q90 of
    the sum.
    """
    figure = go.Figure()
    for column, name, colour in BANDS:
        if column in _OPTIONAL_COLUMNS and not fleet[column].gt(0).any():
            continue
        figure.add_scatter(
            x=fleet["slot_start"].dt.tz_localize(None),
            y=fleet[column].clip(lower=0),
            name=name,
            stackgroup="gpus",
            mode="lines",
            line={"width": 0.5, "color": colour},
            fillcolor=with_opacity(colour, 0.8),
            hovertemplate="%{y:.1f} GPUs",
        )
    if demand is not None:
        times, path = demand
        add_band(figure, [at.replace(tzinfo=None) for at in times], path, 1.0)
    return with_layout(figure, y_title="GPUs")
