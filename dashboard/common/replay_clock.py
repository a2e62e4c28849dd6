"""The time of a store of recordings: its newest sample is its present, and all of it is past.

A store is one of recordings while imports alone have ever reported to it. Planning, expiry and
every page and command go by this clock then; what a person decides or a worker does, by today's.
"""

from datetime import datetime
from typing import TYPE_CHECKING

from data.base.errors import ChangeRefusedError
from data.facts.fleet import Recording

if TYPE_CHECKING:
    from data.store import StoreReader

NOT_APPLIED = "It is what would have been recommended; nothing from a recording can be applied."


def present(reader: "StoreReader") -> datetime:
    """Return the time that the store's proposals live in: today's, or the end of a recording."""
    recording = reader.recording()
    return reader.clock() if recording is None else recording.end


def long_time(at: datetime) -> str:
    """Return a time with its month in words: no country reads it another way."""
    return f"{at.day} {at:%B %Y, %H:%M} UTC"


def _name_of(recording: Recording) -> str:
    several = "s" if len(recording.names) > 1 else ""
    return f"the recording{several} {', '.join(recording.names)}"


def as_of_text(recording: Recording) -> str:
    """Return the end of a recording and its name, as the beginning of a sentence."""
    return f"As of {long_time(recording.end)}, the end of {_name_of(recording)}"


def require_live(reader: "StoreReader") -> None:
    """Refuse to decide about what a recording would have had. Errors: ChangeRefusedError."""
    recording = reader.recording()
    if recording is not None:
        raise ChangeRefusedError(
            f"the store holds {_name_of(recording)}, which ended on "
            f"{long_time(recording.end)}: its recommendations are what would have been recommended",
            "Nothing from a recording can be applied. Name a live source to plan a fleet of today.",
        )
