"""Findings as people see them, and what they decide about one as a whole: snooze, reopen."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Unpack

from dashboard.decisions.checks import DecisionContext, allowed_now, log_decision
from dashboard.decisions.decision_table import WishKind
from data.base.errors import ChangeRefusedError, StalePlanError
from data.facts.jobs import Job
from data.records.commands import Person
from data.records.findings import (
    DismissalReason,
    Finding,
    FindingEvent,
    FindingEventKind,
)
from data.records.lifecycle import State
from data.store import Store, StoredRecommendation, StoreReader

MAX_SNOOZE = timedelta(days=366)
OPEN, DISMISSED, REOPENED, RESOLVED = "open", "dismissed", "reopened", "resolved"
_OUTCOMES: dict[str, str] = {
    OPEN: "open",
    REOPENED: "open",
    State.SNOOZED: "snoozed",
    DISMISSED: "dismissed",
    RESOLVED: "resolved",
    State.FELL_SHORT: "fell short",
    State.REFUSED: "refused by the target",
    State.TARGET_GONE: "resolved",
    State.REPLACED: "resolved",
    State.ROLLED_BACK: "undone",
    State.ROLLBACK_REFUSED: "undone",
    State.UNDONE_OUTSIDE: "undone",
    State.CHANGED_OUTSIDE: "undone",
}
OUTCOME_COLUMNS = (
    "kind", "found", "open", "snoozed", "under way or applied", "fell short", "undone",
    "refused by the target", "resolved", "dismissed",
    *(reason.replace("-", " ") for reason in DismissalReason), "no reason",
)  # fmt: skip
_TIMED = frozenset({State.SUPERSEDED, State.EXPIRED})


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingStatus:
    """A finding, where it stands, and the revision that people mean by it.

    `state` is open, dismissed, reopened (the next cycle may propose it), resolved or a word of
    `State`; `reason` is why it was dismissed, and
    `revision` None when no revision is kept. `job` is what it is about, None for no job.
    `apply_first` are the open findings that its change counts on.
    """

    finding: Finding
    state: str
    reason: str
    until: datetime | None
    revision: StoredRecommendation | None
    events: tuple[FindingEvent, ...]
    job: Job | None = None
    apply_first: tuple[str, ...] = ()


def findings_now(reader: StoreReader, *, now: datetime) -> tuple[FindingStatus, ...]:
    """Return every finding, the newest number first."""
    revisions: dict[int, list[StoredRecommendation]] = defaultdict(list)
    for stored in reader.current_recommendations(now=now):
        revisions[stored.finding].append(stored)
    events: dict[int, list[FindingEvent]] = defaultdict(list)
    for event in reader.finding_events():
        events[event.number].append(event)
    findings = reader.findings()
    jobs = reader.jobs_of({finding.target for finding in findings})
    statuses = [
        replace(
            _status(finding, revisions[finding.number], tuple(events[finding.number])),
            job=jobs.get(finding.target),
        )
        for finding in findings
    ]
    references = {
        f"{status.finding.target} ({status.finding.action})": status.finding.reference
        for status in statuses
        if status.state == OPEN
    }
    return tuple(
        replace(
            status,
            apply_first=tuple(
                references[name]
                for name in status.revision.recommendation.applied_first
                if name in references
            ),
        )
        if status.revision
        else status
        for status in statuses
    )


def _status(
    finding: Finding, revisions: list[StoredRecommendation], events: tuple[FindingEvent, ...]
) -> FindingStatus:
    latest = max(revisions, key=StoredRecommendation.meant, default=None)
    state = RESOLVED if latest is None or latest.state in _TIMED else latest.state
    last = events[-1] if events else None
    reason = ""
    if state == State.PROPOSED:
        state = OPEN
    elif latest is not None and state == State.REJECTED:
        state = REOPENED if _reopened(latest, last) else DISMISSED
        mark = (latest.recommendation.digest, FindingEventKind.DISMISSED)
        reason = next((event.reason for event in events if (event.digest, event.kind) == mark), "")
    return FindingStatus(
        finding=finding,
        state=str(state),
        reason=reason,
        until=last.until if last is not None and state == State.SNOOZED else None,
        revision=latest,
        events=events,
    )


def _reopened(rejected: StoredRecommendation, last: FindingEvent | None) -> bool:
    """Return whether the last that was said of the finding is to propose it again after all."""
    if last is None or last.kind is not FindingEventKind.REOPENED:
        return False
    return rejected.decided_at is None or last.at >= rejected.decided_at


def outcome_rows(statuses: Iterable[FindingStatus]) -> list[dict[str, object]]:
    """Return a row for each kind of change: how many were found, and what became of them.

    The columns of the states add up to `statuses`; those of the reasons add up to `dismissed`.
    """
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for status in statuses:
        row = rows[status.finding.action]
        row["found"] += 1
        row[_OUTCOMES.get(status.state, "under way or applied")] += 1
        if status.state == DISMISSED:
            row[status.reason.replace("-", " ") or "no reason"] += 1
    return [
        {"kind": kind} | {name: row[name] for name in OUTCOME_COLUMNS[1:]}
        for kind, row in sorted(rows.items())
    ]


def event_about(
    stored: StoredRecommendation,
    kind: FindingEventKind,
    *,
    by: Person,
    at: datetime,
    comment: str = "",
    reason: DismissalReason | None = None,
    until: datetime | None = None,
) -> FindingEvent:
    """Return the event of a person's words on the finding of a recommendation."""
    return FindingEvent(
        number=stored.finding,
        digest=stored.recommendation.digest,
        kind=kind,
        reason="" if reason is None else str(reason),
        until=until,
        at=at,
        person=by,
        comment=comment,
    )


def snooze(
    store: Store,
    id_or_digest: str,
    *,
    until: datetime,
    comment: str = "",
    **who: Unpack[DecisionContext],
) -> FindingEvent:
    """Record that a finding is not to be proposed before a time.

    Errors: StalePlanError when it is not proposed, ChangeRefusedError, StoreError.
    """
    stored, person = allowed_now(store, id_or_digest, WishKind.SNOOZE, **who)
    now = who["now"]
    if not now < until <= now + MAX_SNOOZE:
        raise ChangeRefusedError(
            f"a finding cannot be snoozed until {until:%Y-%m-%d %H:%M} UTC",
            f"Give a time within the next {MAX_SNOOZE.days} days, or dismiss it with a reason.",
        )
    kind = FindingEventKind.SNOOZED
    event = event_about(stored, kind, by=person, at=now, comment=comment, until=until)
    store.finding_log.append(event)
    log_decision(f"snoozed until {until:%Y-%m-%d %H:%M} UTC", stored, person, comment)
    return event


def reopen(
    store: Store, id_or_digest: str, *, comment: str = "", **who: Unpack[DecisionContext]
) -> FindingEvent:
    """Record that what was snoozed, rejected or undone may be proposed again from now on.

    Errors: StalePlanError when nothing holds it back, ChangeRefusedError, StoreError.
    """
    stored, person = allowed_now(store, id_or_digest, WishKind.REOPEN, **who)
    events = store.reader.finding_events(stored.finding)
    if stored.state != State.SNOOZED and _reopened(stored, events[-1] if events else None):
        raise StalePlanError(
            f"{stored.reference} was reopened already", "The next cycle may propose it again."
        )
    kind = FindingEventKind.REOPENED
    event = event_about(stored, kind, by=person, at=who["now"], comment=comment)
    store.finding_log.append(event)
    log_decision("reopened", stored, person, comment)
    return event
