"""A press that reached the server is heard once, whatever becomes of the run that it asked for.

No browser: requests are sent in the order in which they get lost, on a page whose drawing is held.
"""

from functools import partial

import pytest
from beds.small_page import Tab, wait_for

pytestmark = pytest.mark.browser


def test_a_press_that_waits_for_a_run_survives_a_redraw_of_the_page(bare_tab: Tab) -> None:
    """The name's run, the press behind it, then the whole page: the press is heard, once."""
    bare_tab.hold()
    bare_tab.ask("approve", fragment=bare_tab.card)
    bare_tab.ask()
    wait_for(lambda: bare_tab.heard() == ["approve Robin"])
    bare_tab.let_go()
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
    wait_for(lambda: sorted(bare_tab.heard()) == ["approve Robin", "reject Robin"])
    bare_tab.let_go()
    bare_tab.ask("approve")
    wait_for(lambda: sorted(bare_tab.heard()) == ["approve Robin"] * 2 + ["reject Robin"])


def test_a_press_in_a_part_that_is_gone_is_heard(bare_tab: Tab) -> None:
    """The card was drawn anew under another name while the press was under way."""
    bare_tab.ask("approve", fragment="0" * 32)
    wait_for(lambda: bare_tab.heard() == ["approve Robin"])


def test_a_press_is_heard_when_the_tab_is_closed(bare_tab: Tab) -> None:
    """The press waits for the name's run, and the tab goes: it is heard."""
    bare_tab.hold()
    bare_tab.ask("approve", fragment=bare_tab.card)
    bare_tab.arrive()
    bare_tab.connection.close()
    wait_for(lambda: bare_tab.heard() == ["approve Robin"])


def test_presses_in_a_burst_are_each_heard(bare_tab: Tab) -> None:
    """Every press is followed at once by a redraw, thirty times: none is lost, none doubled."""
    for count in range(30):
        bare_tab.ask("approve", name=f"{count}", fragment=bare_tab.card if count % 2 else "")
        bare_tab.ask(name=f"{count}")
        wait_for(partial(bare_tab.has_heard, count + 1))
    assert bare_tab.heard() == [f"approve {count}" for count in range(30)]
