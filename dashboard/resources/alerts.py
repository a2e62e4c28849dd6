"""Alerts: conditions that cannot wait for a decision of next week.

Jobs that run out of memory, boards that failed or are slowed, and budgets that the month exceeds.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from dashboard.common.figures import figure_text, range_text
from data.catalogue.xid_table import NO_ERROR, meaning_of
from data.records.actions import FOR_MEMORY
from data.records.lifecycle import State
from data.records.memory import MemoryFinding, MemoryOutlook
from data.settings.all_settings import Settings
from data.store import StoredRecommendation, StoreReader
from data.store.handles.tenant_reader import OwnedReader

if TYPE_CHECKING:
    from dashboard.accounting.cost.budgets import BudgetRow
    from dashboard.accounting.cost.cost_cache import CostBook

_XID_SINCE = timedelta(days=7)
_SLOWED, _SLOWED_SINCE = 0.5, timedelta(hours=1)
"""A board that is slowed for so much of an hour loses work that somebody waits for."""
MEMORY_FAILS = "memory cannot be repaired"
_COOL = "check fans, airflow and power supplies of the node"
REPLACE = "a row of it could not be replaced: drain the node and have the board exchanged"
_DAY, _MONTH = timedelta(days=1), timedelta(days=32)


@dataclass(frozen=True, slots=True, kw_only=True)
class UrgentFact:
    """One thing that is urgent.

    `key` names it for as long as it lasts. `at` is when it is expected, or about when it was first
    shown (`happened`). `finding` and `digest` name the recommendation that helps, '' where none
    does. `tenant` is whose budget it is about, '' of all else.
    """

    key: str
    about: str
    what: str
    next_step: str
    at: datetime | None
    happened: bool
    finding: str = ""
    digest: str = ""
    tenant: str = ""

    @property
    def order(self) -> tuple[bool, bool, float, str]:
        """Budgets come last, what happened before what is expected, the soonest first."""
        at = self.at.timestamp() if self.at else 0.0
        return bool(self.tenant), not self.happened, at, self.key

    @property
    def told_for(self) -> timedelta:
        """For how long people are not told of it again: a budget's key is of its month."""
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
        *_memory(reader, now),
        *_budgets(reader, settings, now),
    )
    return tuple(sorted(facts, key=lambda fact: fact.order))


def _failed_boards(reader: StoreReader, now: datetime) -> Iterator[UrgentFact]:
    """Yield the boards whose latest code says that nothing runs on them as it should."""
    xids = reader.board_xids(since=now - _XID_SINCE)
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
            about=f"GPU {row['gpu_index']} of {row['node']}",
            what=f"XID {code}, {meaning.what}{text}",
            next_step=f"What to do: {meaning.next_step}.",
            at=row["first_seen_at"].to_pydatetime(),
            happened=True,
        )


def slowed_text(board: Mapping[Any, Any]) -> str:
    """Return for how much of an hour heat or a power brake slowed a board, and how hot it was."""
    has_heat = board["temperature_celsius"] == board["temperature_celsius"]
    warm = f" at up to {board['temperature_celsius']:.0f} °C" if has_heat else ""
    return (
        f"{100 * board['throttled_ratio']:.0f} % of the last hour, by heat or a power brake{warm}"
    )


def _unwell_boards(reader: StoreReader, now: datetime) -> Iterator[UrgentFact]:
    """Yield the boards that heat or a power brake slows, or whose memory cannot be repaired."""
    latest = reader.latest_sample_at() or now
    window = {"start": latest - _SLOWED_SINCE, "end": latest}
    for board in reader.unwell_boards(**window, throttled=_SLOWED).to_dict("records"):
        fails = board["remap_failed"] > 0
        yield UrgentFact(
            key=f"{'memory-fails' if fails else 'slowed'}:{board['gpu_uuid']}",
            about=f"GPU {board['gpu_index']} of {board['node']}",
            what=f"its {MEMORY_FAILS}" if fails else f"its clocks are slowed {slowed_text(board)}",
            next_step=f"What to do: {REPLACE if fails else _COOL}.",
            at=window["start"].replace(minute=0, second=0, microsecond=0),
            happened=True,
        )


def _memory(reader: StoreReader, now: datetime) -> Iterator[UrgentFact]:
    """Yield the jobs that the latest cycle expects to run out of GPU memory."""
    expected = [
        finding
        for finding in reader.memory_outlook() or ()
        if finding.outlook is MemoryOutlook.RUNS_OUT
    ]
    if not expected:
        return
    helps = {
        stored.recommendation.job_id: stored
        for stored in reader.current_recommendations(now=now)
        if stored.recommendation.action in FOR_MEMORY and stored.state == State.PROPOSED
    }
    for finding in expected:
        yield _runs_out(finding, helps.get(finding.job_id))


def _runs_out(finding: MemoryFinding, helps: StoredRecommendation | None) -> UrgentFact:
    when = "" if finding.at is None else f" from {finding.at:%Y-%m-%d %H:%M} UTC"
    what = f"it may run out of GPU memory{when}"
    if finding.probability is not None:
        what = f"{what}, with a chance of at least {100 * finding.probability:.0f} %"
    remedies = "; ".join(advice.text for advice in finding.advice)
    return UrgentFact(
        key=f"memory:{finding.job_id}",
        about=finding.job_id,
        what=what,
        next_step=f"What helps: {remedies or 'nothing that is known here'}.",
        at=finding.at,
        happened=False,
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
        kept_book,  # with frames: where a budget is stated
    )
    from dashboard.accounting.cost.statement import month_of

    book = kept_book(reader, settings, now=now)
    # Without samples of this month nothing is known of it.
    if book is None or book.this_month != month_of(settings, now):
        return
    for row in book.tenants:
        if row.spent_at is not None and row.per_month is not None:
            yield _exceeded(row, row.spent_at, row.per_month, book)


def _exceeded(row: "BudgetRow", at: datetime, per_month: float, book: "CostBook") -> UrgentFact:
    calendar, currency = book.statement.calendar, book.statement.currency
    is_spent = at <= book.at
    when = "is spent since" if is_spent else f"will be spent in {(at - book.at) / _DAY:.1f} d, on"
    ahead = f"; {range_text(row.month_end)} are forecast for the month" if row.month_end else ""
    return UrgentFact(
        key=f"budget:{calendar.name_of(book.this_month)[:7]}:{row.tenant}",
        about=row.tenant,
        what=f"its budget of {figure_text(per_month)} {currency} {when} {at:%Y-%m-%d %H:%M} UTC"
        f"{ahead}",
        next_step="What to do: the page Account says which jobs it went to.",
        at=at.replace(second=0, microsecond=0),
        happened=is_spent,
        tenant=row.tenant,
    )
