"""`trimtab findings approve|snooze|dismiss|reopen|accept`: decisions that touch no cluster."""

import argparse
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote

from dashboard.cli.terminal.context import (
    ask,
    ask_holder,
    asks_a_server,
    decided,
    decision_service_of,
    open_for_reading,
    person_of,
    settings_of,
)
from dashboard.cli.terminal.output import say
from dashboard.common.replay_clock import present
from dashboard.decisions.findings import MAX_SNOOZE
from data.base.clock import utc_now
from data.base.errors import ChangeRefusedError
from data.records.findings import number_of

if TYPE_CHECKING:
    from dashboard.api.routes.computed import LivePreview


def approve(options: argparse.Namespace) -> int:
    """Approve this recommendation, as the newest plan has it; with --look, these steps alone."""
    digest = _looked(options) if options.look else ""
    outcome = decided(options, change_digest=digest)
    say(f"approved {outcome.digest} by {outcome.by}{_newer(options, outcome.digest)}")
    return 0


def _looked(options: argparse.Namespace) -> str:
    """Print what would be sent to the target now, and return its digest; `id` is what was seen.

    Errors: ChangeRefusedError where no look is to be had, or the target refuses the change.
    """
    options.id, live = _look(options)
    for step in live.steps:
        say(f"{step.target}: {step.field}: {step.before} -> {step.after}")
        say(step.text)
    for note in (*live.notes, *live.warnings):
        say(f"note: {note}")
    if live.refusals:
        raise ChangeRefusedError(
            f"{live.target} refuses it: {'; '.join(live.refusals)}", "Nothing was approved."
        )
    return live.change_digest


def _look(options: argparse.Namespace) -> "tuple[str, LivePreview]":
    from pydantic import TypeAdapter

    from dashboard.api.routes.computed import ChangePreview, preview_of_target
    from dashboard.cli.terminal.remote_server import server_of

    path = f"findings/{quote(options.id, safe='')}/preview"
    if asks_a_server(options):
        preview = server_of(options).one(path, ChangePreview)
    else:
        with open_for_reading(settings_of(options)) as store:
            answer = ask_holder(options, store, "GET", f"/api/v1/{path}")
            if answer is None:
                service = decision_service_of(options, store)
                digest = service.stored(options.id).recommendation.digest
                return digest, preview_of_target(service, digest, person_of(options))
        preview = TypeAdapter(ChangePreview).validate_json(answer)
    if preview.live is None:
        raise ChangeRefusedError(preview.not_live.rstrip("."), "Nothing was approved.")
    return preview.recommendation_id or options.id, preview.live


def _newer(options: argparse.Namespace, digest: str) -> str:
    """Say that a decision is about the newest plan's proposal of the same change."""
    if number_of(options.id) or digest.startswith(options.id.strip().lower()):
        return ""
    return f", which the newest plan proposes in place of {options.id}"


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
        outcome = ask(options, None, until=until, comment=options.comment)
    else:
        with open_for_reading(settings_of(options)) as store:
            until = _snooze_until(options, present(store.reader))
            outcome = ask(options, store, until=until, comment=options.comment)
    say(f"{outcome.finding} is not proposed before {until:%Y-%m-%d %H:%M} UTC")
    return 0


def reopen(options: argparse.Namespace) -> int:
    """Let a finding be proposed again."""
    outcome = decided(options)
    say(f"{outcome.finding} may be proposed again, by the next cycle")
    return 0


def dismiss(options: argparse.Namespace) -> int:
    """Reject what a finding proposes, with a reason."""
    outcome = decided(options, reason=options.reason)
    why = f": {options.reason}" if options.reason else ""
    say(f"{outcome.finding} is dismissed by {outcome.by}{_newer(options, outcome.digest)}{why}")
    return 0


def accept(options: argparse.Namespace) -> int:
    """Record that an applied change is to stay."""
    outcome = decided(options)
    say(f"{outcome.finding} is accepted by {outcome.by}")
    return 0


def acknowledge(options: argparse.Namespace) -> int:
    """Take an alert on."""
    from dashboard.resources.alerts import AlertWish  # loads what computes alerts
    from dashboard.resources.alerts import acknowledge as take_on

    wish = AlertWish(alert=options.id, comment=options.comment)
    with open_for_reading(settings_of(options)) as store:
        if ask_holder(options, store, "POST", "/api/v1/urgent", wish.model_dump()) is None:
            take_on(decision_service_of(options, store), store.reader, wish, person_of(options))
    say(f"{options.id} is acknowledged by {options.by}")
    return 0
