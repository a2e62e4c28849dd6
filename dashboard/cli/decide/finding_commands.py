"""`trimtab findings list|show|idle`: the ones that only read."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from dashboard.accounting.savings.idle_bridge import IDLE_COLUMNS, idle_rows, idle_sum
from dashboard.api.http.pagination import PageOfRows
from dashboard.cli.terminal.ask import print_document
from dashboard.cli.terminal.context import asks_a_server, open_for_reading, settings_of
from dashboard.cli.terminal.output import print_json, print_rows, range_text, say
from dashboard.cli.terminal.remote_server import RemoteServer, server_of
from dashboard.common.figures import samples_text
from dashboard.common.replay_clock import NOT_APPLIED, present
from dashboard.decisions.finding_filter import (
    STATES,
    WORDS,
    FindingChoice,
    FindingOrder,
    chosen_findings,
    states_of,
)
from dashboard.decisions.findings import RESOLVED, findings_now
from dashboard.decisions.repeat_proposals import as_proposed_now
from dashboard.resources.rows import FindingRow, RevisionRow, finding_row
from data.base.errors import SettingsError
from data.records.actions import Action
from data.records.findings import number_of
from data.store import Store

if TYPE_CHECKING:
    from dashboard.resources.whole_finding import WholeFinding

_COLUMNS = (
    "finding", "state", "action", "job", "name", "namespace", "proposed", "saves", "energy", "risk",
    "opened", "seen", "until", "reason", "now", "expires", "id",
)  # fmt: skip


def list_(options: argparse.Namespace) -> int:
    """List the findings and where each stands."""
    choice = _choice(vars(options))
    if asks_a_server(options):
        return _list_of_server(options, server_of(options))
    with open_for_reading(loaded := settings_of(options)) as store:
        statuses = findings_now(store.reader, now=present(store.reader))
        _warn_of_recording(store)
    order = FindingOrder(vars(options).get("sort", FindingOrder.URGENT))
    selected = sorted(chosen_findings(statuses, choice), key=order.key)
    selected = selected[: vars(options).get("limit")]
    hidden = sum(status.state == RESOLVED for status in statuses)
    rows = [finding_row(status, loaded.settings) for status in selected]
    print_findings(rows, options.format, hidden=hidden)
    return 0


def _list_of_server(options: argparse.Namespace, server: RemoteServer) -> int:
    values = vars(options)
    names = ("state", "kind", "risk", "sort", "all", "since", *WORDS)
    query = {name: values[name] for name in names if values.get(name)}
    rows: list[FindingRow] = server.rows("findings", FindingRow, query)[: values.get("limit")]
    resolved = "findings?state=resolved&limit=1"
    hidden = 0 if rows else server.one(resolved, PageOfRows[FindingRow]).total
    print_findings(rows, options.format, hidden=hidden)
    return 0


def _warn_of_recording(store: Store) -> None:
    if store.reader.recording() is not None:
        say(NOT_APPLIED, file=sys.stderr)


def print_findings(findings: Sequence[FindingRow], form: str, *, hidden: int) -> None:
    """Print findings; `hidden` are resolved ones that are not among them."""
    if form == "json":
        print_json(findings)
        return
    print_rows(
        [_row(finding) for finding in findings],
        form,
        columns=_COLUMNS,
        empty=f"No finding{f'; --all shows the {hidden} resolved' if hidden else ''}.",
    )


def _choice(values: Mapping[str, Any]) -> FindingChoice:
    """Return the filter of the list. Errors: SettingsError for a word that no finding has."""
    terms = {"state": STATES, "kind": frozenset(Action)}
    for name, words in terms.items():
        if (word := values.get(name)) is not None and word not in words:
            raise SettingsError(
                f"--{name} {word[:50]!a} is no {name} of findings",
                f"Give one of {', '.join(sorted(words))}.",
            )
    names = ("kind", "risk", "all", "since", *WORDS)
    filters = {name: value for name in names if (value := values.get(name))}
    return FindingChoice(states=states_of(values.get("state")), **filters)


def _row(row: FindingRow) -> dict[str, object]:
    """Return a finding as a row of the list, whose recommendation may not be kept."""
    columns: dict[str, object] = {
        "finding": row.finding,
        "state": row.state,
        "action": row.action,
        "job": row.target,
        "opened": row.opened_at,
        "seen": row.seen_at,
        "until": row.until,
        "reason": row.reason,
    }
    revision = row.revision
    if revision is None:
        return dict.fromkeys(_COLUMNS, "") | columns
    return columns | {
        "id": revision.id,
        "name": revision.job_name,
        "namespace": revision.namespace,
        "now": revision.now.describe(),
        "proposed": revision.summary,
        "saves": range_text(revision.savings.cost),
        "energy": range_text(revision.savings.energy_kwh),
        "risk": str(revision.risk),
        "expires": revision.expires_at,
    }


def idle(options: argparse.Namespace) -> int:
    """List the jobs of the latest plan with what their GPUs do, and why what stays idle stays."""
    if asks_a_server(options):
        return print_document(options, "idle")
    with open_for_reading(settings_of(options)) as store:
        plan = store.reader.latest_plan()
    rows = [] if plan is None else list(map(asdict, idle_rows(plan)))
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
    """Show one finding whole; an id of one of its recommendations shows that one."""
    from dashboard.resources.whole_finding import WholeFinding, whole_finding  # loads appliers

    if asks_a_server(options):
        address = f"findings/{quote(options.id, safe='')}"
        print_finding(server_of(options).one(address, WholeFinding), options.format)
        return 0
    with open_for_reading(loaded := settings_of(options)) as store:
        now, newer = present(store.reader), ""
        number = store.reader.finding_number(options.id)
        statuses = findings_now(store.reader, now=now)
        (status,) = (status for status in statuses if status.finding.number == number)
        if not number_of(options.id):
            revision = store.reader.recommendation(options.id, now=now)
            status = replace(status, revision=revision)
            newest = as_proposed_now(store, options.id, now).recommendation
            newer = newest.recommendation_id if newest != revision.recommendation else ""
        _warn_of_recording(store)
        answer = whole_finding(store.reader, status, loaded.settings)
    print_finding(answer, options.format)
    if newer and options.format != "json":
        say(f"\nThe newest plan proposes the same: {newer}; either id names it.")
    return 0


def print_finding(whole: "WholeFinding", form: str) -> None:
    """Print one finding with its evidence, its change and its record."""
    finding, record = whole.finding, [asdict(row) for row in whole.record]
    if form == "json":
        print_json(asdict(finding) | {"record": record, "change": whole.change})
        return
    say(f"{finding.finding}  {finding.action}  {finding.state}")
    row, revision = _row(finding), finding.revision
    columns = {name: row[name] for name in _COLUMNS[3:]}
    if revision is not None:
        columns |= {"recommendation": revision.state, "apply first": ", ".join(finding.apply_first)}
        columns |= _evidence(revision)
    print_rows(
        [{"field": name, "value": value} for name, value in columns.items()],
        "table",
        columns=("field", "value"),
        empty="",
    )
    say(f"\n{whole.change or 'No change file is written for it.'}\n")
    print_rows(
        record,
        "table",
        columns=("at", "by", "event", "detail"),
        empty="Nobody has decided anything about it.",
    )


def _evidence(revision: RevisionRow) -> dict[str, object]:
    """Return what a recommendation rests on, in words."""
    evidence, savings = revision.evidence, revision.savings
    return {
        "why": revision.why,
        "saves GPU-hours": range_text(savings.gpu_hours),
        "saves emissions": range_text(savings.emissions_kgco2e),
        "saves emissions, market-based": range_text(savings.market_emissions_kgco2e),
        "over": f"{savings.horizon_hours:.4g} h",
        "change takes": _transition(revision),
        "expected wait in the queue": ""
        if revision.transition is None
        else revision.transition.queue,
        "work done later by": range_text(revision.delay_hours),
        "may be changed": evidence.elasticity,
        "doubts": "; ".join(evidence.flags),
        "confidence": revision.confidence,
        "signal": evidence.signal,
        "samples": samples_text(evidence),
        "forecast model": evidence.forecast_model,
        "assumed": "; ".join("=".join(pair) for pair in evidence.assumed),
        "fallbacks": "; ".join(evidence.fallbacks),
        "factors": "; ".join(": ".join(pair) for pair in evidence.factors),
        "digest": revision.digest,
    }


def _transition(recommendation: RevisionRow) -> str:
    """Return the seconds of a change with its parts, '' without one."""
    if recommendation.transition is None:
        return ""
    parts = ", ".join(f"{what} {seconds:g} s" for what, seconds in recommendation.transition.parts)
    return range_text(recommendation.transition.seconds) + (f": {parts}" if parts else "")
