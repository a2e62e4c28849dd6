"""`trimtab submit` and `trimtab submissions`: jobs that name no GPU, from file to finished run."""

import argparse
import getpass
import sys
import time
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from dashboard.cli.terminal.context import open_for_reading, open_store_or_holder, settings_of
from dashboard.cli.terminal.output import print_json, print_rows, say
from dashboard.submission.estimates.estimate import plan_row
from dashboard.submission.job.job_file import load_job_file
from dashboard.submission.submit.proposal import SubmissionProposal
from dashboard.submission.submit.submission_rows import (
    ProposalDocument,
    SubmissionRow,
    proposal_document,
    proposal_now,
    submission_row,
)
from dashboard.submission.submit.submit import submission_refusal
from dashboard.submission.submit.submit import submit as send
from dashboard.submission.submit.watch import watch_all
from dashboard.submission.targets.choose_target import target_name, target_of
from data.base.clock import utc_now
from data.base.counts import count_text
from data.base.errors import ApplyError, ChangeRefusedError
from data.base.rows import columns_of
from data.settings.all_settings import Settings
from data.store import Store, open_store
from planner.memory.estimate.predictor import gib

FINDINGS = 3
_SHOWN_PLANS = 5
_ATTEMPT_COLUMNS = (
    "attempt", "state", "job", "gpus", "gpu", "nodes", "data", "tensor", "pipeline", "micro_batch",
    "recompute", "p50_gib", "peak_gib", "raised", "reason",
)  # fmt: skip


def submit(options: argparse.Namespace) -> int:
    """Show plan, place and manifest of a job file; submit it once a person agrees."""
    settings = settings_of(options).settings
    job = load_job_file(Path(options.job))
    name = target_name(settings, options.target or "")
    target = target_of(settings, name)
    by = options.by or getpass.getuser()
    # A job that is sent has to be noted, so the store is opened for it.
    open_ = partial(open_store_or_holder, create=True) if options.dry_run else open_store
    with open_(settings.store.url) as store:
        proposal = proposal_now(job, target, store.reader, settings, by=by, now=utc_now())
        reply = target.check(proposal.manifest) if options.dry_run else ""
        _show(proposal, options, reply)
        if options.dry_run:
            return 0
        if reason := submission_refusal(settings):
            raise ApplyError("the job was not submitted", reason)
        if not (options.yes or _agreed(name)):
            print("Not submitted.", file=sys.stderr)
            return FINDINGS
        submission = send(proposal, target, store, settings=settings, by=by, now=utc_now())
    text = f"submitted {submission.submission_id} as {submission.latest.job_id}"
    say(text, file=sys.stderr if options.format == "json" else sys.stdout)
    return 0


def _agreed(target: str) -> bool:
    """Ask a person at the terminal. Errors: ChangeRefusedError when nobody is there to ask."""
    if not sys.stdin.isatty():
        raise ChangeRefusedError(
            "nobody is there to confirm the submission",
            "Give --yes or --dry-run.",
        )
    print(f"Submit this to {target}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().casefold() in ("y", "yes")


def _show(proposal: SubmissionProposal, options: argparse.Namespace, reply: str) -> None:
    """Print the proposal: the plan, where it goes, the launch command and the exact manifest."""
    if options.format == "json":
        print_json(proposal_document(ProposalDocument, proposal, cluster_says=reply))
        return
    placement = proposal.placement
    plan = placement.plan
    where = ", ".join(placement.nodes) or "waits in the queue"
    say(
        f"{proposal.job.name}: {plan.gpus} x {plan.gpu_type}, "
        f"{count_text(placement.node_count, 'node')} with "
        f"{count_text(placement.gpus_per_node, 'GPU')} each ({where})"
    )
    for warning in proposal.warnings:
        say(f"warning: {warning}")
    # The chosen plan first, then the best of those that it was chosen from.
    offers = (*proposal.offers.plans, *proposal.offers.left_out)
    others = [offer for offer in proposal.offers.plans if offer.plan is not plan]
    first = [offer for offer in offers if offer.plan is plan]
    listed = [*first, *others][:_SHOWN_PLANS]
    rows = [plan_row(offer, tokens=proposal.job.tokens) for offer in listed]
    print_rows(rows, "table", columns=tuple(rows[0]), empty="")
    for note in proposal.notes:
        say(f"note: {note}")
    say(f"\nlaunch: {proposal.manifest.launch}\n\n{proposal.manifest.text}")
    if reply:
        say(f"\n{proposal.submission.target} says: {reply}")


def list_(options: argparse.Namespace) -> int:
    """List every submitted job and where it stands."""
    with open_for_reading(settings_of(options)) as store:
        submissions = store.reader.submissions()
        cycle = store.reader.last_cycle()
    rows = [asdict(submission_row(submission)) for submission in submissions]
    columns = columns_of(SubmissionRow)
    print_rows(rows, options.format, columns=columns, empty="Nothing has been submitted yet.")
    if any(submission.state.is_open for submission in submissions):
        looked = None if cycle is None else cycle.started_at
        say(state_age_text(looked, utc_now()), file=sys.stderr)
    return 0


def state_age_text(looked: datetime | None, now: datetime) -> str:
    """Return the possible age of the states of open submissions, in words."""
    if looked is None:
        when = "by no cycle yet"
    else:
        minutes = (now - looked) / timedelta(minutes=1)
        age = f"{minutes / 60:.1f} h" if minutes >= 60 else f"{minutes:.0f} min"
        when = f"by the cycle of {looked:%Y-%m-%d %H:%M} UTC, {age} ago"
    return f"Open submissions were looked at {when}; `trimtab submissions watch` asks the clusters."


def show(options: argparse.Namespace) -> int:
    """Show one submission whole: its attempts and the manifest of the latest."""
    with open_for_reading(settings_of(options)) as store:
        submission = store.reader.submission(options.id)
    if options.format == "json":
        print_json(
            {
                "id": submission.submission_id,
                "state": str(submission.state),
                "submission": submission,
            }
        )
        return 0
    say(
        f"{submission.submission_id}  {submission.name}  {submission.state}"
        f"  by {submission.submitted_by}  {submission.target}"
    )
    rows = [
        {
            "attempt": attempt.number,
            "state": str(attempt.state),
            "job": attempt.job_id,
            "gpus": attempt.plan.gpus,
            "gpu": attempt.plan.gpu_type,
            "nodes": attempt.plan.nodes,
            "data": attempt.plan.data,
            "tensor": attempt.plan.tensor,
            "pipeline": attempt.plan.pipeline,
            "micro_batch": attempt.plan.micro_batch,
            "recompute": attempt.plan.recompute,
            "p50_gib": gib(attempt.plan.p50_bytes),
            "peak_gib": None if attempt.peak_bytes is None else gib(attempt.peak_bytes),
            "raised": attempt.raised,
            "reason": attempt.reason,
        }
        for attempt in submission.attempts
    ]
    print_rows(rows, "table", columns=_ATTEMPT_COLUMNS, empty="")
    say("\n" + submission.latest.manifest)
    return 0


def watch(options: argparse.Namespace) -> int:
    """Ask the clusters how open submissions fare; 3 when one did not answer."""
    settings = settings_of(options).settings
    with open_for_reading(settings_of(options)) as store:
        failed = _look(store, settings)
        while options.until_done and any(
            submission.state.is_open for submission in store.reader.submissions()
        ):
            time.sleep(max(1.0, options.every))
            failed = _look(store, settings)
    return FINDINGS if failed else 0


def _look(store: Store, settings: Settings) -> bool:
    looks = watch_all(store, settings, now=utc_now())
    for look in looks:
        sent = look.submission
        text = look.error or sent.latest.reason
        say(f"{sent.submission_id}  {sent.name}  {sent.state}  {text}".rstrip())
    return any(look.error for look in looks)
