"""A button that posts to the HTTP API, tells the page of a press, or gives a file.

A press of Streamlit's own button is a trigger: it is in one request, and Streamlit drops it where
that request is given up for a newer one. So what people decide is posted by the browser to the API
at once, and what came of it is a value that the browser sends with every request until it changes:
the page hears of it once, in whichever run comes first. The same value opens a dialog and asks for
a file, with nothing to post.
"""

import base64
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import streamlit as st
from streamlit.components.v2 import component

from dashboard.web.access.identity import current_world, known_name
from data.base.errors import NotSignedInError

_THIS_FILE = Path(__file__)
_BUTTON = component(
    "trimtab-action",
    html='<form><div class="fields"></div><button type="submit"></button></form>',
    css=_THIS_FILE.with_suffix(".css").read_text(encoding="utf-8"),
    js=_THIS_FILE.with_suffix(".js").read_text(encoding="utf-8"),
)
_PRESSES_KEY = "heard-presses"
_OFFER_LIFETIME_SECONDS = 10.0
BY = "by"
"""The field whose value names who asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """Something to fill in. `options` are pairs of value and label; a tick has to be set."""

    name: str
    label: str
    kind: Literal["text", "select", "radio", "tick"] = "text"
    options: tuple[tuple[str, str], ...] = ()
    choice: str = ""
    placeholder: str = ""


def name_field() -> tuple[FormField, ...]:
    """Return the field for the name where nobody knows it: in local mode, once a tab."""
    if current_world().decision_service.settings().access.mode != "local" or known_name():
        return ()
    return (FormField(name=BY, label="Your name", placeholder="kept until this tab is closed"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """Request of a press to the API: `path` from the root, `name` where it is told of.

    What the fields hold is added to `body`; None is no body.
    """

    name: str
    path: str
    body: Mapping[str, object] | None = None
    method: Literal["POST", "DELETE"] = "POST"


@dataclass(frozen=True, slots=True, kw_only=True)
class PressOutcome:
    """Result of a press: the number of posts done, reasons of the refused, and in whose name."""

    done: int = 0
    refused: tuple[str, ...] = ()
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LatestPress:
    """The latest press that was heard, by button; one run at a time hears one."""

    turn: AbstractContextManager[Any] = field(default_factory=threading.RLock)
    nonces: dict[str, str] = field(default_factory=dict)


def action_button(
    label: str,
    *,
    key: str,
    then: Callable[[PressOutcome], None],
    posts: Sequence[Post] = (),
    fields: Sequence[FormField] = (),
    by: str = "",
    primary: bool = False,
    disabled: bool = False,
    hint: str = "",
    wide: bool = False,
) -> None:
    """Draw the button; `then` is called once for each press, before the page is drawn if it can."""
    heard: _LatestPress = st.session_state.setdefault(_PRESSES_KEY, _LatestPress())

    def hear() -> None:
        nonce, answers = _pressed(key)
        # A run that is stopped may still be in its callback when the next one begins.
        # Who has signed out elsewhere is shown the way in by the page that is drawn next.
        with heard.turn, suppress(NotSignedInError):
            if nonce and heard.nonces.get(key) != nonce:
                then(answers)
                heard.nonces[key] = nonce

    _draw(
        key,
        hear,
        wide=wide,
        label=label,
        posts=[asdict(post) for post in posts],
        fields=[asdict(field) for field in fields],
        by=by,
        primary=primary,
        disabled=disabled,
        help=hint,
    )
    before = heard.nonces.get(key)
    hear()
    if heard.nonces.get(key) != before:
        st.rerun()


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file that somebody may ask for: `make` makes it, `kind` is its media type."""

    label: str
    make: Callable[[], str | bytes]
    name: str
    kind: str
    key: str


def file_buttons(*files: File) -> None:
    """Draw a row of buttons that each give a file, which is made once somebody asks for it.

    They are a part of their own: a press draws nothing else.
    """
    st.fragment(_file_buttons)(files)


def _file_buttons(files: Sequence[File]) -> None:
    with st.container(horizontal=True):
        for file in files:
            _draw(file.key, lambda: None, label=file.label, file=_request(file))


def _request(file: File) -> dict[str, str] | None:
    """Return the file where it was just asked for, as the browser takes it."""
    requests: dict[str, tuple[str, float]] = st.session_state.setdefault(
        f"{_PRESSES_KEY}-files", {}
    )
    nonce, _answers = _pressed(file.key)
    now = time.monotonic()
    if nonce != requests.get(file.key, ("",))[0]:
        requests[file.key] = (nonce, now)
    # A drawing may be given up before the browser has it: the next one brings the file as well.
    if not nonce or now - requests[file.key][1] > _OFFER_LIFETIME_SECONDS:
        return None
    content = file.make()
    data = content.encode() if isinstance(content, str) else content
    packed = base64.b64encode(data).decode("ascii")
    return {"nonce": nonce, "name": file.name, "type": file.kind, "base64": packed}


def _draw(key: str, hear: Callable[[], None], *, wide: bool = False, **data: Any) -> None:
    nothing = {"posts": [], "fields": [], "by": "", "primary": False, "disabled": False, "help": ""}
    _BUTTON(
        key=key, data=nothing | data, width="stretch" if wide else "content", on_answers_change=hear
    )


def _pressed(key: str) -> tuple[str, PressOutcome]:
    """Return the id of the latest press, '' before the first, and its result."""
    state = st.session_state.get(key)
    answers = state.get("answers") if state else None
    if not isinstance(answers, Mapping):
        return "", PressOutcome()
    nonce, done, refused, by = (answers.get(name) for name in ("nonce", "done", "refused", "by"))
    if not (isinstance(nonce, str) and type(done) is int and isinstance(refused, list)):
        return "", PressOutcome()  # posted by hand: our script tells all of them
    return nonce, PressOutcome(
        done=done, refused=tuple(_text_of(reason) for reason in refused), by=_text_of(by or "")
    )


def _text_of(value: object) -> str:
    """Return the text of what a browser told, which a page can show: half letters have none."""
    return str(value).encode("utf-8", "replace").decode()
