"""The weekly report as PDF: its HTML, set on pages of A4."""

import io
from collections.abc import Iterator
from typing import Any
from xml.etree.ElementTree import Element, fromstring
from xml.sax.saxutils import escape

from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Flowable, Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle

from dashboard.reports.render.html_report import fill_html
from dashboard.reports.render.pdf_style import (
    BODY,
    FINDING,
    HEADING,
    LINE,
    MARGIN,
    NUMBER,
    PAGE,
    SMALL,
    SOFT,
    SOFT_STYLE,
    SUBHEADING,
    TITLE,
    WIDTH,
    register_fonts,
)
from dashboard.reports.render.pdf_timeline import pdf_timeline
from dashboard.reports.week.weekly_report import WeeklyReport

_BLOCKS = {"h1": TITLE, "h2": HEADING, "h3": SUBHEADING, "p": BODY, "li": BODY}
_CLASSES = {"soft": SOFT_STYLE, "finding": FINDING, "number": NUMBER}
_MAX_PIECE = 200
"""Characters of a text in a cell: a row that is higher than a page cannot be set."""
_WEIGHTS = (8, 40)
"""Characters, at least and at most, that the width of a column is shared out by."""
_TABLE: tuple[tuple[Any, ...], ...] = (
    ("VALIGN", (0, 0), (-1, -1), "TOP"),
    ("LEFTPADDING", (0, 0), (-1, -1), 2),
    ("RIGHTPADDING", (0, 0), (-1, -1), 4),
    ("TOPPADDING", (0, 0), (-1, -1), 2),
    ("BOTTOMPADDING", (0, 0), (-1, -1), 3),
)


def pdf_of(report: WeeklyReport) -> bytes:
    """Return the report as PDF, A4, with text that can be searched. Fetches nothing."""
    register_fonts()
    target = io.BytesIO()
    document = SimpleDocTemplate(
        target,
        pagesize=PAGE,
        leftMargin=MARGIN,
        rightMargin=MARGIN,
        topMargin=MARGIN,
        bottomMargin=MARGIN,
        title=f"Trimtab weekly report, {report.week.name}",
        author="Trimtab",
        invariant=1,
    )

    def footer(canvas: Canvas, sheet: Any) -> None:
        canvas.setFont("DejaVuSans", 7)
        canvas.drawString(MARGIN, 9 * mm, f"Trimtab weekly report, {report.week.name}")
        canvas.drawRightString(PAGE[0] - MARGIN, 9 * mm, f"page {sheet.page}")

    # The picture is drawn anew: of SVG reportlab reads nothing.
    _head, tag, body = fill_html(report, picture="" if report.fleet.empty else "<svg/>").partition(
        "<body>"
    )
    page = fromstring(tag + body.removesuffix("</html>\n"))  # noqa: S314 - our own template's
    document.build(list(_flowables(page, report)), onFirstPage=footer, onLaterPages=footer)
    return target.getvalue()


def _flowables(parent: Element, report: WeeklyReport) -> Iterator[Flowable]:
    for element in parent:
        if element.tag in _BLOCKS:
            yield Paragraph(_markup(element), _style_of(element, _BLOCKS[element.tag]))
        elif element.tag == "svg":
            yield pdf_timeline(report.fleet, report.week)
        elif element.tag == "table":
            yield _table(list(element))
            yield Spacer(1, 6)
        elif element.get("class") == "figures":
            yield _grid([[_cell(figure) for figure in element]], [1.0] * len(element), [])
        else:
            yield from _flowables(element, report)


def _style_of(element: Element, usual: ParagraphStyle) -> ParagraphStyle:
    return _CLASSES.get(element.get("class", ""), usual)


def _markup(element: Element, *, limit: int | None = None) -> str:
    """Return the text of an element as reportlab's markup, each piece of it cut at the limit."""
    pieces = [_cut(element.text, limit)]
    for child in element:
        inner = _markup(child, limit=limit)
        if child.tag == "br":
            inner = "<br/>"
        elif child.tag == "b":
            inner = "<br/>" * (element.tag == "div") + f"<b>{inner}</b>"
        elif child.get("class") == "soft":
            inner = f'<font color="{SOFT.hexval()}">{inner}</font>'
        pieces += [inner, _cut(child.tail, limit)]
    return "".join(pieces)


def _cut(text: str | None, limit: int | None) -> str:
    full = text or ""
    return escape(full if limit is None or len(full) <= limit else f"{full[:limit]}…")


def _cell(element: Element) -> Paragraph:
    limit = _MAX_PIECE if element.get("colspan") is None else None
    markup = _markup(element, limit=limit)
    return Paragraph(
        f"<b>{markup}</b>" if element.tag == "th" else markup, _style_of(element, SMALL)
    )


def _table(groups: list[Element]) -> Table:
    """Return a table over the page's width, whose header repeats on every page."""
    cells: list[list[Paragraph]] = []
    style: list[tuple[Any, ...]] = []
    for group in groups:
        first = len(cells)
        for row in group:
            if len(row) == 1:
                style.append(("SPAN", (0, len(cells)), (-1, len(cells))))
            cells.append([_cell(cell) for cell in row])
        last = len(cells) - 1
        together = group.get("class") == "together"
        style += [("NOSPLIT", (0, first), (-1, last))] if together and last > first else []
        style += [
            ("LINEBELOW", (0, at), (-1, at), 0.4, LINE)
            for at in ([last] if together else range(first, last + 1))
        ]
    return _grid(cells, _shares(groups), style)


def _shares(groups: list[Element]) -> list[float]:
    """Return the share of the width of each column: as the HTML states it, else by its texts."""
    stated = [
        cell.get("style", "").removeprefix("width: ").removesuffix("%") for cell in groups[0][0]
    ]
    if any(stated):
        rest = (100 - sum(float(share or 0) for share in stated)) / max(1, stated.count(""))
        return [float(share) if share else rest for share in stated]
    least, most = _WEIGHTS
    header, *rows = ([_words(cell) for cell in row] for group in groups for row in group)
    return [
        min(most, max(least, *map(len, title), *(len(" ".join(row[at])) for row in rows)))
        for at, title in enumerate(header)
    ]


def _words(cell: Element) -> list[str]:
    return "".join(cell.itertext()).split()


def _grid(cells: list[list[Paragraph]], shares: list[float], style: list[tuple[Any, ...]]) -> Table:
    widths = [WIDTH * share / sum(shares) for share in shares]
    rows: list[list[Any]] = [[*row, *[""] * (len(shares) - len(row))] for row in cells]
    return Table(rows, colWidths=widths, repeatRows=1, style=TableStyle([*_TABLE, *style]))
