"""How well forecasts did by lead time: loss against naive, and whether bands kept their promise."""

from collections.abc import Sequence, Set

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboard.charts.palette import FREE, IDLE, PROBLEM, USED, dress
from data.records.forecasts import Backtest

NOMINAL_PERCENT = 80
_ALIKE = 1.05
"""Leads that differ by no more are one: a horizon that begins a slot later ends a slot later."""


def lead_accuracy(backtests: Sequence[Backtest]) -> go.Figure:
    """Return the mean over series, by lead time: loss as a share of naive's, and coverage in %.

    Leads that no series was tested at are absent; series whose naive loss is zero do not count.
    """
    leads = _alike({accuracy.until_hours for test in backtests for accuracy in test.by_lead})
    rows = [_means(backtests, alike) for alike in leads.values()]
    # Titles stand above: beside the axis, that of the right one lies on the left one on a phone.
    titles = ("pinball loss relative to naive", "inside q10–q90 (%)")
    figure = make_subplots(rows=1, cols=2, horizontal_spacing=0.12, subplot_titles=titles)
    names = [f"{lead:g} h" for lead in leads]
    for column, name, colour in ((0, "in use", USED), (1, "seasonal naive", IDLE)):
        figure.add_scatter(
            x=names,
            y=[row[column] for row in rows],
            name=name,
            mode="lines+markers",
            line={"color": colour},
            row=1,
            col=1,
        )
    figure.add_scatter(
        x=names,
        y=[100 * row[2] for row in rows],
        name="coverage",
        mode="lines+markers",
        line={"color": USED, "dash": "dot"},
        showlegend=False,
        row=1,
        col=2,
    )
    figure.add_hline(y=1, line={"color": FREE, "dash": "dash"}, row=1, col=1)
    figure.add_hline(y=NOMINAL_PERCENT, line={"color": PROBLEM, "dash": "dash"}, row=1, col=2)
    figure = dress(figure, y_title="", height=320)
    figure.update_layout(margin={"t": 64, "l": 40}, legend={"y": 1.14})
    figure.update_annotations(font_size=13)
    figure.update_xaxes(title="lead time up to", type="category")
    figure.update_yaxes(range=[0, 105], row=1, col=2)
    return figure


def _alike(leads: Set[float]) -> dict[float, frozenset[float]]:
    """Return the leads that are one by the shortest of them, in order."""
    groups: dict[float, frozenset[float]] = {}
    first = 0.0
    for lead in sorted(leads):
        if lead > _ALIKE * first:
            first = lead
        groups[first] = groups.get(first, frozenset()) | {lead}
    return groups


def _means(backtests: Sequence[Backtest], leads: Set[float]) -> tuple[float, float, float]:
    found = [
        accuracy for test in backtests for accuracy in test.by_lead if accuracy.until_hours in leads
    ]
    judged = [accuracy for accuracy in found if accuracy.naive_loss > 0]

    def mean(values: list[float]) -> float:
        return float(np.mean(values)) if values else float("nan")

    return (
        mean([accuracy.loss / accuracy.naive_loss for accuracy in judged]),
        mean([accuracy.seasonal_naive_loss / accuracy.naive_loss for accuracy in judged]),
        mean([accuracy.coverage_ratio for accuracy in found]),
    )
