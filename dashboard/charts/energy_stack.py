"""Energy or emissions over time, stacked by who caused them; what is not known stands out."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import plotly.graph_objects as go

from dashboard.charts.palette import (
    FREE_COLOUR,
    UNATTRIBUTED_COLOUR,
    hatched_marker,
    safe,
    with_layout,
)
from data.base.counts import count_text

_GROUP_COLOURS = ("#7B6FD0", "#44AA99", "#DDCC77", "#AA4499", "#117733", "#CC6677", "#999933")
"""After Paul Tol's muted scheme: safe for colour-blind readers, apart from the colours of meaning,
and, with a lighter indigo, to be seen on light and dark."""
_OTHERS_COLOUR = "#7A828A"
_NEARLY_WHOLE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPart:
    """One group in one period; `kind` is job, free or unattributed. Value None: unknown.

    `opens` is what a click on it names, '' where it leads nowhere.
    """

    period: str
    group: str
    kind: str
    value: float | None
    opens: str = ""


def energy_stack(
    parts: Sequence[StackPart],
    *,
    quantity: str,
    unit: str,
    period: str,
    measured: Sequence[tuple[str, float | None]],
) -> go.Figure:
    """Return bar per period, the largest groups apart, the others together, what is nobody's last.

    `measured` are all periods in order with the share of their board-time that was measured: a bar
    is too short by what is not known, and says so. `period` says what the bars are: day (UTC).
    """
    names = [safe(name) for name, _ratio in measured]
    shares = ["unknown" if not ratio else f"{100 * ratio:.1f} %" for _name, ratio in measured]
    figure = go.Figure()
    for title, colour, pattern, members in _layers(parts):
        by_period: dict[str, float] = {}
        in_layer = [part for part in parts if (part.kind, part.group) in members]
        for part in in_layer:
            if part.value is not None:
                by_period[part.period] = by_period.get(part.period, 0.0) + part.value
        opened = in_layer[0].opens if len(members) == 1 else ""
        figure.add_trace(
            go.Bar(
                x=names,
                y=[by_period.get(name) for name, _ratio in measured],
                name=safe(title),
                marker=hatched_marker(colour, pattern),
                customdata=[[opened, share] for share in shares],
                hovertemplate=(
                    f"{safe(title)}: %{{y:.3g}} {unit}<br>%{{x}}, "
                    "measured: %{customdata[1]}<extra></extra>"
                ),
            )
        )
    totals: dict[str, float] = {}
    for part in parts:
        totals[part.period] = totals.get(part.period, 0.0) + (part.value or 0.0)
    _mark_unknown(figure, names, [totals.get(name, 0.0) for name, _ratio in measured], measured)
    figure = with_layout(figure, y_title=f"{quantity} ({unit})", barmode="stack", height=400)
    figure.update_layout(
        xaxis={
            "title": period,
            "type": "category",
            "nticks": _MAX_NOTED_BARS,
            "labelalias": {name: _short(name) for name in names},
        },
        hovermode="closest",
    )
    return figure


def _short(period: str) -> str:
    """Return a day as 26 Nov, so that a week of them fits a narrow screen, all else as it is."""
    try:
        return f"{date.fromisoformat(period):%d %b}"
    except ValueError:
        return period


def _mark_unknown(
    figure: go.Figure,
    names: Sequence[str],
    totals: Sequence[float],
    measured: Sequence[tuple[str, float | None]],
) -> None:
    """Tell the measured share above every bar that is plainly too short."""
    for name, total, (_name, ratio) in zip(names, totals, measured, strict=True):
        if ratio is not None and ratio < _NEARLY_WHOLE:
            figure.add_annotation(
                x=name,
                y=total,
                text=f"{100 * ratio:.0f} % measured" if ratio else "unknown",
                showarrow=False,
                yanchor="bottom",
                textangle=0 if len(measured) <= _MAX_NOTED_BARS else -90,
            )


_MAX_NOTED_BARS = 16
"""Up to so many bars a note fits above one."""


def _layers(parts: Sequence[StackPart]) -> list[tuple[str, str, str, set[tuple[str, str]]]]:
    """Return (title, colour, hatching, members) of every layer, from the bottom up."""
    sizes: dict[str, float] = {}
    for stack_part in parts:
        if stack_part.kind not in _UNHELD_STYLES and stack_part.value is not None:
            sizes[stack_part.group] = sizes.get(stack_part.group, 0.0) + stack_part.value
    kinds = {part.group: part.kind for part in parts if part.kind not in _UNHELD_STYLES}
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))
    layers = [
        (name, colour, "", {(kinds[name], name)})
        for name, colour in zip(largest, _GROUP_COLOURS, strict=False)
    ]
    rest = {(kinds[name], name) for name in largest[len(_GROUP_COLOURS) :]}
    if rest:
        layers.append((count_text(len(rest), "other"), _OTHERS_COLOUR, "", rest))
    for kind, (colour, pattern) in _UNHELD_STYLES.items():
        members = {(part.kind, part.group) for part in parts if part.kind == kind}
        if members:
            layers.append((min(group for _kind, group in members), colour, pattern, members))
    return layers


_UNHELD_STYLES = {"unattributed": (UNATTRIBUTED_COLOUR, "/"), "free": (FREE_COLOUR, "")}
