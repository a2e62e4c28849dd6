"""Colours that carry meaning (after Okabe and Ito, colour-blind safe) and the common layout."""

from typing import Any

import plotly.graph_objects as go

from dashboard.common.escaping import plot_label

USED = "#0072B2"
IDLE = "#E69F00"
FREE_COLOUR = "#B8BEC6"
PROPOSED = "#CC79A7"
PROBLEM = "#D55E00"
UNATTRIBUTED_COLOUR = "#56B4E9"
SEASONAL = "#009E73"
FORECAST = "#3D9BD9"
"""A lighter blue than that of what was used: its band is told from both backgrounds."""
BANDS = (
    ("used_gpus", "in use", USED),
    ("idle_allocated_gpus", "allocated but idle", IDLE),
    ("unknown_gpus", "allocated, utilization unknown", PROBLEM),
    ("unattributed_gpus", "busy for nobody known", UNATTRIBUTED_COLOUR),
    ("free_gpus", "free", FREE_COLOUR),
)
"""Bands of a timeline of the fleet: column, name and colour."""


def safe(text: object) -> str:
    """Return untrusted text fit for a plotly label, which reads a little HTML."""
    return plot_label(text)


def with_opacity(colour: str, opacity: float) -> str:
    """Return a colour #RRGGBB with an opacity 0..1."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def hatched_marker(colour: str, shape: str) -> dict[str, Any]:
    """Return the marker of bars of a colour, with white hatching of that shape, '' for none."""
    # Without `overlay` a hatched bar has no colour, and white lines alone are not seen on white.
    pattern = {"shape": shape, "fgcolor": "#FFFFFF", "fillmode": "overlay"}
    return {"color": colour, "pattern": pattern}


def draw_line(
    figure: go.Figure, x: Any, y: Any, name: str, colour: str, *, width: float = 1.5, **more: Any
) -> None:
    """Draw a line whose gaps stay gaps; `more` are further words of the trace."""
    line = {"color": colour, "width": width} | more.pop("line", {})
    figure.add_scatter(x=x, y=y, name=name, mode="lines", line=line, connectgaps=False, **more)


HV = {"shape": "hv"}
"""The line of what holds until it changes."""


def with_layout(figure: go.Figure, *, y_title: str, height: int = 360, **layout: Any) -> go.Figure:
    """Return the figure with the common layout: units on the axis, legend on top."""
    figure.update_layout(
        height=height,
        margin={"l": 60, "r": 16, "t": 36, "b": 44},
        legend={"traceorder": "normal", "orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hovermode="x unified",
        font={"family": "system-ui, 'DejaVu Sans', sans-serif"},
        yaxis={"title": y_title, "rangemode": "tozero"},
        **layout,
    )
    return figure
