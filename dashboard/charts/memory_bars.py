"""Memory of a training job on one GPU of each type, stacked against the type's memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from dashboard.charts.palette import (
    FREE_COLOUR,
    IDLE,
    PROBLEM,
    SEASONAL,
    USED,
    safe,
    with_layout,
    with_opacity,
)

_COLOURS = {
    "weights": USED,
    "gradients": with_opacity(USED, 0.7),
    "optimizer states": with_opacity(USED, 0.45),
    "other states": with_opacity(USED, 0.25),
    "activations": SEASONAL,
    "logits and loss": with_opacity(SEASONAL, 0.6),
    "buffers": with_opacity(SEASONAL, 0.3),
    "kept by the allocator": with_opacity(IDLE, 0.6),
    "CUDA context and NCCL": FREE_COLOUR,
}
"""States in shades of one colour, what comes and goes in another, what is no tensor in grey."""

_GROUPS = {
    "weights cast by autocast": "other states",
    "optimizer step": "other states",
    "copies": "other states",
    "stream between layers": "activations",
    "one recomputed layer": "activations",
    "gradient of the head": "logits and loss",
}
"""Parts of the breakdown that are shown together; those named nowhere are buffers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBar:
    """One bar: its label, (part, GiB) pairs, what of the GPU is usable, the 95 % bound, GiB."""

    label: str
    parts: tuple[tuple[str, float], ...]
    limit_gib: float
    bound_gib: float


def memory_bars(bars: Sequence[MemoryBar]) -> go.Figure:
    """Return a stacked bar per GPU type, a mark at its usable memory and one at the 95 % bound."""
    labels = [safe(bar.label) for bar in bars]
    figure = go.Figure()
    for group, colour in _COLOURS.items():
        sizes = [sum(size for name, size in bar.parts if _group(name) == group) for bar in bars]
        if any(sizes):
            figure.add_bar(
                name=group,
                x=labels,
                y=sizes,
                marker_color=colour,
                hovertemplate=f"{group}: %{{y:.2f}} GiB<extra></extra>",
            )
    for name, values, symbol, colour in (
        ("usable memory", [bar.limit_gib for bar in bars], "line-ew-open", PROBLEM),
        ("95 % bound", [bar.bound_gib for bar in bars], "diamond-open", IDLE),
    ):
        figure.add_scatter(
            name=name,
            x=labels,
            y=values,
            mode="markers",
            marker={"symbol": symbol, "size": 28 if name.startswith("usable") else 9,
                "color": colour, "line": {"width": 3 if name.startswith("usable") else 1.5}},
            hovertemplate=f"{name}: %{{y}} GiB<extra></extra>",
        )  # fmt: skip
    figure = with_layout(figure, y_title="GiB on the fullest GPU", barmode="stack")
    figure.update_layout(xaxis={"title": "GPU type and plan", "type": "category"})
    figure.update_layout(hovermode="closest")
    return figure


def _group(part: str) -> str:
    return part if part in _COLOURS else _GROUPS.get(part, "buffers")
