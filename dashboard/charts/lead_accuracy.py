"""How well forecasts did by lead time: loss against naive, and whether bands kept their promise."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboard.charts.palette import FREE, IDLE, PROBLEM, USED, dress
from data.records.forecasts import Backtest

NOMINAL_PERCENT = 80


def lead_accuracy(backtests: Sequence[Backtest]) -> go.Figure:
    """Give the mean over series, by lead time: loss as a share of naive's, and coverage in %.

    Leads that no series was tested at are absent; series whose naive loss is zero do not count.
    """
    leads = sorted({one.until_hours for test in backtests for one in test.by_lead})
    rows = {lead: _means(backtests, lead) for lead in leads}
    figure = make_subplots(rows=1, cols=2, horizontal_spacing=0.18)
    names = [f"{lead:g} h" for lead in leads]
    for column, name, colour in ((0, "in use", USED), (1, "seasonal naive", IDLE)):
        figure.add_scatter(
            x=names,
            y=[rows[lead][column] for lead in leads],
            name=name,
            mode="lines+markers",
            line={"color": colour},
            row=1,
            col=1,
        )
    figure.add_scatter(
        x=names,
        y=[100 * rows[lead][2] for lead in leads],
        name="coverage",
        mode="lines+markers",
        line={"color": USED, "dash": "dot"},
        showlegend=False,
        row=1,
        col=2,
    )
    figure.add_hline(y=1, line={"color": FREE, "dash": "dash"}, row=1, col=1)
    figure.add_hline(y=NOMINAL_PERCENT, line={"color": PROBLEM, "dash": "dash"}, row=1, col=2)
    figure = dress(figure, y_title="pinball loss / naive's", height=300)
    figure.update_xaxes(title="lead time up to", type="category")
    figure.update_yaxes(title="inside q10–q90 (%)", range=[0, 105], row=1, col=2)
    return figure


def _means(backtests: Sequence[Backtest], lead: float) -> tuple[float, float, float]:
    found = [one for test in backtests for one in test.by_lead if one.until_hours == lead]
    judged = [one for one in found if one.naive_loss > 0]

    def mean(values: list[float]) -> float:
        return float(np.mean(values)) if values else float("nan")

    return (
        mean([one.loss / one.naive_loss for one in judged]),
        mean([one.seasonal_naive_loss / one.naive_loss for one in judged]),
        mean([one.coverage_ratio for one in found]),
    )
