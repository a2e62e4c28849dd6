"""A press that reached the server is heard once, whatever becomes of the run that it asked for.

No browser: requests are sent in the order in which they get lost, on a page whose drawing is held.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from browser.bed import free_port
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from websockets.sync.client import ClientConnection, connect

pytestmark = pytest.mark.browser
PROGRAM = Path(__file__).parents[1] / "beds" / "serve_small_page.py"


def wait_for(found: Callable[[], bool]) -> None:
    """Wait until something is so, at most a minute."""
    give_up_at = time.monotonic() + 60
    while not found():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


@dataclass
class Tab:
    """A browser tab without the browser."""

    connection: ClientConnection
    folder: Path
    ids: dict[str, str]
    card: str = ""

    def ask(self, *pressed: str, name: str = "Robin", fragment: str = "") -> None:
        """Send a request with the values of the page, as a browser does."""
        widgets = [WidgetState(id=self.ids["name"], string_value=name)] if self.ids else []
        widgets += [WidgetState(id=self.ids[one], trigger_value=True) for one in pressed]
        state = ClientState(widget_states=WidgetStates(widgets=widgets), fragment_id=fragment)
        self.connection.send(BackMsg(rerun_script=state).SerializeToString())

    def read_page(self) -> None:
        """Read until a run has ended, and note what the page is made of."""
        while True:
            message = ForwardMsg()
            message.ParseFromString(self.connection.recv(timeout=60))
            element = message.delta.new_element
            if element.HasField("text_input"):
                self.ids["name"] = element.text_input.id
                self.card = message.delta.fragment_id
            elif element.HasField("button"):
                self.ids[element.button.label] = element.button.id
            elif message.HasField("script_finished"):
                return

    def arrive(self) -> None:
        """Wait until the session has taken in what was sent."""
        self.connection.send(BackMsg(app_heartbeat=True).SerializeToString())
        message = ForwardMsg()
        while not message.HasField("heartbeat_ack"):
            message.ParseFromString(self.connection.recv(timeout=60))

    def hold(self) -> None:
        """Have the name's own run stay in the card until `let_go`."""
        (self.folder / "go").unlink()
        (self.folder / "drawing").unlink()
        self.ask(fragment=self.card)
        wait_for((self.folder / "drawing").exists)

    def let_go(self) -> None:
        """Let runs end."""
        (self.folder / "go").touch()

    def heard(self) -> list[str]:
        """What the callbacks heard, in order."""
        file = self.folder / "heard"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    def has_heard(self, count: int) -> bool:
        """Whether so many presses were heard."""
        return len(self.heard()) >= count


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """The small page on a port of its own."""
    folder, port = tmp_path_factory.mktemp("small-page"), free_port()
    environ = os.environ | {"PYTHONPATH": str(PROGRAM.parents[2])}
    with subprocess.Popen([sys.executable, PROGRAM, folder, str(port)], env=environ) as process:
        yield folder, port
        process.terminate()


@pytest.fixture
def tab(served: tuple[Path, int]) -> Iterator[Tab]:
    """A tab that has drawn the page."""
    folder, port = served
    (folder / "heard").unlink(missing_ok=True)
    (folder / "go").touch()
    wait_for(lambda: _listens(port))
    address = f"ws://127.0.0.1:{port}/_stcore/stream"
    with connect(address, subprotocols=["streamlit"], max_queue=None) as connection:
        found = Tab(connection, folder, {})
        found.ask()
        found.read_page()
        yield found
        found.let_go()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def test_a_press_that_waits_for_a_run_survives_a_redraw_of_the_page(tab: Tab) -> None:
    """The name's run, the press behind it, then the whole page: the press is heard, once."""
    tab.hold()
    tab.ask("approve", fragment=tab.card)
    tab.ask()
    wait_for(lambda: tab.heard() == ["approve Robin"])
    tab.let_go()
    tab.ask()
    tab.ask("reject")
    wait_for(lambda: tab.heard() == ["approve Robin", "reject Robin"])


def test_presses_on_several_buttons_are_all_heard(tab: Tab) -> None:
    """Two buttons one after the other, then redraws in a burst: each is heard once."""
    tab.hold()
    tab.ask("approve", fragment=tab.card)
    tab.ask("reject", fragment=tab.card)
    for _ in range(5):
        tab.ask()
    wait_for(lambda: sorted(tab.heard()) == ["approve Robin", "reject Robin"])
    tab.let_go()
    tab.ask("approve")
    wait_for(lambda: sorted(tab.heard()) == ["approve Robin"] * 2 + ["reject Robin"])


def test_a_press_in_a_part_that_is_gone_is_heard(tab: Tab) -> None:
    """The card was drawn anew under another name while the press was under way."""
    tab.ask("approve", fragment="0" * 32)
    wait_for(lambda: tab.heard() == ["approve Robin"])


def test_a_press_is_heard_when_the_tab_is_closed(tab: Tab) -> None:
    """The press waits for the name's run, and the tab goes: it is heard."""
    tab.hold()
    tab.ask("approve", fragment=tab.card)
    tab.arrive()
    tab.connection.close()
    wait_for(lambda: tab.heard() == ["approve Robin"])


def test_presses_in_a_burst_are_each_heard(tab: Tab) -> None:
    """Every press is followed at once by a redraw, thirty times: none is lost, none doubled."""
    for count in range(30):
        tab.ask("approve", name=f"{count}", fragment=tab.card if count % 2 else "")
        tab.ask(name=f"{count}")
        wait_for(partial(tab.has_heard, count + 1))
    assert tab.heard() == [f"approve {count}" for count in range(30)]
