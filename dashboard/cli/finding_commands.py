"""`trimtab findings`: list, show, snooze, dismiss, reopen."""

import argparse
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from dashboard.api.finding_choice import FindingChoice, FindingOrder, chosen_findings
from dashboard.api.rows import finding_row, record_of
from dashboard.cli.output import print_json, print_rows, range_text, say
from dashboard.cli.world import ask, decided, open_for_reading, settings_of
from dashboard.findings import MAX_SNOOZE, RESOLVED, FindingStatus, findings_now
from dashboard.recording import present
from data.errors import ChangeRefusedError, SettingsError
from data.records.findings import reference

_COLUMNS = (
    "finding", "state", "action", "job", "proposed", "saves", "energy", "risk", "opened", "seen",
    "until", "reason",
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
        found = findings_now(store.reader, now=present(store.reader))
    given = vars(options)
    choice = _choice(given)
    order = FindingOrder(given.get("sort", FindingOrder.URGENT))
    chosen = sorted(chosen_findings(found, choice), key=order.key)
    if options.format == "json":
        print_json([finding_row(status) for status in chosen])
        return
    hidden = sum(status.state == RESOLVED for status in found)
    print_rows(
        [_row(status) for status in chosen],
        options.format,
        columns=_COLUMNS,
        empty=f"No finding{f'; --all shows the {hidden} resolved' if hidden else ''}.",
    )


def _choice(given: Mapping[str, Any]) -> FindingChoice:
    """Return what is to be listed. Errors: SettingsError for a word that no finding has."""
    named = {name: given.get(name) for name in ("state", "kind", "team", "risk")}
    try:
        return FindingChoice.model_validate(named | {"all": given.get("all", False)})
    except ValidationError as error:
        first = error.errors()[0]
        raise SettingsError(
            f"--{first['loc'][0]} {named[str(first['loc'][0])]!a} is no such word", first["msg"]
        ) from error


def _row(status: FindingStatus) -> dict[str, object]:
    said = None if status.revision is None else status.revision.recommendation
    return {
        "finding": status.finding.reference,
        "state": status.state,
        "action": status.finding.action,
        "job": status.finding.target,
        "proposed": "" if said is None else said.summary,
        "saves": "" if said is None else range_text(said.savings.cost),
        "energy": "" if said is None else range_text(said.savings.energy_kwh),
        "risk": "" if said is None else str(said.risk),
        "opened": status.finding.opened_at,
        "seen": status.finding.seen_at,
        "until": status.until,
        "reason": status.reason,
    }


def show(options: argparse.Namespace) -> int:
    """Show one finding with what was said of it."""
    with open_for_reading(settings_of(options)) as store:
        now = present(store.reader)
        number = store.reader.finding_number(options.id)
        (shown,) = (
            status
            for status in findings_now(store.reader, now=now)
            if status.finding.number == number
        )
        record = [asdict(row) for row in record_of(store.reader, number)]
    if options.format == "json":
        print_json(asdict(finding_row(shown)) | {"record": record})
        return 0
    say(f"{reference(number)}  {shown.finding.action}  {shown.state}")
    rows = _row(shown)
    print_rows(
        [{"field": name, "value": rows[name]} for name in _COLUMNS[3:]],
        "table",
        columns=("field", "value"),
        empty="",
    )
    if shown.revision is not None:
        its_id = shown.revision.recommendation.recommendation_id
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
    with open_for_reading(settings_of(options)) as store:
        until = _snooze_until(options, present(store.reader))
        told = ask(options, store, "snooze", until=until, comment=options.comment)
    say(f"{told.finding} is not proposed before {until:%Y-%m-%d %H:%M} UTC")
    return 0


def reopen(options: argparse.Namespace) -> int:
    """Let a finding, or what a pattern matches, be proposed again."""
    from dashboard.cli import dismissal_commands  # loads what serves the API: not for a list

    if dismissal_commands.one_way(options):
        return dismissal_commands.end(options)
    told = decided(options, "reopen")
    say(f"{told.finding} may be proposed again, by the next cycle")
    return 0


def dismiss(options: argparse.Namespace) -> int:
    """Reject what a finding proposes, or what matches a pattern, with a reason."""
    from dashboard.cli import dismissal_commands

    if dismissal_commands.one_way(options):
        return dismissal_commands.make(options)
    told = decided(options, "reject", reason=options.reason)
    say(f"{options.id} is dismissed by {told.by}: {options.reason}")
    return 0
