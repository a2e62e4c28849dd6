"""Series of jobs: phases behind them, unknown time hatched; and earlier runs of the same job."""

from collections.abc import Sequence
from datetime import datetime

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboard.charts.palette import (
    FREE,
    IDLE,
    NAMELESS,
    PROBLEM,
    PROPOSED,
    USED,
    draw_line,
    dress,
    faded,
    safe,
)
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
    segments = [segment for segment in phases.segments if COLOUR_OF_PHASE[segment.kind] is not None]
    longest = sorted(segments, key=lambda segment: segment.start - segment.end)[:_MAX_BLOCKS]
    for kind in dict.fromkeys(segment.kind for segment in phases.segments):
        blocks = [
            (naive[entry.start], naive[min(entry.end, len(naive) - 1)])
            for entry in longest
            if entry.kind is kind
        ]
        if blocks:
            _add_blocks(figure, kind, blocks, top=_top(values))
    draw_line(figure, naive, list(values), "measured", USED)
    if phases.plateau is not None:
        figure.add_hline(
            y=phases.plateau, line={"color": USED, "dash": "dot", "width": 1}, opacity=0.6
        )
    return dress(figure, y_title=_Y_TITLE[phases.signal], height=300)


def _top(values: Sequence[float | None]) -> float:
    """Return the height of the blocks: just above the highest known value."""
    finite = [value for value in values if value is not None and value < float("inf")]
    return 1.05 * max([*finite, 0.0]) or 1.0


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


def run_lines(hours: pd.DataFrame, names: dict[str, str], this: str) -> go.Figure:
    """Return a panel per run, named by `names` in order: GPUs held and used per hour.

    `hours` is StoreReader.job_hours; the run `this` is drawn in the accent colour.
    """
    figure = make_subplots(
        rows=1,
        cols=len(names),
        shared_yaxes=True,
        subplot_titles=[safe(text) for text in names.values()],
        horizontal_spacing=0.02,
    )
    for panel, job_id in enumerate(names, start=1):
        rows = hours[hours["job_id"] == job_id]
        since = (rows["slot_start"] - rows["slot_start"].min()).dt.total_seconds() / 3600
        for column, name, colour in (
            ("gpu_hours", "held", FREE),
            ("used_gpu_hours", "in use", PROPOSED if job_id == this else USED),
        ):
            place = {"showlegend": panel == 1, "row": 1, "col": panel}
            draw_line(figure, since, rows[column], name, colour, **place)
    dress(figure, y_title="GPUs", height=240)
    figure.update_xaxes(title="hours since start")
    # Above the runs' names, which stand where the legend of other charts is.
    figure.update_layout(legend={"y": 1.16}, margin={"t": 64})
    figure.update_annotations(font_size=11)
    return figure
