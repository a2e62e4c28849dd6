"""`trimtab recommendations`: list, show, approve, reject."""

import argparse
import sys
from typing import TYPE_CHECKING
from urllib.parse import quote

from dashboard.accounting.savings.idle_bridge import IDLE_COLUMNS, idle_rows, idle_sum
from dashboard.cli.terminal.context import (
    ask_holder,
    asks_a_server,
    decided,
    decision_service_of,
    open_for_reading,
    person_of,
    settings_of,
)
from dashboard.cli.terminal.output import print_json, print_rows, range_text, say
from dashboard.common.figures import samples_text
from dashboard.common.replay_clock import NOT_APPLIED, present
from dashboard.decisions.repeat_proposals import as_proposed_now
from data.base.errors import ChangeRefusedError
from data.records.findings import number_of
from data.records.recommendations import Recommendation
from data.store import Store, StoredRecommendation

if TYPE_CHECKING:
    from dashboard.api.routes.computed import LivePreview

_COLUMNS = (
    "finding", "id", "state", "action", "job", "now", "proposed", "saves", "energy", "risk",
    "expires",
)  # fmt: skip


def list_(options: argparse.Namespace) -> int:
    """List the recommendations and what became of each."""
    state = getattr(options, "state", None)
    with open_for_reading(settings_of(options)) as store:
        stored = [
            recommendation
            for recommendation in store.reader.recommendations(now=present(store.reader))
            if state in (None, recommendation.state)
        ]
        _warn_of_recording(store)
    if options.format == "json":
        print_json([_document(entry) for entry in stored])
        return 0
    print_rows(
        [
            {
                "finding": entry.reference,
                "id": entry.recommendation.recommendation_id,
                "state": entry.state,
                "action": str(entry.recommendation.action),
                "job": entry.recommendation.target,
                "now": entry.recommendation.now.describe(),
                "proposed": entry.recommendation.summary,
                "saves": range_text(entry.recommendation.savings.cost),
                "energy": range_text(entry.recommendation.savings.energy_kwh),
                "risk": str(entry.recommendation.risk),
                "expires": entry.recommendation.expires_at,
            }
            for entry in stored
        ],
        options.format,
        columns=_COLUMNS,
        empty="No recommendation: run `trimtab cycle`.",
    )
    return 0


def _warn_of_recording(store: Store) -> None:
    if store.reader.recording() is not None:
        say(NOT_APPLIED, file=sys.stderr)


def _document(stored: StoredRecommendation) -> dict[str, object]:
    return stored.recommendation.as_dict() | {
        "finding": stored.reference,
        "state": stored.state,
        "decided_by": stored.decided_by,
        "decided_at": stored.decided_at,
        "comment": stored.comment,
    }


def idle(options: argparse.Namespace) -> int:
    """List the jobs of the latest plan with what their GPUs do, and why what stays idle stays."""
    with open_for_reading(settings_of(options)) as store:
        plan = store.reader.latest_plan()
    rows = [] if plan is None else idle_rows(plan)
    if options.format != "table":
        print_rows(rows, options.format, columns=IDLE_COLUMNS, empty="")
        return 0
    documents = [
        {name: f"{value:.2f}" if isinstance(value, float) else value for name, value in row.items()}
        for row in rows
    ]
    print_rows(documents, "table", columns=IDLE_COLUMNS, empty="No plan yet: run `trimtab cycle`.")
    if plan is not None and (sentence := idle_sum(plan).sentence()):
        say(sentence)
    return 0


def show(options: argparse.Namespace) -> int:
    """Show one recommendation whole, with the exact text of its change."""
    from dashboard.decisions import approvals

    with open_for_reading(settings_of(options)) as store:
        now = present(store.reader)
        stored = store.reader.recommendation(options.id, now=now)
        newer = as_proposed_now(store, options.id, now).recommendation
        _warn_of_recording(store)
        try:
            change = approvals.preview(store.reader, stored.recommendation).text
        except ChangeRefusedError as error:
            change = f"no change file: {error}"
    if options.format == "json":
        print_json(_document(stored) | {"change": change})
        return 0
    recommendation = stored.recommendation
    evidence = recommendation.evidence
    say(f"{stored.reference}  {recommendation.recommendation_id}  {recommendation.action}")
    say(f"{stored.state}, risk {recommendation.risk}")
    if newer.digest != recommendation.digest:
        say(f"The newest plan proposes the same: {newer.recommendation_id}; either id names it.")
    print_rows(
        [
            {"field": "job", "value": recommendation.target},
            {"field": "now", "value": recommendation.now.describe()},
            {"field": "proposed", "value": recommendation.summary},
            {"field": "why", "value": recommendation.why},
            {"field": "saves cost", "value": range_text(recommendation.savings.cost)},
            {"field": "saves GPU-hours", "value": range_text(recommendation.savings.gpu_hours)},
            {"field": "saves energy", "value": range_text(recommendation.savings.energy_kwh)},
            {
                "field": "saves emissions",
                "value": range_text(recommendation.savings.emissions_kgco2e),
            },
            {
                "field": "saves emissions, market-based",
                "value": range_text(recommendation.savings.market_emissions_kgco2e),
            },
            {"field": "over", "value": f"{recommendation.savings.horizon_hours:.4g} h"},
            {"field": "change takes", "value": _transition(recommendation)},
            {
                "field": "expected wait in the queue",
                "value": ""
                if recommendation.transition is None
                else recommendation.transition.queue,
            },
            {"field": "work done later by", "value": range_text(recommendation.delay_hours)},
            {"field": "may be changed", "value": evidence.elasticity},
            {"field": "doubts", "value": "; ".join(evidence.flags)},
            {"field": "confidence", "value": recommendation.confidence},
            {"field": "signal", "value": evidence.signal},
            {"field": "samples", "value": samples_text(evidence)},
            {"field": "forecast model", "value": evidence.forecast_model},
            {"field": "assumed", "value": "; ".join("=".join(pair) for pair in evidence.assumed)},
            {"field": "fallbacks", "value": "; ".join(evidence.fallbacks)},
            {"field": "factors", "value": "; ".join(": ".join(pair) for pair in evidence.factors)},
            {"field": "expires", "value": recommendation.expires_at},
            {"field": "digest", "value": recommendation.digest},
        ],
        "table",
        columns=("field", "value"),
        empty="",
    )
    say("\n" + change)
    return 0


def _transition(recommendation: Recommendation) -> str:
    """Return the seconds of a change with its parts, '' without one."""
    if recommendation.transition is None:
        return ""
    parts = ", ".join(f"{what} {seconds:g} s" for what, seconds in recommendation.transition.parts)
    return range_text(recommendation.transition.seconds) + (f": {parts}" if parts else "")


def approve(options: argparse.Namespace) -> int:
    """Approve this recommendation, as the newest plan has it; with --look, these steps alone."""
    digest = _looked(options) if options.look else ""
    outcome = decided(options, "approve", change_digest=digest)
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

    from dashboard.api.routes.computed import ChangePreview, looked_at
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
                return digest, looked_at(service, digest, person_of(options))
        preview = TypeAdapter(ChangePreview).validate_json(answer)
    if preview.live is None:
        raise ChangeRefusedError(preview.not_live.rstrip("."), "Nothing was approved.")
    return preview.recommendation_id or options.id, preview.live


def _newer(options: argparse.Namespace, digest: str) -> str:
    """Say that a decision is about the newest plan's proposal of the same change."""
    if number_of(options.id) or digest.startswith(options.id.strip().lower()):
        return ""
    return f", which the newest plan proposes in place of {options.id}"


def reject(options: argparse.Namespace) -> int:
    """Reject this recommendation."""
    outcome = decided(options, "reject", reason=options.reason)
    say(f"rejected {outcome.digest} by {outcome.by}{_newer(options, outcome.digest)}")
    return 0
