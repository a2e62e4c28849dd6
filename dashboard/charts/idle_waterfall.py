"""Waterfall from the GPUs that jobs hold to those that recommendations free, step by step."""

import plotly.graph_objects as go

from dashboard.accounting.savings.idle_bridge import IdleSum
from dashboard.charts.palette import FREE, IDLE, PROPOSED, USED, dress


def idle_waterfall(idle: IdleSum) -> go.Figure:
    """Return a bar for each step; what is left of the idle GPUs at the end is what is freed."""
    steps = [
        ("held by jobs", 0.0, idle.held, FREE),
        ("in use", idle.idle, idle.work, USED),
        ("idle", 0.0, idle.idle, IDLE),
    ]
    top = idle.idle
    for name, gpus in (("needed at peaks", idle.peaks), *(row[:2] for row in idle.stays)):
        top -= gpus
        steps.append((str(name), top, gpus, FREE))
    for change, gpus, _jobs in idle.after:
        top -= gpus
        steps.append((f"after a change: {change}", top, gpus, PROPOSED))
    steps.append(("freed by recommendations", 0.0, idle.freed, PROPOSED))
    names, starts, widths, colours = zip(*reversed(steps), strict=True)
    bars = go.Bar(
        y=names,
        x=widths,
        base=starts,
        orientation="h",
        marker={"color": colours},
        text=[f"{width:.1f}" for width in widths],
        textposition="auto",
        hovertemplate="%{y}: %{x:.3g} GPUs<extra></extra>",
        showlegend=False,
    )
    figure = dress(go.Figure(bars), y_title="", height=90 + 30 * len(steps))
    figure.update_layout(
        xaxis={"title": "GPUs, mean", "rangemode": "tozero"},
        yaxis={"type": "category", "automargin": True},
        hovermode="closest",
    )
    return figure
