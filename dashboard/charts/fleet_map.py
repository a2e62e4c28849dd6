"""Nodes × GPUs as a heat map: one row a node, one cell a board."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dashboard.charts.palette import FREE_COLOUR, IDLE, USED, safe

UNSEEN = "#00000000"
_ROW, _FRAME = 17, 70
_WIDE = 16
"""Boards of a node in one row; what holds more, as a rack that counts as one node, has several."""
_SCALE_PIXELS = 90
"""The least height in which the colour scale can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapMeasure:
    """Meaning of a cell's colour: a column of the boards' frame in its unit, up to `top`."""

    title: str
    column: str
    unit: str
    top: float


MEASURES = (
    MapMeasure(title="in use", column="work", unit="%", top=100),
    MapMeasure(title="memory", column="memory", unit="%", top=100),
    MapMeasure(title="power", column="power_watts", unit="W", top=0),
    MapMeasure(title="temperature", column="temperature_celsius", unit="°C", top=0),
)


def fleet_map(boards: pd.DataFrame, measure: MapMeasure) -> go.Figure:
    """Return the map of boards (gpu_uuid, node, cell, text, the measure's column; unknown is NaN).

    Work is coloured from idle to used; a board that nobody holds is grey, an unknown one crossed.
    A click on a cell names its board.
    """
    lines = boards.groupby("node", sort=False)["cell"].max() // _WIDE + 1
    row_of = dict(zip(lines.index, lines.cumsum() - lines, strict=True))
    size = int(lines.sum()), min(_WIDE, int(boards["cell"].max()) + 1)
    values, free = np.full(size, np.nan), np.full(size, np.nan)
    rows = (boards["node"].map(row_of) + boards["cell"] // _WIDE).to_numpy()
    columns = (boards["cell"] % _WIDE).to_numpy()
    measured = boards[measure.column].to_numpy(dtype=float)
    is_free = boards["allocated_ratio"].to_numpy() == 0
    if measure.column != "work":
        is_free[:] = False
    free[rows[is_free], columns[is_free]] = 1
    values[rows[~is_free], columns[~is_free]] = measured[~is_free]
    unknown = ~is_free & np.isnan(measured)
    title = "GPU of the node" + (f", {_WIDE} a row" if lines.max() > 1 else "")
    axis_x, axis_y = list(range(size[1])), list(range(size[0]))
    figure = go.Figure()
    figure.add_heatmap(
        x=axis_x,
        y=axis_y,
        z=free,
        hoverinfo="skip",
        colorscale=[[0, FREE_COLOUR], [1, FREE_COLOUR]],
        showscale=False,
        xgap=2,
        ygap=2,
    )
    figure.add_heatmap(
        x=axis_x,
        y=axis_y,
        z=values,
        hoverinfo="skip",
        colorscale=[[0, IDLE], [0.5, "#F0F0F0"], [1, USED]]
        if measure.column == "work"
        else "Cividis",
        zmin=0,
        zmax=measure.top or float(np.nanmax([1.0, *values[~np.isnan(values)]])),
        colorbar={
            "title": {"text": f"{measure.title}, {measure.unit}", "side": "right"},
            "thickness": 12,
        },
        xgap=2,
        ygap=2,
    )
    if unknown.any():
        figure.add_scatter(
            x=columns[unknown],
            y=rows[unknown],
            mode="markers",
            marker={"symbol": "x-thin", "size": 9, "line": {"width": 1.5, "color": "#999999"}},
            hoverinfo="skip",
            name="unknown",
            showlegend=False,
        )
    add_clickable(
        figure,
        columns,
        rows,
        texts=boards["text"].tolist(),
        names=boards["gpu_uuid"].tolist(),
    )
    figure.update_layout(
        height=_FRAME + max(_SCALE_PIXELS, _ROW * size[0]),
        margin={"l": 8, "r": 8, "t": 8, "b": 44},
        font={"family": "system-ui, 'DejaVu Sans', sans-serif"},
        xaxis={
            "title": title,
            "dtick": 1 if size[1] <= _WIDE // 2 else _WIDE // 4,
            "range": [-0.5, size[1] - 0.5],
            "showgrid": False,
            "zeroline": False,
        },
        yaxis={
            "tickvals": list(row_of.values()),
            "ticktext": [safe(name) for name in row_of],
            "range": [size[0] - 0.5, -0.5],
            "showgrid": False,
            "zeroline": False,
            "automargin": True,
        },
        plot_bgcolor=UNSEEN,
    )
    return figure


def add_clickable(
    figure: go.Figure,
    x: Any,
    y: Any,
    *,
    texts: Sequence[str],
    names: Sequence[str],
) -> None:
    """Lay unseen marks over cells: a heat map itself tells nobody of a click.

    The nearest mark to the pointer answers, so each answers for its whole cell.
    """
    figure.add_scatter(
        x=x,
        y=y,
        mode="markers",
        marker={"opacity": 0, "size": 6},
        selected={"marker": {"opacity": 0}},
        unselected={"marker": {"opacity": 0}},
        text=texts,
        customdata=[[name] for name in names],
        hovertemplate="%{text}<extra></extra>",
        showlegend=False,
    )
    figure.update_layout(hovermode="closest", hoverdistance=-1)
