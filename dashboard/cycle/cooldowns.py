"""Targets without recommendations for now: their last change is not over yet."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from data.base.errors import scrub
from data.facts.collected import Collected
from data.facts.fleet import SourceState
from data.facts.jobs import ENDED_STATES, Job
from data.records.findings import FindingEventKind
from data.records.lifecycle import ACTIVE_STATES, CHANGED_TARGET, OPEN, STANDING_STATES, State
from data.records.recommendations import Recommendation
from data.records.target_facts import TARGET_FACTS, target_facts
from data.store import StoredRecommendation, StoreReader
from planner.proposals.suppressions import Rejection, Rejections

COOLDOWN = timedelta(hours=24)
"""Who undoes a change has a reason: the same thing is not proposed again within this time."""
REJECTED_DAYS = 30.0
"""For so long what was rejected, undone or fell short is not proposed again."""
_SEEN_WITHIN = timedelta(minutes=15)
_UNDO_REASONS = {
    State.UNDONE_OUTSIDE: "undone from outside",
    State.CHANGED_OUTSIDE: "changed from outside",
    State.ROLLED_BACK: "rolled back",
    State.ROLLBACK_REFUSED: "changed by others before it could be rolled back",
}

_COOLDOWN_REASONS = _UNDO_REASONS | {
    State.REJECTED: "rejected",
    State.FELL_SHORT: "fell short of its promise",
    State.REFUSED: "refused",
}
_MAX_REFUSAL = 300


def ended_jobs(jobs: Iterable[Job], collected: Sequence[Collected]) -> dict[str, str]:
    """Return the jobs that are over by the word of the scheduler that was asked just now, and why.

    A job that only telemetry names has no scheduler to ask; a scheduler that could not be asked has
    said nothing.
    """
    jobs_by_source = {
        entry.report.source: {job.job_id: job for job in entry.jobs}
        for entry in collected
        if entry.report.state is SourceState.RAN
    }
    reasons = {}
    for job in jobs:
        if job.scheduler is None or job.source not in jobs_by_source:
            continue
        present = jobs_by_source[job.source].get(job.job_id)
        if present is None:
            reasons[job.job_id] = f"its scheduler ({job.source}) names no GPU of it any more"
        elif present.scheduling.state in ENDED_STATES:
            reasons[job.job_id] = f"its scheduler says that it is {present.scheduling.state}"
    return reasons


def resting(
    reader: StoreReader, jobs: Iterable[Job], now: datetime, as_of: datetime | None = None
) -> dict[str, str]:
    """Return by job, or by what of the fleet, why nothing is proposed for it.

    `as_of` is the newest reading: a job that telemetry alone names and that was not read lately may
    be over.
    """
    present = {job.job_id: job for job in jobs}
    reasons = {
        job.job_id: f"it was last read at {job.last_seen_at:%Y-%m-%d %H:%M} UTC and may be over"
        for job in present.values()
        if job.scheduler is None and as_of is not None and as_of - job.last_seen_at > _SEEN_WITHIN
    }
    states = {
        digest: state
        for digest, state in reader.states().items()
        if state in ACTIVE_STATES or state in _UNDO_REASONS
    }
    stored = reader.recommendations_of(states, now=now)
    done = _UndoneWork.read(reader)
    for digest, state in states.items():
        recommendation = stored[digest].recommendation
        why = _why(done, recommendation, state, present.get(recommendation.job_id), now)
        if why:
            reasons[recommendation.target] = (
                f"{why} (recommendation {recommendation.recommendation_id})"
            )
    return reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class _UndoneWork:
    """Work of the worker: when each change was undone, and whether it is watched still."""

    ended_at: Mapping[tuple[str, str], datetime]
    refusals: Mapping[str, str]
    watched: Mapping[str, bool]

    @classmethod
    def read(cls, reader: StoreReader) -> "_UndoneWork":
        """Return all of it, by digest."""
        rows = reader.journal(events=tuple(map(str, _COOLDOWN_REASONS)))
        commands = reader.commands()
        return cls(
            ended_at={(row.digest, row.event): row.at for row in rows},
            refusals={
                row.digest: row.detail
                for row in rows
                if row.event == State.REFUSED and row.record != CHANGED_TARGET
            },
            watched={status.command.digest: not status.finished for status in commands},
        )


def _why(
    done: _UndoneWork,
    recommendation: Recommendation,
    state: State,
    job: Job | None,
    now: datetime,
) -> str:
    """Return the reason that the target of a recommendation rests, '' for none."""
    if state in OPEN:
        return f"a change of it is {state}"
    if state in (State.APPROVED, State.WRITTEN):
        waits = f"a change of it is {state} and waits to be made"
        return waits if now < recommendation.expires_at else ""
    if state in _UNDO_REASONS:
        at = done.ended_at[recommendation.digest, state]
        over = at + COOLDOWN
        text = f"its last change was {_UNDO_REASONS[state]} at {at:%Y-%m-%d %H:%M} UTC"
        return f"{text}: nothing is proposed before {over:%Y-%m-%d %H:%M} UTC" if now < over else ""
    if not recommendation.job_id and state in STANDING_STATES:
        return "a change of it is applied and stands"
    if (
        done.watched[recommendation.digest]
        and job is not None
        and _is_as_before(recommendation, job)
    ):
        return "a change of it is applied, and its readings do not show it"
    return ""


def _is_as_before(recommendation: Recommendation, job: Job) -> bool:
    """Return whether the job looks as it did before a change that would show."""
    has = (job.gpu_model, job.gpu_count, job.mig_profile)
    before, after = (
        (there.gpu_model, there.gpu_count, there.mig_profile)
        for there in (recommendation.now, recommendation.proposed)
    )
    return has == before != after


def rejections(
    reader: StoreReader, now: datetime, days: float, jobs: Iterable[Job] = ()
) -> Rejections:
    """Return the changes rejected, refused, undone or short of promise in so many days, or snoozed.

    The newest of each target and kind; what was reopened since is none, nor is a refusal of a
    target whose facts have changed since. A power cap that stands counts too: no scheduler tells of
    it, and readings show the power from before for a while.
    """
    facts = {job.job_id: target_facts(job) for job in jobs}
    lasts = timedelta(days=days)
    last_said = {event.number: event for event in reader.finding_events()}
    rows, done = [], _UndoneWork.read(reader)
    for stored in reader.spoken_of_since(now - lasts, now=now):
        event, recommendation = last_said.get(stored.finding), stored.recommendation
        if event is not None and event.snoozes(now):
            continue
        at = _ended_at(done, stored)
        reopened = event is not None and event.kind is FindingEventKind.REOPENED
        if at is None or at <= now - lasts or (event is not None and reopened and event.at >= at):
            continue
        outcome, refused = _COOLDOWN_REASONS[State(stored.state)], stored.state == State.REFUSED
        if refused:
            facts_then = dict(recommendation.evidence.factors).get(TARGET_FACTS, "")
            if stored.recommendation.digest not in done.refusals or (
                facts_then != facts.get(recommendation.job_id, facts_then)
            ):
                continue
            words = scrub(done.refusals[recommendation.digest], limit=_MAX_REFUSAL)
            outcome = f"refused by its applier ({words}), which holds until facts of it change,"
        rows.append(
            Rejection(
                recommendation=recommendation,
                at=at,
                until=at + lasts,
                outcome=outcome,
                whatever_it_saves=refused,
            )
        )
    standing = [digest for digest, state in reader.states().items() if state in STANDING_STATES]
    rows += [
        Rejection(
            recommendation=stored.recommendation,
            at=stored.decided_at,
            until=now + lasts,
            outcome="applied",
            whatever_it_saves=True,
        )
        for stored in reader.recommendations_of(standing, now=now).values()
        if stored.recommendation.action.spec.caps_power and stored.decided_at is not None
    ]
    snoozed = [event for event in last_said.values() if event.snoozes(now)]
    snoozes = reader.recommendations_of([event.digest for event in snoozed], now=now)
    rows += [
        Rejection(
            recommendation=snoozes[event.digest].recommendation,
            at=event.at,
            until=event.until,
            outcome=FindingEventKind.SNOOZED,
            whatever_it_saves=True,
        )
        for event in snoozed
        if event.until is not None
    ]
    return {
        (rejection.recommendation.target, rejection.recommendation.action): rejection
        for rejection in sorted(rows, key=lambda rejection: rejection.at)
    }


def _ended_at(done: _UndoneWork, stored: StoredRecommendation) -> datetime | None:
    """Return when it was rejected, undone or fell short; None for any other state."""
    if stored.state == State.REJECTED:
        return stored.decided_at
    if State(stored.state) not in _COOLDOWN_REASONS:
        return None
    return done.ended_at[stored.recommendation.digest, stored.state]
