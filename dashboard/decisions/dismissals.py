"""Dismissing what matches a pattern, for a time: kept as entries of the record alone."""

from dataclasses import asdict, replace
from datetime import datetime, timedelta

from dashboard.common.rights import role_of
from dashboard.decisions.checks import LOCAL, require_person
from data.base.errors import ChangeRefusedError, NotAllowedError, NotKnownError
from data.facts.identifiers import SHORT_ID_LENGTH, digest_of
from data.records.actions import Action
from data.records.commands import Person
from data.records.findings import DismissalPattern, DismissalReason
from data.settings.access import AccessSettings
from data.store import Store, StoreReader
from data.store.engine.record_json import from_json, to_json

MADE, ENDED = "dismissed-matching", "dismissal-ended"
MAX_DAYS = 366


def active_patterns(reader: StoreReader, now: datetime) -> tuple[DismissalPattern, ...]:
    """Return the patterns dismissed at a time, the oldest first."""
    patterns: dict[str, DismissalPattern] = {}
    for entry in reader.entries((MADE, ENDED)):
        if entry.event == MADE:
            pattern = from_json(DismissalPattern, entry.detail)
            patterns[pattern.pattern_id] = pattern
        else:
            patterns.pop(entry.detail, None)
    return tuple(pattern for pattern in patterns.values() if now < pattern.until)


def dismiss_matching(
    store: Store,
    *,
    namespace: str = "",
    job: str = "",
    kind: str = "",
    reason: DismissalReason,
    until: datetime,
    comment: str = "",
    by: Person,
    now: datetime,
    access: AccessSettings = LOCAL,
) -> DismissalPattern:
    """Keep from being proposed what matches all that is given, until a time.

    Errors: NotAllowedError, ChangeRefusedError.
    """
    _require_decider(by, access)
    if not (namespace or job or kind):
        raise ChangeRefusedError(
            "a pattern that names nothing matches everything",
            "Give a namespace, a job such as search/*, or a kind such as fewer-gpus.",
        )
    if kind and kind not in set(Action):
        raise ChangeRefusedError(
            f"{kind[:50]!a} is no kind of change", f"Give one of {', '.join(Action)}."
        )
    if not now < until <= now + timedelta(days=MAX_DAYS):
        raise ChangeRefusedError(
            f"nothing can be dismissed until {until:%Y-%m-%d %H:%M} UTC",
            f"Give a time within the next {MAX_DAYS} days.",
        )
    dismissal = DismissalPattern(
        pattern_id="",
        namespace=namespace,
        job=job,
        kind=kind,
        reason=reason,
        until=until,
        at=now,
        by=by.name,
        comment=comment,
    )
    dismissal = replace(dismissal, pattern_id=digest_of([asdict(dismissal)])[:SHORT_ID_LENGTH])
    store.append_audit(at=now, actor=by.actor, event=MADE, digest="", detail=to_json(dismissal))
    return dismissal


def end_dismissal(
    store: Store, pattern_id: str, *, by: Person, now: datetime, access: AccessSettings = LOCAL
) -> DismissalPattern:
    """Let what a pattern matches be proposed again. Errors: NotAllowedError, NotKnownError."""
    _require_decider(by, access)
    for pattern in active_patterns(store.reader, now):
        if pattern.pattern_id == pattern_id.strip().lower():
            store.append_audit(
                at=now, actor=by.actor, event=ENDED, digest="", detail=pattern.pattern_id
            )
            return pattern
    raise NotKnownError(
        f"nothing is dismissed under {pattern_id[:100]!a}, or it ended",
        "`trimtab findings dismissals` lists the patterns.",
    )


def _require_decider(person: Person, access: AccessSettings) -> None:
    """Refuse (NotAllowedError) who may not decide about the jobs of others, or has no name."""
    role = role_of(person, access)
    if role not in ("approver", "admin"):
        raise NotAllowedError(
            f"{person.name} is {role}: only approvers and admins dismiss by pattern",
            "Ask one of them, or dismiss findings of your own jobs one by one.",
        )
    require_person(person)
