"""The fleet over the week as a vector drawing: used, idle, unknown and free GPUs, stacked."""

import itertools
import re
from datetime import timedelta
from typing import Literal

import pandas as pd
from reportlab.graphics import renderSVG
from reportlab.graphics.shapes import Drawing, Group, Line, Polygon, Rect, String
from reportlab.lib.colors import HexColor

from dashboard.charts.palette import BANDS
from dashboard.reports.render.pdf_style import LINE, SOFT, WIDTH, register_fonts
from dashboard.reports.week.week import Week
from data.base.units import SECONDS_PER_HOUR

_LEFT, _BOTTOM, _HEIGHT, _TOP = 34, 26, 130, 18
_FONT, _SIZE = "DejaVuSans", 6.5
_LABEL = 36
"""About as wide as the label of a day."""
_GAP_HOURS = 1.5
_SVG_HEAD = re.compile(r'.*<svg width="[0-9.]+" height="[0-9.]+"', re.DOTALL)
_SVG_TITLE = re.compile(r"<title>.*</desc>", re.DOTALL)


def pdf_timeline(fleet: pd.DataFrame, week: Week) -> Drawing:
    """Return the picture of an hourly fleet history (StoreReader.fleet_history), in GPUs."""
    drawing = Drawing(WIDTH, _BOTTOM + _HEIGHT + _TOP)
    most = max(1.0, float(fleet["boards"].max()))
    hours = (fleet["slot_start"] - pd.Timestamp(week.start)).dt.total_seconds() / SECONDS_PER_HOUR
    scale_x, scale_y = (WIDTH - _LEFT) / week.hours, _HEIGHT / most
    bands = fleet[[name for name, _label, _colour in BANDS]].clip(lower=0).fillna(0.0)
    tops = bands.cumsum(axis=1)
    for piece in _pieces(hours):
        for number, (name, _label, colour) in enumerate(BANDS):
            below = tops.iloc[piece, number - 1] if number else 0.0 * tops.iloc[piece, 0]
            upper, lower = (
                _steps(hours.iloc[piece], tops.iloc[piece][name]),
                _steps(hours.iloc[piece], below),
            )
            points = [
                value
                for hour, gpus in (*upper, *reversed(lower))
                for value in (_LEFT + hour * scale_x, _BOTTOM + gpus * scale_y)
            ]
            drawing.add(Polygon(points, fillColor=HexColor(colour), strokeColor=None))
    drawing.add(_axes(week, most, scale_x, scale_y))
    drawing.add(_legend([band for band in BANDS if bands[band[0]].gt(0).any()]))
    return drawing


def svg_timeline(fleet: pd.DataFrame, week: Week) -> str:
    """Return the same picture as an SVG element, with its sums in words for who cannot see it."""
    register_fonts()
    means = fleet[["used_gpus", "idle_allocated_gpus", "boards"]].mean()
    words = (
        "GPUs of the fleet by the hour, stacked: used, idle, unknown, free. On average "
        f"{means['used_gpus']:,.1f} of {means['boards']:,.1f} were used and "
        f"{means['idle_allocated_gpus']:,.1f} were allocated but idle."
    )
    drawn = renderSVG.drawToString(pdf_timeline(fleet, week))
    drawn = _SVG_HEAD.sub(f'<svg role="img" aria-label="{words}" width="100%"', drawn, count=1)
    return _SVG_TITLE.sub(f"<title>{words}</title>", drawn).replace(_FONT, "inherit")


def _pieces(hours: "pd.Series[float]") -> list[slice]:
    """Return the runs without a gap: an hour nobody measured is drawn by nobody."""
    gaps = (hours.diff() > _GAP_HOURS).to_numpy().nonzero()[0]
    breaks = [0, *map(int, gaps), len(hours)]
    return [slice(start, stop) for start, stop in itertools.pairwise(breaks)]


def _steps(hours: "pd.Series[float]", values: "pd.Series[float]") -> list[tuple[float, float]]:
    """Return a line of hourly steps: each value holds for its hour."""
    pairs = zip(hours, values, strict=True)
    return [(hour + edge, value) for hour, value in pairs for edge in (0.0, 1.0)]


def _text(x: float, y: float, text: str, anchor: Literal["start", "end"] = "start") -> String:
    return String(x, y, text, fontName=_FONT, fontSize=_SIZE, fillColor=SOFT, textAnchor=anchor)


def _axes(week: Week, most: float, scale_x: float, scale_y: float) -> Group:
    axes = Group()
    for share in (0.0, 0.5, 1.0):
        y = _BOTTOM + share * most * scale_y
        axes.add(Line(_LEFT, y, WIDTH, y, strokeColor=LINE, strokeWidth=0.4))
        axes.add(_text(_LEFT - 4, y - 2, f"{share * most:,.0f}", "end"))
    axes.add(_text(0, _BOTTOM + _HEIGHT + 8, "GPUs"))
    for at in week.midnights():
        x = _LEFT + (at - week.start) / timedelta(hours=1) * scale_x
        axes.add(Line(x, _BOTTOM, x, _BOTTOM - 3, strokeColor=SOFT, strokeWidth=0.4))
        if x + _LABEL <= WIDTH:
            axes.add(_text(x, _BOTTOM - 11, f"{week.date_of(at):%a %d %b}"))
    axes.add(_text(WIDTH, 4, f"time ({week.zone})", "end"))
    return axes


def _legend(bands: list[tuple[str, str, str]]) -> Group:
    legend, x = Group(), float(_LEFT)
    for _name, label, colour in bands:
        y = _BOTTOM + _HEIGHT + 8
        box = Rect(x, y - 1, 7, 7)
        box.fillColor, box.strokeColor = HexColor(colour), None
        legend.add(box)
        legend.add(_text(x + 10, y, label))
        x += 22 + 3.9 * len(label)
    return legend
