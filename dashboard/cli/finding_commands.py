"""`trimtab findings`: list, show, snooze, dismiss, reopen."""

import argparse
from collections.abc import Callable
from datetime import datetime, timedelta

from dashboard import decisions, findings
from dashboard.cli.output import print_json, print_rows, range_text, say
from dashboard.cli.world import decided, open_for_reading, settings_of
from dashboard.findings import MAX_SNOOZE, RESOLVED, FindingStatus, findings_now
from dashboard.recording import present
from data.clock import utc_now
from data.errors import ChangeRefusedError
from data.records.findings import DismissalReason, reference

_COLUMNS = (
    "finding", "state", "action", "job", "proposed", "saves", "energy", "risk", "opened", "seen",
    "until", "reason",
)  # fmt: skip


def list_(options: argparse.Namespace) -> int:
    """List the findings and where each stands."""
    with open_for_reading(settings_of(options)) as store:
        found = findings_now(store.reader, now=present(store.reader))
    order = _ORDERS[getattr(options, "sort", "saving")]
    chosen = sorted((status for status in found if _is_wanted(status, options)), key=order)
    if options.format == "json":
        print_json([_document(status) for status in chosen])
        return 0
    hidden = sum(status.state == RESOLVED for status in found)
    print_rows(
        [_row(status) for status in chosen],
        options.format,
        columns=_COLUMNS,
        empty=f"No finding{f'; --all shows the {hidden} resolved' if hidden else ''}.",
    )
    return 0


def _is_wanted(one: FindingStatus, options: argparse.Namespace) -> bool:
    state = getattr(options, "state", None)
    if state is None and one.state == RESOLVED and not getattr(options, "all", False):
        return False
    said = None if one.revision is None else one.revision.recommendation
    wanted = (
        (state, one.state),
        (getattr(options, "kind", None), one.finding.action),
        (getattr(options, "team", None), None if said is None else said.namespace),
        (getattr(options, "risk", None), None if said is None else str(said.risk)),
    )
    return all(asked in (None, has) for asked, has in wanted)


def _saving(one: FindingStatus) -> float:
    cost = None if one.revision is None else one.revision.recommendation.savings.cost
    return 0.0 if cost is None else cost.central


_ORDERS: dict[str, Callable[[FindingStatus], tuple[float, int]]] = {
    "saving": lambda one: (-_saving(one), one.finding.number),
    "number": lambda one: (0.0, one.finding.number),
    "seen": lambda one: (
        -one.finding.seen_at.timestamp() if one.finding.seen_at else 0.0,
        one.finding.number,
    ),
}


def _row(one: FindingStatus) -> dict[str, object]:
    said = None if one.revision is None else one.revision.recommendation
    return {
        "finding": one.finding.reference,
        "state": one.state,
        "action": one.finding.action,
        "job": one.finding.target,
        "proposed": "" if said is None else said.summary,
        "saves": "" if said is None else range_text(said.savings.cost),
        "energy": "" if said is None else range_text(said.savings.energy_kwh),
        "risk": "" if said is None else str(said.risk),
        "opened": one.finding.opened_at,
        "seen": one.finding.seen_at,
        "until": one.until,
        "reason": one.reason,
    }


def _document(one: FindingStatus) -> dict[str, object]:
    return {
        "finding": one.finding.reference,
        "target": one.finding.target,
        "action": one.finding.action,
        "state": one.state,
        "opened_at": one.finding.opened_at,
        "seen_at": one.finding.seen_at,
        "until": one.until,
        "reason": one.reason,
        "revision": None if one.revision is None else one.revision.recommendation.as_dict(),
    }


def show(options: argparse.Namespace) -> int:
    """Show one finding with what was said of it."""
    with open_for_reading(settings_of(options)) as store:
        now = present(store.reader)
        number = store.reader.finding_number(options.id)
        (one,) = (
            status
            for status in findings_now(store.reader, now=now)
            if status.finding.number == number
        )
        record = [
            {"at": entry.at, "by": entry.actor, "event": entry.event, "detail": entry.detail}
            for entry in store.reader.entries_about(number)
        ]
    if options.format == "json":
        print_json(_document(one) | {"record": record})
        return 0
    say(f"{reference(number)}  {one.finding.action}  {one.state}")
    rows = _row(one)
    print_rows(
        [{"field": name, "value": rows[name]} for name in _COLUMNS[3:]],
        "table",
        columns=("field", "value"),
        empty="",
    )
    if one.revision is not None:
        its_id = one.revision.recommendation.recommendation_id
        say(f"\nEvidence and change: trimtab recommendations show {its_id}\n")
    print_rows(
        record,
        "table",
        columns=("at", "by", "event", "detail"),
        empty="Nobody has decided anything about it.",
    )
    return 0


def _snooze_until(options: argparse.Namespace, now: datetime) -> datetime:
    """Return the end of a snooze. Errors: ChangeRefusedError."""
    asked: datetime | None = options.until
    if asked is not None:
        return asked
    if not 0 < options.days <= MAX_SNOOZE.days:
        raise ChangeRefusedError(
            f"a finding cannot be snoozed for {options.days:g} days",
            f"Give more than 0 and at most {MAX_SNOOZE.days} days.",
        )
    return now + timedelta(days=options.days)


def snooze(options: argparse.Namespace) -> int:
    """Keep a finding from being proposed before a time."""
    until = _snooze_until(options, utc_now())
    event = decided(options, findings.snooze, until=until)
    say(f"{reference(event.number)} is not proposed before {until:%Y-%m-%d %H:%M} UTC")
    return 0


def reopen(options: argparse.Namespace) -> int:
    """Let a finding be proposed again."""
    event = decided(options, findings.reopen)
    say(f"{reference(event.number)} may be proposed again, by the next cycle")
    return 0


def dismiss(options: argparse.Namespace) -> int:
    """Reject what a finding proposes, with a reason."""
    entry = decided(options, decisions.reject, reason=DismissalReason(options.reason))
    say(f"{options.id} is dismissed by {entry.actor}: {options.reason}")
    return 0
