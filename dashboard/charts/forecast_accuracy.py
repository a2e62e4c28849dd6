"""Forecast accuracy by lead time, and the coverage of bands."""

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboard.charts.palette import FREE_COLOUR, IDLE, PROBLEM, USED, with_layout
from data.records.forecasts import LeadMeans

NOMINAL_PERCENT = 80


def lead_accuracy(leads: Sequence[LeadMeans]) -> go.Figure:
    """Return the mean over series, by lead time: loss as a share of naive's, and coverage in %."""
    # One above the other: side by side both are cut where the page is narrow.
    titles = ("error against naive", "in q10–q90 (%)")
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, subplot_titles=titles)
    names = [f"{lead.until_hours:g} h" for lead in leads]
    for name, colour, ratios in (
        ("in use", USED, [lead.loss_ratio for lead in leads]),
        ("seasonal naive", IDLE, [lead.seasonal_naive_ratio for lead in leads]),
    ):
        figure.add_scatter(
            x=names, y=ratios, name=name, mode="lines+markers", line={"color": colour}, row=1, col=1
        )
    figure.add_scatter(
        x=names,
        y=[None if lead.coverage_ratio is None else 100 * lead.coverage_ratio for lead in leads],
        name="coverage",
        mode="lines+markers",
        line={"color": USED, "dash": "dot"},
        showlegend=False,
        row=2,
        col=1,
    )
    figure.add_hline(y=1, line={"color": FREE_COLOUR, "dash": "dash"}, row=1, col=1)
    figure.add_hline(y=NOMINAL_PERCENT, line={"color": PROBLEM, "dash": "dash"}, row=2, col=1)
    figure = with_layout(figure, y_title="", height=340)
    figure.update_layout(margin={"t": 64, "l": 40}, legend={"y": 1.14})
    figure.update_annotations(font_size=13)
    figure.update_xaxes(title=None, type="category")
    figure.update_xaxes(title="lead time up to", row=2, col=1)
    figure.update_yaxes(range=[0, 105], row=2, col=1)
    return figure
