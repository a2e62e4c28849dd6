"""The plan over time: GPUs held as planned against GPUs held now."""

from collections.abc import Callable

import plotly.graph_objects as go

from dashboard.charts.palette import FREE, PROPOSED, dress, faded
from data.records.plans import Configuration, Plan


def plan_steps(plan: Plan, boards_of: Callable[[Configuration], float]) -> go.Figure:
    """Return the planned boards per slot as steps over today's allocation, dashed.

    `boards_of` counts a configuration in boards, a MIG instance as its share of one.
    """
    times = [at.replace(tzinfo=None) for at in plan.slot_starts]
    now = sum(boards_of(job.now) for job in plan.jobs)
    planned = [sum(boards_of(job.steps[slot]) for job in plan.jobs) for slot in range(len(times))]
    figure = go.Figure()
    figure.add_scatter(
        x=times,
        y=planned,
        name="planned",
        mode="lines",
        line={"color": PROPOSED, "width": 2.5, "shape": "hv"},
        fill="tozeroy",
        fillcolor=faded(PROPOSED, 0.2),
        hovertemplate="%{y:.1f} GPUs",
    )
    figure.add_scatter(
        x=times,
        y=[now] * len(times),
        name="allocated now",
        mode="lines",
        line={"color": FREE, "width": 2, "dash": "dash"},
        hovertemplate="%{y:.1f} GPUs",
    )
    return dress(figure, y_title="GPUs", height=260)
