"""Earlier runs of the same job beside each other."""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboard.charts.palette import (
    FREE,
    PROPOSED,
    USED,
    draw_line,
    dress,
    safe,
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
