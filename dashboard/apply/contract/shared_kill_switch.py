"""The kill switch of a store with several processes: the stop file here, or a wish in the record.

A file stops only the host that sees it. On a shared store the page may run elsewhere than the
applier, so whoever stops on the page or the command line also writes it into the record, and the
applier asks both before everything that it sends. Either of them stops; resuming takes the wish
back and removes the file of the host where it is done, and leaves a file made by hand elsewhere.
"""

from datetime import datetime
from itertools import takewhile
from pathlib import Path
from threading import Lock

from dashboard.apply.contract.kill_switch import Stopped, stopped
from data.records.commands import SWITCH_EVENTS
from data.store import Store

_NOTES, (STOP, RESUME) = SWITCH_EVENTS[:2], SWITCH_EVENTS[2:]
_MAX_NOTES = 10
SWITCH_NOTES = Lock()
"""Held while the switch is looked at and noted: two threads would note one stop twice."""


def ask(store: Store, event: str, *, by: str, at: datetime, reason: str = "") -> None:
    """Write the wish for a process that may not see the file."""
    if store.is_shared:
        store.append_audit(at=at, actor=by, event=event, digest="", detail=reason)


def is_stopped(path: Path, store: Store) -> Stopped | None:
    """Tell whether applying is stopped, by the file or by a wish that stands."""
    return stopped(path) or _stored_stop(store)


def _stored_stop(store: Store) -> Stopped | None:
    asks = store.reader.entries((STOP, RESUME)) if store.is_shared else ()
    if not asks or asks[-1].event != STOP:
        return None
    last = asks[-1]
    return Stopped(by=last.actor, at=f"{last.at:%Y-%m-%d %H:%M:%S} UTC", reason=last.detail)


def last_switch(store: Store) -> str:
    """Return the audit's last text on the kill switch, '' when applying was not stopped."""
    events = store.reader.entries(_NOTES)
    return events[-1].detail if events else ""


def note_stop(store: Store, stop: Stopped, *, at: datetime, actor: str = "") -> None:
    """Put a stop into the audit, unless it is the last text there; SWITCH_NOTES is held.

    The actor is who asked here or in the record; a name in a file is what its writer put there.
    Nobody has more than a few notes of one stop, each of which is told by mail.
    """
    if not actor and stop == _stored_stop(store):
        actor = stop.by
    actor = actor or (f"{stop.by} (by file)" if stop.by else "file")
    text, events = stop.describe(), store.reader.entries(_NOTES)
    notes = list(takewhile(lambda entry: entry.event == "stopped", reversed(events)))
    count = sum(entry.actor == actor for entry in notes)
    if not notes or (notes[0].detail != text and count < _MAX_NOTES):
        store.append_audit(at=at, actor=actor, event="stopped", digest="", detail=text)
