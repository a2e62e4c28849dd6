"""Fonts, paragraph styles and tables of the PDF; text from clusters goes through `paragraph`."""

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import matplotlib
from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.platypus import Paragraph, Table, TableStyle

from dashboard.common.escaping import shown

PAGE = A4
MARGIN = 16 * mm
_PADDING = 6
"""What reportlab's frame keeps free on each side."""
WIDTH = PAGE[0] - 2 * MARGIN - 2 * _PADDING
INK, SOFT, LINE = (colors.HexColor(word) for word in ("#1d2730", "#5c6873", "#d9dee3"))
_FONT, _BOLD = "DejaVuSans", "DejaVuSans-Bold"
_LONGEST = 200

BODY = ParagraphStyle("body", fontName=_FONT, fontSize=8.5, leading=12, textColor=INK)
SMALL = ParagraphStyle("small", parent=BODY, fontSize=7, leading=9)
NOTE = ParagraphStyle("note", parent=SMALL, textColor=SOFT)
SOFTLY = ParagraphStyle("soft", parent=SMALL, textColor=SOFT)
NUMBER = ParagraphStyle("number", parent=SMALL, alignment=2)
TITLE = ParagraphStyle("title", parent=BODY, fontName=_BOLD, fontSize=16, leading=20)
HEADING = ParagraphStyle(
    "heading", parent=BODY, fontName=_BOLD, fontSize=11, leading=14, spaceBefore=12, spaceAfter=4
)
FINDING = ParagraphStyle("finding", parent=BODY, fontSize=10.5, leading=15, spaceAfter=6)
HEAD, HEAD_NUMBER = (
    ParagraphStyle(f"head {paragraph_style.name}", parent=paragraph_style, fontName=_BOLD)
    for paragraph_style in (SMALL, NUMBER)
)


_STYLE: tuple[tuple[Any, ...], ...] = (
    ("LINEBELOW", (0, 0), (-1, 0), 0.4, LINE),
    ("VALIGN", (0, 0), (-1, -1), "TOP"),
    ("LEFTPADDING", (0, 0), (-1, -1), 2),
    ("RIGHTPADDING", (0, 0), (-1, -1), 4),
    ("TOPPADDING", (0, 0), (-1, -1), 2),
    ("BOTTOMPADDING", (0, 0), (-1, -1), 3),
)


def register_fonts() -> None:
    """Make DejaVu Sans known, which matplotlib brings: it has the signs that reports need."""
    folder = Path(matplotlib.get_data_path()) / "fonts/ttf"
    names = pdfmetrics.getRegisteredFontNames()
    for name in (_FONT, _BOLD):
        if name not in names:
            pdfmetrics.registerFont(TTFont(name, folder / f"{name}.ttf"))


def paragraph(text: object, style: ParagraphStyle = SMALL) -> Paragraph:
    """Return untrusted text as one paragraph: no markup, nothing unprintable, cut."""
    plain = shown(text)
    fits = len(plain) <= _LONGEST or style in (FINDING, BODY, NOTE)
    cut = plain if fits else f"{plain[:_LONGEST]}…"
    return Paragraph(escape(cut), style)


def table(
    header: tuple[str, ...],
    rows: list[tuple[object, ...]],
    *,
    widths: tuple[float, ...],
    numbers: tuple[int, ...] = (),
    notes: Sequence[str] = (),
) -> Table:
    """Return table over the page's width; `widths` are shares, `numbers` the right-aligned columns.

    A cell that is a tuple holds a paragraph each. The header repeats on every page. Of `notes`
    each stands below its row, over all columns; '' is none.
    """
    lines, style = [_line(header, HEAD, HEAD_NUMBER, numbers)], list(_STYLE)
    for row, note in zip_longest(rows, notes, fillvalue=""):
        lines.append(_line(tuple(row), SMALL, NUMBER, numbers))
        if note:
            at = len(lines)
            lines.append([[paragraph(note, NOTE)], *[[] for _ in header[1:]]])
            style += [("SPAN", (0, at), (-1, at)), ("NOSPLIT", (0, at - 1), (-1, at))]
        style.append(("LINEBELOW", (0, len(lines) - 1), (-1, len(lines) - 1), 0.4, LINE))
    grid = Table(lines, colWidths=[WIDTH * share / sum(widths) for share in widths], repeatRows=1)
    grid.setStyle(TableStyle(style))
    return grid


def _line(
    cells: tuple[object, ...],
    plain: ParagraphStyle,
    number: ParagraphStyle,
    numbers: tuple[int, ...],
) -> list[list[Paragraph]]:
    """Return a row's cells; a cell that is a tuple holds a paragraph each."""
    return [
        [
            paragraph(text, number if column in numbers else plain)
            for text in (cell if isinstance(cell, tuple) else (cell,))
        ]
        for column, cell in enumerate(cells)
    ]
