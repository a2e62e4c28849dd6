"""What a mixed forecast rests on: the members' weights by lead time."""

from collections.abc import Sequence

import plotly.graph_objects as go

from dashboard.charts.palette import FREE, IDLE, NAMELESS, PROPOSED, SEASONAL, USED, dress, faded
from data.records.forecasts import LeadWeights

_COLOURS = (FREE, NAMELESS, USED, PROPOSED, IDLE, SEASONAL)

_BARS, _LEGEND_LINE = 240, 20
"""Pixels."""


def member_weights(weights: Sequence[LeadWeights]) -> go.Figure:
    """Return stacked bars, one per lead time, of the members' weights in %."""
    names = [f"{weight.until_hours:g} h" for weight in weights]
    members = [member for member, _weight in weights[0].weights] if weights else []
    figure = go.Figure()
    for position, member in enumerate(members):
        figure.add_bar(
            x=names,
            y=[100 * dict(weight.weights)[member] for weight in weights],
            name=member,
            marker_color=faded(_COLOURS[position % len(_COLOURS)], 0.9),
            hovertemplate="%{y:.0f} %",
        )
    height = _BARS + _LEGEND_LINE * len(members)  # in a narrow column each has a line of its own
    figure = dress(figure, y_title="weight (%)", height=height, barmode="stack")
    figure.update_xaxes(title="lead time up to", type="category")
    return figure
