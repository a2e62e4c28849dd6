"""Findings: a target's problems, each under one number for as long as it can be referred to.

A cycle's recommendations are revisions of findings. A finding is a target and a kind of change; its
state follows from its revisions and from the append-only events below, and is never kept.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from data.records.commands import Person

_REFERENCE = re.compile(r"\s*tt-([1-9]\d{0,17})\s*", re.IGNORECASE)


class DismissalReason(StrEnum):
    """The reason for the dismissal of a finding; DONE: a person did by hand what it says."""

    FALSE_POSITIVE = "false-positive"
    ACCEPTED_RISK = "accepted-risk"
    PLANNED_ELSEWHERE = "planned-elsewhere"
    NOT_NOW = "not-now"
    DONE = "done"


class FindingEventKind(StrEnum):
    """A person's act on a finding as a whole."""

    SNOOZED = "snoozed"
    DISMISSED = "dismissed"
    REOPENED = "reopened"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingEvent:
    """One row of the append-only table of events.

    `digest` is the revision that the person looked at; `until` is None but for a snooze, and
    `reason` is '' but for a dismissal.
    """

    number: int
    digest: str
    kind: FindingEventKind
    reason: str
    until: datetime | None
    at: datetime
    person: Person
    comment: str

    def snoozes(self, now: datetime) -> bool:
        """Return whether it keeps its finding from being proposed at a time."""
        return self.until is not None and now < self.until


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A finding, which a cycle found first at `opened_at` and saw last at `seen_at`.

    `seen_at` is None when none of its revisions is kept any more.
    """

    number: int
    target: str
    action: str
    opened_at: datetime
    seen_at: datetime | None

    @property
    def reference(self) -> str:
        """The name for people: TT-12."""
        return reference(self.number)


def reference(number: int) -> str:
    """Return the name of the finding of a number for people; '' for 0, which names none."""
    return f"TT-{number}" if number else ""


def number_of(text: str) -> int:
    """Return the number of a finding that the text names (TT-12, tt-12); 0 when it names none."""
    match = _REFERENCE.fullmatch(text)
    return int(match.group(1)) if match else 0
