"""A press is heard once, whatever becomes of the run that it asked for.

The first tests need no browser: requests are sent in the order in which they get lost, on a page
whose drawing is held.
"""

import re
from functools import partial
from pathlib import Path

import pytest
from beds.small_page import Tab, wait_for
from browser.bed import Visitor
from playwright.sync_api import expect

pytestmark = pytest.mark.browser


def test_a_press_that_waits_for_a_run_survives_a_redraw_of_the_page(bare_tab: Tab) -> None:
    """The name's run, the press behind it, then the whole page: the press is heard, once."""
    bare_tab.hold()
    bare_tab.ask("approve", fragment=bare_tab.card)
    bare_tab.ask()
    bare_tab.let_go()
    wait_for(lambda: bare_tab.heard() == ["approve Robin"])
    bare_tab.ask()
    bare_tab.ask("reject")
    wait_for(lambda: bare_tab.heard() == ["approve Robin", "reject Robin"])


def test_presses_on_several_buttons_are_all_heard(bare_tab: Tab) -> None:
    """Two buttons one after the other, then redraws in a burst: each is heard once."""
    bare_tab.hold()
    bare_tab.ask("approve", fragment=bare_tab.card)
    bare_tab.ask("reject", fragment=bare_tab.card)
    for _ in range(5):
        bare_tab.ask()
    bare_tab.let_go()
    wait_for(lambda: sorted(bare_tab.heard()) == ["approve Robin", "reject Robin"])
    bare_tab.ask("approve")
    wait_for(lambda: sorted(bare_tab.heard()) == ["approve Robin"] * 2 + ["reject Robin"])


def test_a_press_in_a_part_that_is_gone_is_heard_with_the_next_request(bare_tab: Tab) -> None:
    """The card was drawn anew under another name while the press was under way."""
    bare_tab.ask("approve", fragment="0" * 32)
    bare_tab.ask()
    wait_for(lambda: bare_tab.heard() == ["approve Robin"])


def test_presses_in_a_burst_are_each_heard(bare_tab: Tab) -> None:
    """Every press is followed at once by a redraw, thirty times: none is lost, none doubled."""
    for count in range(30):
        bare_tab.ask("approve", name=f"{count}", fragment=bare_tab.card if count % 2 else "")
        bare_tab.ask(name=f"{count}")
        wait_for(partial(bare_tab.has_heard, count + 1))
    assert bare_tab.heard() == [f"approve {count}" for count in range(30)]


def test_a_browser_presses_and_gets_its_file(
    small_page: tuple[Path, int], bare_tab: Tab, visitor: Visitor
) -> None:
    """Each press is heard once; each press on the file saves one file, also as the page changes."""
    page = visitor.page
    page.goto(f"http://127.0.0.1:{small_page[1]}")
    button = page.get_by_role("button", name="approve", exact=True)
    for count in range(1, 6):
        button.click()
        wait_for(partial(bare_tab.has_heard, count))
    files = []
    page.on("download", lambda download: files.append(download))
    for count in range(1, 4):
        page.get_by_role("button", name="CSV", exact=True).click()
        page.get_by_label("Name").fill(f"drawn anew {count}")
        page.get_by_label("Name").press("Enter")
        page.wait_for_event("download") if len(files) < count else None
    expect(page.get_by_text(re.compile("Failed"))).to_have_count(0)
    assert [Path(file.path()).read_text(encoding="utf-8") for file in files] == ["a,b\n1,2\n"] * 3
    assert len(bare_tab.heard()) == 5
