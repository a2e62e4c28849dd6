"""A job's series with its phases behind it: steady work stays white, unknown time is hatched."""

from collections.abc import Sequence
from datetime import datetime

import plotly.graph_objects as go

from dashboard.charts.palette import FREE, IDLE, NAMELESS, PROBLEM, PROPOSED, USED, dress, faded
from forecasting.phases.records import PhaseKind, Phases, Signal

COLOUR_OF_PHASE = {
    PhaseKind.WARM_UP: NAMELESS,
    PhaseKind.STEADY: None,
    PhaseKind.DIP: PROPOSED,
    PhaseKind.SPIKE: PROBLEM,
    PhaseKind.IDLE: IDLE,
    PhaseKind.UNKNOWN: FREE,
}
_Y_TITLE = {
    Signal.POWER: "power (W)",
    Signal.ACTIVITY: "effective GPUs",
    Signal.MEMORY: "memory (MiB)",
}
_MAX_BLOCKS = 400
"""More blocks than this are slow to draw and cannot be told apart; the longest are drawn."""


def phase_segments(
    times: Sequence[datetime], values: Sequence[float | None], phases: Phases
) -> go.Figure:
    """Return the series as a line and its phases as blocks behind it, kinds in the legend.

    `times` and `values` are those the phases were found in; None and NaN are gaps in the line.
    """
    figure = go.Figure()
    naive = [at.replace(tzinfo=None) for at in times]
    shown = [segment for segment in phases.segments if COLOUR_OF_PHASE[segment.kind] is not None]
    longest = sorted(shown, key=lambda segment: segment.start - segment.end)[:_MAX_BLOCKS]
    for kind in dict.fromkeys(segment.kind for segment in phases.segments):
        blocks = [
            (naive[entry.start], naive[min(entry.end, len(naive) - 1)])
            for entry in longest
            if entry.kind is kind
        ]
        if blocks:
            _add_blocks(figure, kind, blocks, top=_top(values))
    figure.add_scatter(
        x=naive,
        y=list(values),
        name="measured",
        mode="lines",
        line={"color": USED, "width": 1.5},
        connectgaps=False,
    )
    if phases.plateau is not None:
        figure.add_hline(
            y=phases.plateau, line={"color": USED, "dash": "dot", "width": 1}, opacity=0.6
        )
    return dress(figure, y_title=_Y_TITLE[phases.signal], height=300)


def _top(values: Sequence[float | None]) -> float:
    """Return the height of the blocks: just above the highest known value."""
    known = [value for value in values if value is not None and value < float("inf")]
    return 1.05 * max([*known, 0.0]) or 1.0


def _add_blocks(
    figure: go.Figure, kind: PhaseKind, blocks: list[tuple[datetime, datetime]], *, top: float
) -> None:
    """Draw the blocks of one kind as one trace, so that the legend can switch it."""
    x: list[datetime | None] = []
    y: list[float | None] = []
    for start, end in blocks:
        x += [start, start, end, end, None]
        y += [0.0, top, top, 0.0, None]
    colour = COLOUR_OF_PHASE[kind] or USED
    figure.add_scatter(
        x=x,
        y=y,
        name=str(kind),
        mode="lines",
        fill="toself",
        fillcolor=faded(colour, 0.3),
        fillpattern={"shape": "/" if kind is PhaseKind.UNKNOWN else ""},
        line={"width": 0},
        hoverinfo="skip",
    )
