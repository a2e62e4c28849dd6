"""The inbox as a person uses it: rows are clicked and ticked, the dialog is answered."""

import re

from browser.bed import STEADY_JOBS, Visitor
from playwright.sync_api import Locator, expect

_ROW_PIXELS, _TICK_PIXELS, _NUMBER_PIXELS = 35, 16, 60


def grid(visitor: Visitor) -> Locator:
    """The list of findings."""
    return visitor.page.locator(".st-key-inbox [data-testid='stDataFrame']")


def rows(visitor: Visitor) -> list[str]:
    """The rows in view as a screen reader hears them, from the top."""
    visitor.settle()
    expect(grid(visitor)).to_be_visible()
    told = grid(visitor).locator("table[role='grid'] tbody tr")
    expect(told.first).to_be_attached()
    return [str(row) for row in told.evaluate_all("rows => rows.map(row => row.textContent)")]


def row_of(visitor: Visitor, text: str) -> int:
    """The place of the first row that holds a text."""
    return next(place for place, row in enumerate(rows(visitor)) if text in row)


def _press(visitor: Visitor, place: int, x: int) -> None:
    canvas, mouse = grid(visitor).locator("canvas").first, visitor.page.mouse
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box
    y = box["y"] + _ROW_PIXELS * (place + 1) + _ROW_PIXELS // 2
    # The grid learns from the way to a cell which cell is meant.
    mouse.move(box["x"] + x + _ROW_PIXELS, y)
    mouse.move(box["x"] + x, y)
    mouse.down()
    mouse.up()
    visitor.settle()


def tick(visitor: Visitor, *texts: str) -> None:
    """Tick the rows that hold these texts."""
    for text in texts:
        _press(visitor, row_of(visitor, text), _TICK_PIXELS)


def bulk(visitor: Visitor, verb: str) -> None:
    """Ask for a verb for all that is ticked."""
    visitor.page.get_by_role("button", name=re.compile(r"^Decide on \d+ selected")).click()
    visitor.page.get_by_role("button", name=f"{verb} selected", exact=True).click()


def panel_of(visitor: Visitor, reference: str) -> Locator:
    """The open finding of this number."""
    return visitor.page.locator(f".st-key-finding-{reference}")


def open_row(visitor: Visitor, text: str) -> tuple[Locator, str]:
    """Open the first row that holds a text; give its panel and its number."""
    place = row_of(visitor, text)
    found = re.search(r"TT-\d+", rows(visitor)[place])
    assert found
    _press(visitor, place, _NUMBER_PIXELS)
    panel = panel_of(visitor, found.group())
    expect(panel).to_be_visible()
    return panel, found.group()


def open_first(visitor: Visitor, *, hostile: bool = False) -> tuple[Locator, str]:
    """Open the first finding of a well or a badly named job."""
    if hostile:
        return open_row(visitor, "evil/")
    told = rows(visitor)
    steady = [row for row in told if STEADY_JOBS in row]
    return open_row(visitor, (steady or [row for row in told if "evil/" not in row])[0])


def dialog(visitor: Visitor) -> Locator:
    """What is asked. A popover that is about to close is a dialog to a screen reader as well."""
    return visitor.page.locator("[role='dialog']:not([data-testid='stPopoverBody'])")


def answer(visitor: Visitor, *, name: str = "", comment: str = "", clicks: int = 1) -> None:
    """Fill the dialog in as a person would, and confirm it, if need be twice."""
    asked = dialog(visitor)
    expect(asked.get_by_role("button", name=re.compile("^Confirm"))).to_be_visible()
    if name:
        asked.get_by_label("Your name").fill(name)
    if comment:
        asked.get_by_label("Comment").fill(comment)
    confirm = asked.get_by_role("button", name=re.compile("^Confirm"))
    if confirm.is_disabled():  # the words of the tick may be drawn after the button
        asked.get_by_text("I have read it").click()
    expect(confirm).to_be_enabled()
    confirm.click(click_count=clicks)


def decide(
    visitor: Visitor, panel: Locator, button: str, *, name: str = "Robin", comment: str = ""
) -> None:
    """Press a button of the open finding, and answer what is asked."""
    panel.get_by_role("button", name=button, exact=True).click()
    answer(visitor, name=name, comment=comment)
    expect(dialog(visitor)).to_have_count(0)
    visitor.settle()
