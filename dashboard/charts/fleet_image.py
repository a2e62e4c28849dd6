"""The whole fleet as one picture: a column of cells per node, nodes in bands, one trace in all."""

import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dashboard.charts.fleet_map import MapMeasure, add_clickable
from dashboard.charts.palette import FREE_COLOUR, IDLE, USED, safe
from dashboard.common.figures import figure_text
from data.base.counts import count_text

_CELL, _FRAME = 7, 90
_WIDE = 2.4
"""Width over height of the picture."""
_FREE = -1.0
_WORK_SCALE = [[0, FREE_COLOUR], [0.0099, FREE_COLOUR], [0.01, IDLE], [0.5, "#F0F0F0"], [1, USED]]


def fleet_image(boards: pd.DataFrame, measure: MapMeasure) -> go.Figure:
    """Return boards (node, cell, gpu_index and the measure's column) as pixels of one heat map.

    Nodes stand side by side in the frame's order, in as many bands as make the picture wide. Of
    work, boards that nobody holds are grey; what nobody reported is left blank. A click on a
    column names its node.
    """
    names = list(dict.fromkeys(boards["node"]))
    tall = int(boards["cell"].max()) + 1
    wide = max(1, math.ceil(math.sqrt(_WIDE * len(names) * (tall + 1))))
    bands = -(-len(names) // wide)
    column_of = {name: number for number, name in enumerate(names)}
    number = boards["node"].map(column_of).to_numpy()
    rows = number // wide * (tall + 1) + boards["cell"].to_numpy()
    columns = number % wide
    values = boards[measure.column].to_numpy(dtype=float)
    if measure.column == "work":
        values = np.where(boards["allocated_ratio"].to_numpy() == 0, _FREE, values)
    shape = bands * (tall + 1) - 1, min(wide, len(names))
    cells = np.full(shape, np.nan)
    cells[rows, columns] = values
    work = measure.column == "work"
    finite = values[~np.isnan(values)]
    figure = go.Figure(
        go.Heatmap(
            z=cells,
            hoverinfo="skip",
            colorscale=_WORK_SCALE if work else "Cividis",
            zmin=_FREE if work else 0,
            zmax=measure.top or float(max([1.0, *finite])),
            colorbar={
                "title": {"text": f"{measure.title}, {measure.unit}", "side": "right"},
                "thickness": 12,
            },
        )
    )
    sizes = boards.groupby("node", sort=False).size()
    means = boards.groupby("node", sort=False)[measure.column].mean()
    add_clickable(
        figure,
        [place % wide for place in range(len(names))],
        [place // wide * (tall + 1) + (tall - 1) / 2 for place in range(len(names))],
        texts=[
            f"{safe(name)}, {count_text(int(sizes[name]), 'GPU')}<br>"
            f"{measure.title}: {_mean_text(means[name], measure.unit)}"
            for name in names
        ],
        names=names,
    )
    figure.update_layout(
        height=int(min(700, _FRAME + _CELL * shape[0])),
        margin={"l": 8, "r": 8, "t": 8, "b": 40},
        font={"family": "system-ui, 'DejaVu Sans', sans-serif"},
        xaxis={"title": "nodes side by side, a cell is a GPU", "showticklabels": False,
               "showgrid": False, "zeroline": False},
        yaxis={"showticklabels": False, "showgrid": False, "zeroline": False,
               "autorange": "reversed"},
        plot_bgcolor="#00000000",
    )  # fmt: skip
    return figure


def _mean_text(value: float, unit: str) -> str:
    return f"{figure_text(value)} {unit} on average" if value == value else "not reported"
