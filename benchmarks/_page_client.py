"""Opens a page of the dashboard as a browser does, without drawing it: HTML, then the websocket."""

import time
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from dashboard.web.frame.navigation import FORMER_ADDRESSES, place_of

_TIMEOUT = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How long a page took until its script had run, what it sent, and what went wrong.

    `said` holds the names that were looked for and that the page sent.
    """

    seconds: float
    mebibytes: float
    errors: tuple[str, ...]
    said: frozenset[str] = frozenset()


def address_of(view: str) -> tuple[str, dict[str, str]]:
    """Return the page and the words of the address of a tab, or of a former address."""
    if view in FORMER_ADDRESSES:
        page, words = FORMER_ADDRESSES[view]
        return page, dict(words)
    row, words = place_of(view or "overview")
    return row.view, words


def open_page(
    base: str, page: str, query: str = "", *, person: str = "", names: Iterable[str] = ()
) -> Answer:
    """Open a tab in a new session and wait for the end of its script.

    `page` is a tab, or a former address. `person` is who a sign-in proxy would say it is; `names`
    are looked for in what is sent.
    """
    page, words = address_of(page)
    query = "&".join(filter(None, (urlencode(words), query)))
    started = time.perf_counter()
    headers = {"X-Forwarded-User": person} if person else {}
    asked = urllib.request.Request(f"{base}/{quote(page)}", headers=headers)  # noqa: S310 - loopback
    with urllib.request.urlopen(asked, timeout=_TIMEOUT) as answer:  # noqa: S310 - loopback
        answer.read()
    received, errors, said = 0, [], set[str]()
    address = base.replace("http", "ws", 1) + "/_stcore/stream"
    with connect(
        address,
        max_size=None,
        subprotocols=[Subprotocol("streamlit")],
        origin=Origin(base),
        additional_headers=headers,
        open_timeout=_TIMEOUT,
    ) as socket:
        wish = BackMsg()
        wish.rerun_script.query_string = query
        wish.rerun_script.page_name = page
        socket.send(wish.SerializeToString())
        while True:
            raw = socket.recv(timeout=_TIMEOUT)
            received += len(raw)
            said |= {name for name in names if name.encode() in raw}
            message = ForwardMsg.FromString(raw)
            kind = message.WhichOneof("type")
            if kind == "delta":
                element = message.delta.new_element
                if element.WhichOneof("type") == "exception":
                    errors.append(element.exception.message)
            # A page that sends its reader on ends early, and the other one follows.
            early = message.script_finished == ForwardMsg.FINISHED_EARLY_FOR_RERUN
            if kind == "script_finished" and not early:
                break
    return Answer(
        seconds=time.perf_counter() - started,
        mebibytes=received / 2**20,
        errors=tuple(errors),
        said=frozenset(said),
    )
