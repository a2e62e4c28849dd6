"""Predicted against realised: a dumbbell per recommendation, and the sums over time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import plotly.graph_objects as go

from dashboard.charts.palette import FREE, PROPOSED, USED, dress, safe
from data.records.recommendations import Range


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Promise and result of one recommendation, both in GPU-hours."""

    name: str
    measured_at: datetime
    predicted: Range
    realised: Range


def savings_dumbbell(pairs: Sequence[Pair]) -> go.Figure:
    """Return promised and realised GPU-hours of each recommendation, joined by a line."""
    names = [safe(pair.name) for pair in pairs]
    figure = go.Figure()
    for name, entry in zip(names, pairs, strict=True):
        figure.add_trace(
            go.Scatter(
                x=[entry.predicted.central, entry.realised.central],
                y=[name, name],
                mode="lines",
                line={"color": FREE, "width": 3},
                showlegend=False,
                hoverinfo="skip",
            )
        )
    figure.add_trace(_dots(names, [pair.predicted for pair in pairs], "predicted", PROPOSED))
    figure.add_trace(_dots(names, [pair.realised for pair in pairs], "realised", USED))
    figure = dress(figure, y_title="", height=130 + 34 * len(pairs))
    figure.update_layout(
        xaxis={"title": "GPU-hours saved over the hours measured", "rangemode": "tozero"},
        yaxis={"type": "category"},
        hovermode="closest",
    )
    return figure


def _dots(names: list[str], ranges: list[Range], label: str, colour: str) -> go.Scatter:
    return go.Scatter(
        x=[entry.central for entry in ranges],
        y=names,
        mode="markers",
        name=label,
        marker={
            "color": colour,
            "size": 11,
            "symbol": "circle" if label == "predicted" else "diamond",
        },
        error_x={
            "type": "data",
            "array": [entry.high - entry.central for entry in ranges],
            "arrayminus": [entry.central - entry.low for entry in ranges],
            "color": colour,
            "thickness": 1,
        },
        hovertemplate=f"%{{y}}: {label} %{{x:.3g}} GPU-h<extra></extra>",
    )
