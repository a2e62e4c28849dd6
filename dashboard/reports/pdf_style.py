"""Fonts, paragraph styles and tables of the PDF; text from clusters goes through `paragraph`."""

from pathlib import Path
from xml.sax.saxutils import escape

import matplotlib
from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.platypus import Paragraph, Table, TableStyle

from dashboard.foreign_text import shown

PAGE = A4
MARGIN = 16 * mm
_PADDING = 6
"""What reportlab's frame keeps free on each side."""
WIDTH = PAGE[0] - 2 * MARGIN - 2 * _PADDING
INK, SOFT, LINE = (colors.HexColor(one) for one in ("#1d2730", "#5c6873", "#d9dee3"))
_FONT, _BOLD = "DejaVuSans", "DejaVuSans-Bold"
_LONGEST = 200

BODY = ParagraphStyle("body", fontName=_FONT, fontSize=8.5, leading=12, textColor=INK)
SMALL = ParagraphStyle("small", parent=BODY, fontSize=7, leading=9)
SOFTLY = ParagraphStyle("soft", parent=SMALL, textColor=SOFT)
NUMBER = ParagraphStyle("number", parent=SMALL, alignment=2)
TITLE = ParagraphStyle("title", parent=BODY, fontName=_BOLD, fontSize=16, leading=20)
HEADING = ParagraphStyle(
    "heading", parent=BODY, fontName=_BOLD, fontSize=11, leading=14, spaceBefore=12, spaceAfter=4
)
FINDING = ParagraphStyle("finding", parent=BODY, fontSize=10.5, leading=15, spaceAfter=6)
HEAD, HEAD_NUMBER = (
    ParagraphStyle(f"head {one.name}", parent=one, fontName=_BOLD) for one in (SMALL, NUMBER)
)


def register_fonts() -> None:
    """Make DejaVu Sans known, which matplotlib brings: it has the signs that reports need."""
    folder = Path(matplotlib.get_data_path()) / "fonts/ttf"
    known = pdfmetrics.getRegisteredFontNames()
    for name in (_FONT, _BOLD):
        if name not in known:
            pdfmetrics.registerFont(TTFont(name, folder / f"{name}.ttf"))


def paragraph(text: object, style: ParagraphStyle = SMALL) -> Paragraph:
    """Give untrusted text as one paragraph: no markup, nothing unprintable, cut."""
    plain = shown(text)
    cut = plain if len(plain) <= _LONGEST or style in (FINDING, BODY) else f"{plain[:_LONGEST]}…"
    return Paragraph(escape(cut), style)


def table(
    header: tuple[str, ...],
    rows: list[tuple[object, ...]],
    *,
    widths: tuple[float, ...],
    numbers: tuple[int, ...] = (),
) -> Table:
    """Give a table over the page's width; `widths` are shares, `numbers` the right-aligned columns.

    Its header repeats on every page.
    """

    def line(
        cells: tuple[object, ...], plain: ParagraphStyle, number: ParagraphStyle
    ) -> list[Paragraph]:
        return [
            paragraph(cell, number if column in numbers else plain)
            for column, cell in enumerate(cells)
        ]

    made = Table(
        [line(header, HEAD, HEAD_NUMBER), *(line(row, SMALL, NUMBER) for row in rows)],
        colWidths=[WIDTH * share / sum(widths) for share in widths],
        repeatRows=1,
    )
    made.setStyle(
        TableStyle(
            [
                ("LINEBELOW", (0, 0), (-1, -1), 0.4, LINE),
                ("VALIGN", (0, 0), (-1, -1), "TOP"),
                ("LEFTPADDING", (0, 0), (-1, -1), 2),
                ("RIGHTPADDING", (0, 0), (-1, -1), 4),
                ("TOPPADDING", (0, 0), (-1, -1), 2),
                ("BOTTOMPADDING", (0, 0), (-1, -1), 3),
            ]
        )
    )
    return made
