"""`trimtab findings`: list, show, snooze, dismiss, reopen."""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime, timedelta
from typing import Any

from dashboard.cli.terminal.context import (
    ask,
    asks_a_server,
    decided,
    open_for_reading,
    settings_of,
)
from dashboard.cli.terminal.output import print_json, print_rows, range_text, say
from dashboard.common.replay_clock import present
from dashboard.decisions.finding_filter import STATES, FindingChoice, FindingOrder, chosen_findings
from dashboard.decisions.findings import MAX_SNOOZE, RESOLVED, FindingStatus, findings_now
from dashboard.resources.rows import FindingRow, RecordRow, finding_row, record_of
from data.base.clock import utc_now
from data.base.errors import ChangeRefusedError, SettingsError
from data.records.actions import Action, Risk
from data.records.recommendations import Recommendation
from data.store.engine.record_json import build

_COLUMNS = (
    "finding", "state", "action", "job", "name", "namespace", "proposed", "saves", "energy", "risk",
    "opened", "seen", "until", "reason",
)  # fmt: skip


def list_(options: argparse.Namespace) -> int:
    """List the findings and where each stands; with --watch again and again until Ctrl-C."""
    _print_list(options)
    while seconds := vars(options).get("watch"):
        sys.stdout.flush()
        time.sleep(seconds)
        say("")
        _print_list(options)
    return 0


def _print_list(options: argparse.Namespace) -> None:
    with open_for_reading(settings_of(options)) as store:
        statuses = findings_now(store.reader, now=present(store.reader))
    values = vars(options)
    choice = _choice(values)
    order = FindingOrder(values.get("sort", FindingOrder.URGENT))
    selected = sorted(chosen_findings(statuses, choice), key=order.key)
    hidden = sum(status.state == RESOLVED for status in statuses)
    print_findings([_pair(status) for status in selected], options.format, hidden=hidden)


Shown = tuple[FindingRow, Recommendation | None]
"""A finding and what is proposed of it."""


def print_findings(findings: Sequence[Shown], form: str, *, hidden: int) -> None:
    """Print findings; `hidden` are resolved ones that are not among them."""
    if form == "json":
        print_json([row for row, _said in findings])
        return
    print_rows(
        [_row(*finding) for finding in findings],
        form,
        columns=_COLUMNS,
        empty=f"No finding{f'; --all shows the {hidden} resolved' if hidden else ''}.",
    )


def _pair(status: FindingStatus) -> Shown:
    revision = status.revision
    return finding_row(status), None if revision is None else revision.recommendation


def shown_of(row: FindingRow) -> Shown:
    """Return a finding as the API tells it, with its recommendation read back."""
    if row.revision is None:
        return row, None
    names = {field.name for field in fields(Recommendation)}
    content = {name: value for name, value in row.revision.items() if name in names}
    return row, build(Recommendation, content).as_kept(str(row.revision["digest"]))


def _choice(values: Mapping[str, Any]) -> FindingChoice:
    """Return the filter of the list. Errors: SettingsError for a word that no finding has."""
    terms = {"state": STATES, "kind": frozenset(Action)}
    for name, words in terms.items():
        if (word := values.get(name)) is not None and word not in words:
            raise SettingsError(
                f"--{name} {word[:50]!a} is no {name} of findings",
                f"Give one of {', '.join(sorted(words))}.",
            )
    kind, risk = values.get("kind"), values.get("risk")
    return FindingChoice(
        state=values.get("state"),
        kind=kind and Action(kind),
        team=values.get("team"),
        risk=risk and Risk(risk),
        all=values.get("all", False),
    )


def _row(row: FindingRow, revision: Recommendation | None) -> dict[str, object]:
    return {
        "finding": row.finding,
        "state": row.state,
        "action": row.action,
        "job": row.target,
        "name": "" if revision is None else revision.job_name,
        "namespace": "" if revision is None else revision.namespace,
        "proposed": "" if revision is None else revision.summary,
        "saves": "" if revision is None else range_text(revision.savings.cost),
        "energy": "" if revision is None else range_text(revision.savings.energy_kwh),
        "risk": "" if revision is None else str(revision.risk),
        "opened": row.opened_at,
        "seen": row.seen_at,
        "until": row.until,
        "reason": row.reason,
    }


def show(options: argparse.Namespace) -> int:
    """Show one finding with what was said of it."""
    with open_for_reading(settings_of(options)) as store:
        now = present(store.reader)
        number = store.reader.finding_number(options.id)
        (status,) = (
            status
            for status in findings_now(store.reader, now=now)
            if status.finding.number == number
        )
        record = record_of(store.reader, number)
    print_finding(_pair(status), record, options.format)
    return 0


def print_finding(pair: Shown, said_of_it: Sequence[RecordRow], form: str) -> None:
    """Print one finding with its record."""
    finding, revision = pair
    record = [asdict(row) for row in said_of_it]
    if form == "json":
        print_json(asdict(finding) | {"record": record})
        return
    say(f"{finding.finding}  {finding.action}  {finding.state}")
    rows = _row(finding, revision)
    print_rows(
        [{"field": name, "value": rows[name]} for name in _COLUMNS[3:]],
        "table",
        columns=("field", "value"),
        empty="",
    )
    if revision is not None:
        say(f"\nEvidence and change: trimtab recommendations show {revision.recommendation_id}\n")
    print_rows(
        record,
        "table",
        columns=("at", "by", "event", "detail"),
        empty="Nobody has decided anything about it.",
    )


def _snooze_until(options: argparse.Namespace, now: datetime) -> datetime:
    """Return the end of a snooze. Errors: ChangeRefusedError."""
    until: datetime | None = options.until
    if until is not None:
        return until
    if not 0 < options.days <= MAX_SNOOZE.days:
        raise ChangeRefusedError(
            f"a finding cannot be snoozed for {options.days:g} days",
            f"Give more than 0 and at most {MAX_SNOOZE.days} days.",
        )
    return now + timedelta(days=options.days)


def snooze(options: argparse.Namespace) -> int:
    """Keep a finding from being proposed before a time."""
    if asks_a_server(options):
        until = _snooze_until(options, utc_now())
        outcome = ask(options, None, "snooze", until=until, comment=options.comment)
    else:
        with open_for_reading(settings_of(options)) as store:
            until = _snooze_until(options, present(store.reader))
            outcome = ask(options, store, "snooze", until=until, comment=options.comment)
    say(f"{outcome.finding} is not proposed before {until:%Y-%m-%d %H:%M} UTC")
    return 0


def reopen(options: argparse.Namespace) -> int:
    """Let a finding, or what a pattern matches, be proposed again."""
    from dashboard.cli.decide import dismissal_commands  # loads what serves the API: not for a list

    if dismissal_commands.one_way(options):
        return dismissal_commands.end(options)
    outcome = decided(options, "reopen")
    say(f"{outcome.finding} may be proposed again, by the next cycle")
    return 0


def dismiss(options: argparse.Namespace) -> int:
    """Reject what a finding proposes, or what matches a pattern, with a reason."""
    from dashboard.cli.decide import dismissal_commands

    if dismissal_commands.one_way(options):
        return dismissal_commands.make(options)
    outcome = decided(options, "reject", reason=options.reason)
    say(f"{options.id} is dismissed by {outcome.by}: {options.reason}")
    return 0
