"""A browser tab without the browser, on the small page of `serve_small_page`."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from beds.ports import free_port
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from websockets.sync.client import ClientConnection, connect

_PROGRAM = Path(__file__).with_name("serve_small_page.py")


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
    ids: dict[str, str] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    card: str = ""

    def ask(self, *pressed: str, name: str = "Robin", fragment: str = "") -> None:
        """Send a request with the values of the page, as a browser does; a press is a value too."""
        for label in pressed:
            answers = {"nonce": str(uuid4()), "done": 0, "refused": [], "by": ""}
            self.held[label] = json.dumps({"answers": answers})
        widgets = [WidgetState(id=self.ids["name"], string_value=name)] if self.ids else []
        widgets += [
            WidgetState(id=self.ids[label], json_value=held) for label, held in self.held.items()
        ]
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
            elif element.HasField("bidi_component"):
                label = json.loads(element.bidi_component.json)["label"]
                self.ids[label] = element.bidi_component.id
            elif message.HasField("script_finished"):
                return

    def hold(self, *, whole: bool = False) -> None:
        """Have the name's own run, or one of the whole page, stay in the card until `let_go`."""
        (self.folder / "go").unlink()
        (self.folder / "drawing").unlink()
        self.ask(fragment="" if whole else self.card)
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


@contextmanager
def serving(folder: Path) -> Iterator[int]:
    """Serve the small page; give its port."""
    port = free_port()
    environ = os.environ | {"PYTHONPATH": str(_PROGRAM.parents[2])}
    with subprocess.Popen([sys.executable, _PROGRAM, folder, str(port)], env=environ) as process:
        try:
            yield port
        finally:
            process.terminate()


@contextmanager
def open_tab(folder: Path, port: int) -> Iterator[Tab]:
    """Open a tab that has drawn the page."""
    (folder / "heard").unlink(missing_ok=True)
    (folder / "go").touch()
    wait_for(lambda: _listens(port))
    address = f"127.0.0.1:{port}"
    with connect(
        f"ws://{address}/_stcore/stream", subprotocols=["streamlit"], max_queue=None
    ) as connection:
        found = Tab(connection, folder)
        found.ask()
        found.read_page()
        try:
            yield found
        finally:
            found.let_go()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
