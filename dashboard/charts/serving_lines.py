"""One inference service: demand against what its replicas carry, and replicas against those needed.

Both pictures have the same time axis: what was read, and the slots ahead.
"""

from datetime import datetime

import pandas as pd
import plotly.graph_objects as go

from dashboard.charts.forecast_band import draw_band
from dashboard.charts.palette import HV, PROBLEM, PROPOSED, SEASONAL, USED, draw_line, with_layout
from data.records.serving import ServiceOutlook


def demand_against_capacity(history: pd.DataFrame, outlook: ServiceOutlook) -> go.Figure:
    """Return requests/s as read and foreseen, and what the replicas of each time carry as promised.

    `history` has slot_start, requests_per_second, carried_per_second (NaN: unknown) and is_late.
    """
    figure = go.Figure()
    times = _naive(history["slot_start"])
    draw_line(figure, times, history["requests_per_second"], "requests/s", USED)
    late = history[history["is_late"].astype(bool) & history["requests_per_second"].notna()]
    if len(late):
        figure.add_scatter(
            x=_naive(late["slot_start"]),
            y=late["requests_per_second"],
            name="waited too long",
            mode="markers",
            marker={"color": PROBLEM, "size": 7, "symbol": "x"},
        )
    if outlook.rates_q95:
        edges = (outlook.rates_q50, outlook.rates_q95)
        draw_band(figure, _ahead(outlook), edges, outlook.rates_q50, "forecast q50–q95")
    carried = history["carried_per_second"].tolist()
    until = _ahead(outlook)[-1:]
    if outlook.carried_per_second is not None:
        draw_line(
            figure,
            [*times, *until],
            [*carried, *(outlook.carried_per_second for _end in until)],
            "replicas there carry",
            SEASONAL,
            width=2,
            line=HV,
        )
    return with_layout(figure, y_title="requests/s", height=300)


def replicas_against_need(history: pd.DataFrame, outlook: ServiceOutlook) -> go.Figure:
    """Return the replicas that were there (column replicas), and those needed by slot ahead."""
    figure = go.Figure()
    times, until = _naive(history["slot_start"]), _ahead(outlook)[-1:]
    there = [*history["replicas"], *(outlook.replicas for _end in until)]
    draw_line(figure, [*times, *until], there, "replicas there", USED, width=2, line=HV)
    if outlook.required_replicas:
        ahead, need = _ahead(outlook), outlook.required_replicas
        draw_line(figure, ahead, need, "replicas needed", PROPOSED, width=2, line=HV)
    return with_layout(figure, y_title="replicas", height=260)


def _naive(times: "pd.Series[pd.Timestamp]") -> list[datetime]:
    return [at.replace(tzinfo=None) for at in times]


def _ahead(outlook: ServiceOutlook) -> list[datetime]:
    return [start.replace(tzinfo=None) for start in outlook.slot_starts]
