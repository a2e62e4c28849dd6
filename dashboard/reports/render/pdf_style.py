"""Page, fonts and paragraph styles of the PDF."""

from pathlib import Path

from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont

PAGE = A4
MARGIN = 16 * mm
_PADDING = 6
"""What reportlab's frame keeps free on each side."""
WIDTH = PAGE[0] - 2 * MARGIN - 2 * _PADDING
INK, SOFT, LINE = (colors.HexColor(word) for word in ("#1d2730", "#5c6873", "#d9dee3"))
_FONT, _BOLD = "DejaVuSans", "DejaVuSans-Bold"
_FONTS = Path(__file__).with_name("fonts")

BODY = ParagraphStyle("body", fontName=_FONT, fontSize=8.5, leading=12, textColor=INK)
SMALL = ParagraphStyle("small", parent=BODY, fontSize=7, leading=9)
SOFT_STYLE = ParagraphStyle("soft", parent=SMALL, textColor=SOFT)
NUMBER = ParagraphStyle("number", parent=SMALL, alignment=2)
TITLE = ParagraphStyle("title", parent=BODY, fontName=_BOLD, fontSize=16, leading=20)
HEADING = ParagraphStyle(
    "heading", parent=BODY, fontName=_BOLD, fontSize=11, leading=14, spaceBefore=12, spaceAfter=4
)
SUBHEADING = ParagraphStyle("subheading", parent=HEADING, fontSize=8.5, spaceBefore=6)
FINDING = ParagraphStyle("finding", parent=BODY, fontSize=10.5, leading=15, spaceAfter=6)


def register_fonts() -> None:
    """Make DejaVu Sans known: it has the signs that reports need."""
    names = pdfmetrics.getRegisteredFontNames()
    for name in (_FONT, _BOLD):
        if name not in names:
            pdfmetrics.registerFont(TTFont(name, _FONTS / f"{name}.ttf"))
    pdfmetrics.registerFontFamily(_FONT, normal=_FONT, bold=_BOLD, italic=_FONT, boldItalic=_BOLD)
