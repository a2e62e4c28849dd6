"""Alerts: what a person must do within the day, in one list for every page, command and message.

Hardware and heat, sources that failed, changes that failed, jobs that run out of memory, and
budgets that the month exceeds.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field

from dashboard.common.figures import figure_text, range_text
from dashboard.common.rights import act_refusal
from dashboard.common.stale_readings import REMEDY, stale_reason
from data.base.counts import count_text
from data.base.errors import NotAllowedError, NotKnownError
from data.catalogue.xid_table import NO_ERROR, meaning_of
from data.facts.fleet import SourceState
from data.records.actions import FOR_MEMORY
from data.records.commands import MAX_REMARK, AuditEntry, Person
from data.records.lifecycle import State
from data.records.memory import MemoryFinding, MemoryOutlook
from data.settings.all_settings import Settings
from data.store import StoredRecommendation, StoreReader
from data.store.handles.tenant_reader import OwnedReader
from data.store.record.report_log import ACKNOWLEDGED

if TYPE_CHECKING:
    from dashboard.accounting.cost.budgets import BudgetRow
    from dashboard.accounting.cost.cost_cache import CostBook
    from dashboard.decisions.service import DecisionService

_WEEK = timedelta(days=7)
_FAILURES = {
    State.FAILING: "its change fails",
    State.UNKNOWN: "nobody knows whether its change was made",
    State.ROLLBACK_REFUSED: "its change could not be rolled back",
}
_SLOWED, _SLOWED_SINCE = 0.5, timedelta(hours=1)
"""A board that is slowed for so much of an hour loses work that somebody waits for."""
HOT_CELSIUS, HOT_MEMORY_CELSIUS = 85.0, 95.0
"""Boards begin to slow themselves down some degrees above, their memory earlier than it fails."""
_TOO_HOT, _ABOVE_PEERS = 5.0, 10.0
"""Degrees above what is hot, or above the peers of a hot one: at work all of a model may be hot."""
_ALERT_CHANCE = 0.5
"""The chance from which a lack of memory is an alert, half of it within the hour; else advice."""
MEMORY_FAILS = "memory cannot be repaired"
_COOLING_FIX = "check fans, airflow and power supplies of the node"
_RESET = "drain the node and reset the board; what ran on it may have wrong results"
REPLACE = "a row of it could not be replaced: drain the node and have the board exchanged"
_DAY, _MONTH = timedelta(days=1), timedelta(days=32)


class AlertKind(StrEnum):
    """The part of the site that an alert is about."""

    HARDWARE = "hardware"
    HEAT = "heat"
    SOURCE = "source"
    CHANGE = "change"
    MEMORY = "memory"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class UrgentFact:
    """One thing that is urgent.

    `key` names it for as long as it lasts. `at` is when it is expected, or about when it was first
    shown (`happened`); it ends by `until` unless it is seen again, None: when its cause ends.
    `owner` is whose job it is about, '' of none. `finding` and `digest` name the recommendation
    that helps, '' where none does. `tenant` is whose budget it is about, '' of all else.
    `acknowledged_by` has taken it on at `acknowledged_at`, '' while nobody has.
    """

    key: str
    kind: AlertKind
    about: str
    what: str
    next_step: str
    at: datetime | None
    happened: bool
    until: datetime | None = None
    owner: str = ""
    finding: str = ""
    digest: str = ""
    tenant: str = ""
    acknowledged_by: str = ""
    acknowledged_at: datetime | None = None

    @property
    def alert(self) -> str:
        """Its key as addresses and commands have it, without a blank."""
        return quote(self.key, safe=":/")

    @property
    def order(self) -> tuple[bool, bool, float, str]:
        """Budgets come last, what happened before what is expected, the soonest first."""
        at = self.at.timestamp() if self.at else 0.0
        return bool(self.tenant), not self.happened, at, self.key

    @property
    def told_for(self) -> timedelta:
        """For how long people are not told of it again, and an acknowledgement holds.

        A budget's key is of its month.
        """
        return _MONTH if self.tenant else _DAY

    @property
    def text(self) -> str:
        """All of it in one line."""
        helps = f" ({self.finding})" if self.finding else ""
        return f"{self.about}: {self.what}{helps}. {self.next_step}"


def urgent_facts(
    reader: StoreReader, *, now: datetime, settings: Settings
) -> tuple[UrgentFact, ...]:
    """Return the urgent facts of now: what has happened, what is expected, then budgets.

    Of a recording nothing is: its present has passed.
    """
    if reader.recording() is not None:
        return ()
    facts = (
        *_failed_boards(reader, now),
        *_unwell_boards(reader, now),
        *_sources(reader, now),
        *_changes(reader, now),
        *_memory(reader, now),
        *_budgets(reader, settings, now),
    )
    facts = tuple(fact for fact in facts if fact.until is None or fact.until >= now)
    entries = acknowledgements(reader)
    return tuple(
        sorted((_taken_on(fact, entries, now) for fact in facts), key=lambda fact: fact.order)
    )


def acknowledgements(reader: StoreReader) -> dict[str, AuditEntry]:
    """Return the latest acknowledgement of each alert, by its key as addresses have it."""
    return {entry.detail.partition(" ")[0]: entry for entry in reader.entries((ACKNOWLEDGED,))}


def _taken_on(fact: UrgentFact, entries: Mapping[str, AuditEntry], now: datetime) -> UrgentFact:
    entry = entries.get(fact.alert)
    if entry is None or now - entry.at >= fact.told_for:
        return fact
    return replace(fact, acknowledged_by=entry.actor, acknowledged_at=entry.at)


class AlertWish(BaseModel):
    """An alert that a person takes on, by its key."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    alert: Annotated[str, Field(max_length=2000)]
    comment: Annotated[str, Field(max_length=MAX_REMARK, description="what is done")] = ""


def acknowledge(
    service: "DecisionService", reader: StoreReader, wish: AlertWish, by: Person
) -> UrgentFact:
    """Record that a person takes an alert on; `reader` is that of what they may see.

    Errors: NotAllowedError, ChangeRefusedError without a name, NotKnownError for no alert of now.
    """
    from dashboard.decisions.checks import require_person  # lists do without

    settings, now, person = service.settings(), service.clock(), require_person(by)
    if refusal := act_refusal(person, settings.access, "acknowledge alerts"):
        raise NotAllowedError(refusal, "Ask an approver, or have the access settings changed.")
    facts = {fact.alert: fact for fact in urgent_facts(reader, now=now, settings=settings)}
    fact = facts.get(wish.alert)
    if fact is None:
        raise NotKnownError(
            f"no alert has the key {wish.alert!r} now", "`trimtab urgent` lists them."
        )
    comment = f" ({wish.comment})" if wish.comment else ""
    service.store.report_log.tell(
        "", (), event=ACKNOWLEDGED, digest=fact.digest, detail=f"{fact.alert} {fact.about}: "
        f"{fact.what}{comment}", now=now, actor=person.name,
    )  # fmt: skip
    return replace(fact, acknowledged_by=person.name, acknowledged_at=now)


def _failed_boards(reader: StoreReader, now: datetime) -> Iterator[UrgentFact]:
    """Yield the boards whose latest code says that nothing runs on them as it should."""
    xids = reader.board_xids(since=now - _WEEK)
    if xids.empty:
        return
    holders: dict[str, set[str]] = defaultdict(set)
    for gpu in reader.gpus():
        holders[gpu.gpu_uuid].update(gpu.holders)
    latest = xids.drop_duplicates("gpu_uuid")
    for row in latest[latest["xid"] != NO_ERROR].to_dict("records"):
        code, uuid = int(row["xid"]), str(row["gpu_uuid"])
        meaning = meaning_of(code)
        if not meaning.urgent:
            continue
        names = sorted(holders[uuid])
        text = f"; {' and '.join(names)} {'holds' if len(names) == 1 else 'hold'} it" * bool(names)
        yield UrgentFact(
            key=f"xid:{uuid}:{code}",
            kind=AlertKind.HARDWARE,
            about=f"GPU {row['gpu_index']} of {row['node']}",
            what=f"XID {code}, {meaning.what}{text}",
            next_step=f"What to do: {meaning.next_step}.",
            at=row["first_seen_at"].to_pydatetime(),
            happened=True,
            until=row["last_seen_at"].to_pydatetime() + _WEEK,
        )


def slowed_text(board: Mapping[Any, Any]) -> str:
    """Return for how much of an hour heat or a power brake slowed a board, and how hot it was."""
    has_heat = board["temperature_celsius"] == board["temperature_celsius"]
    warm = f" at up to {board['temperature_celsius']:.0f} °C" if has_heat else ""
    return (
        f"{100 * board['throttled_ratio']:.0f} % of the last hour, by heat or a power brake{warm}"
    )


def _unwell_boards(reader: StoreReader, now: datetime) -> Iterator[UrgentFact]:
    """Yield the boards that are too hot or slowed, or whose memory fails or has lost data."""
    latest = reader.latest_sample_at() or now
    boards = reader.unwell_boards(
        start=latest - _SLOWED_SINCE,
        end=latest,
        throttled=_SLOWED,
        hot=HOT_CELSIUS,
        hot_memory=HOT_MEMORY_CELSIUS,
    )
    for board in boards.to_dict("records"):
        for key, kind, what, to_do in _ills(board):
            yield UrgentFact(
                key=f"{key}:{board['gpu_uuid']}",
                kind=kind,
                about=f"GPU {board['gpu_index']} of {board['node']}",
                what=what,
                next_step=f"What to do: {to_do}.",
                at=board["unwell_at"].to_pydatetime(),
                happened=True,
                until=latest + _SLOWED_SINCE,
            )


def _ills(board: Mapping[Any, Any]) -> Iterator[tuple[str, AlertKind, str, str]]:
    """Yield what ails a board, the worst of memory and of heat each: key, kind, what, what to do.

    Heat that slows it is one thing: the text says how hot the board is.
    """
    if board["remap_failed"] > 0:
        yield "memory-fails", AlertKind.HARDWARE, f"its {MEMORY_FAILS}", REPLACE
    elif (errors := board["uncorrected_errors"]) > 0:
        text = f"its memory lost data: {count_text(int(errors), 'uncorrectable error')}"
        yield "memory-lost", AlertKind.HARDWARE, text, _RESET
    if board["throttled_ratio"] >= _SLOWED:
        yield "slowed", AlertKind.HEAT, f"its clocks are slowed {slowed_text(board)}", _COOLING_FIX
        return
    gpu, memory = board["temperature_celsius"], board["memory_temperature_celsius"]
    above = gpu - board["peers_celsius"]
    if gpu >= HOT_CELSIUS + _TOO_HOT or (gpu >= HOT_CELSIUS and above >= _ABOVE_PEERS):
        peers = f", {above:.0f} °C above its peers at work" if above >= 1 else ""
        yield "hot", AlertKind.HEAT, f"it is at {gpu:.0f} °C{peers}", _COOLING_FIX
    elif memory >= HOT_MEMORY_CELSIUS + _TOO_HOT:
        yield "hot", AlertKind.HEAT, f"its memory is at {memory:.0f} °C", _COOLING_FIX


def _sources(reader: StoreReader, now: datetime) -> Iterator[UrgentFact]:
    """Yield the sources that failed in the latest collection, and readings that are too old.

    To an owner they are not named.
    """
    if isinstance(reader, OwnedReader):
        return
    latest = reader.latest_sample_at()
    if reason := stale_reason(reader, as_of=latest, now=now):
        yield UrgentFact(
            key="source:",
            kind=AlertKind.SOURCE,
            about="readings",
            what=reason,
            next_step=f"What to do: {REMEDY}",
            at=latest,
            happened=True,
        )
    for report in reader.source_reports():
        if report.state is SourceState.FAILED:
            yield UrgentFact(
                key=f"source:{report.source}",
                kind=AlertKind.SOURCE,
                about=report.source,
                what=f"its latest collection failed: {report.reason}",
                next_step="What to do: run `trimtab doctor`, mend the source.",
                at=report.complete_until or report.window_start,
                happened=True,
            )


def _changes(reader: StoreReader, now: datetime) -> Iterator[UrgentFact]:
    """Yield the changes of the last week of which the cluster or the record needs a person."""
    failures = reader.journal(events=tuple(map(str, _FAILURES)))
    journal = [row for row in failures if now - row.at < _WEEK]
    if not journal:
        return
    states = reader.states([row.digest for row in journal])
    for digest, row in {row.digest: row for row in journal}.items():
        if states.get(digest) != row.event:
            continue
        try:
            revision = reader.recommendation(digest, now=now)
        except NotKnownError:  # no longer kept
            continue
        yield UrgentFact(
            key=f"change:{digest}:{row.event}",
            kind=AlertKind.CHANGE,
            about=revision.recommendation.target,
            what=f"{_FAILURES[State(row.event)]}: {row.detail}",
            next_step="What to do: open the finding, look at the target.",
            at=row.at,
            happened=True,
            until=row.at + _WEEK,
            finding=revision.reference,
            digest=digest,
        )


def _memory(reader: StoreReader, now: datetime) -> Iterator[UrgentFact]:
    """Yield the jobs that the latest cycle expects to run out of GPU memory."""
    expected = [
        finding
        for finding in reader.memory_outlook() or ()
        if finding.outlook is MemoryOutlook.RUNS_OUT and _is_likely(finding, now)
    ]
    if not expected:
        return
    until = (reader.latest_sample_at() or now) + _SLOWED_SINCE
    helps = {
        stored.recommendation.job_id: stored
        for stored in reader.current_recommendations(now=now)
        if stored.recommendation.action in FOR_MEMORY and stored.state == State.PROPOSED
    }
    for finding in expected:
        job = reader.job(finding.job_id)
        owner = "" if job is None else job.owner
        yield replace(_runs_out(finding, helps.get(finding.job_id), owner), until=until)


def _is_likely(finding: MemoryFinding, now: datetime) -> bool:
    is_soon = finding.at is not None and finding.at - now <= timedelta(hours=1)
    return finding.probability is None or finding.probability >= _ALERT_CHANCE / (1 + is_soon)


def _runs_out(finding: MemoryFinding, helps: StoredRecommendation | None, owner: str) -> UrgentFact:
    when = "" if finding.at is None else f" from {finding.at:%Y-%m-%d %H:%M} UTC"
    what = f"it may run out of GPU memory{when}"
    if finding.probability is not None:
        what = f"{what}, with a chance of at least {100 * finding.probability:.0f} %"
    remedies = "; ".join(advice.text for advice in finding.advice)
    return UrgentFact(
        key=f"memory:{finding.job_id}",
        kind=AlertKind.MEMORY,
        about=finding.job_id,
        what=what,
        next_step=f"What helps: {remedies or 'nothing that is known here'}.",
        at=finding.at,
        happened=False,
        owner=owner,
        finding="" if helps is None else helps.reference,
        digest="" if helps is None else helps.recommendation.digest,
    )


def _budgets(reader: StoreReader, settings: Settings, now: datetime) -> Iterator[UrgentFact]:
    """Yield the tenants whose month costs more than their budget, as known or as forecast.

    A budget is of a whole tenant, so an owner, who sees their own jobs, is not told of any.
    """
    if not settings.statement.budgets or isinstance(reader, OwnedReader):
        return
    from dashboard.accounting.cost.cost_cache import (
        cached_book,  # with frames: where a budget is stated
    )
    from dashboard.accounting.cost.statement import month_of

    book = cached_book(reader, settings, now=now)
    # Without samples of this month nothing is known of it.
    if book is None or book.this_month != month_of(settings, now):
        return
    month_end = month_of(settings, book.this_month + _MONTH)
    for row in book.tenants:
        if row.spent_at is not None and row.per_month is not None:
            fact = _exceeded(row, row.spent_at, row.per_month, book)
            yield replace(fact, until=month_end)


def _exceeded(row: "BudgetRow", at: datetime, per_month: float, book: "CostBook") -> UrgentFact:
    calendar, currency = book.statement.calendar, book.statement.currency
    is_spent = at <= book.at
    when = "is spent since" if is_spent else f"will be spent in {(at - book.at) / _DAY:.1f} d, on"
    ahead = f"; {range_text(row.month_end)} are forecast for the month" if row.month_end else ""
    if row.over_chance is not None and not is_spent:
        ahead += f", more than it with a chance of {100 * row.over_chance:.0f} %"
    return UrgentFact(
        kind=AlertKind.BUDGET,
        key=f"budget:{calendar.name_of(book.this_month)[:7]}:{row.tenant}",
        about=row.tenant,
        what=f"its budget of {figure_text(per_month)} {currency} {when} {at:%Y-%m-%d %H:%M} UTC"
        f"{ahead}",
        next_step="What to do: the page Account says which jobs it went to.",
        at=at.replace(second=0, microsecond=0),
        happened=is_spent,
        owner=row.tenant,
        tenant=row.tenant,
    )
