"""Approved, applied and measured savings of a week, from the savings ledger.

A change counts in the week in which it was measured, so that no two reports add the same saving;
one applied in the week and measured later is named, and its saving still unknown.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from dashboard.accounting.savings.daily_savings import DaySaved, RunRate, run_rate
from dashboard.accounting.savings.ledger import (
    MEASURED,
    LedgerRow,
    Total,
    total_emissions,
    total_energy,
    total_gpu_hours,
)
from dashboard.reports.week.week import Week
from data.base.counts import count_text
from data.records.commands import AuditEntry
from data.records.lifecycle import LifecycleEvent
from data.records.recommendations import Range

_APPLIED = (LifecycleEvent.APPLIED, LifecycleEvent.APPLIED_DIFFERENTLY)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeeklySaved:
    """The changes applied or measured in a week, and the sums of those measured in it.

    `approved`, `rejected` and `applied` count recommendations. Of `rows`, a measurement of after
    the week is left out. `run_rate` is that of the end of the week, None where no change was ever
    measured.
    """

    approved: int
    rejected: int
    applied: int
    rows: tuple[LedgerRow, ...]
    run_rate: RunRate | None
    gpu_hours: Total
    energy: Total
    emissions_kgco2e: Range | None

    @property
    def finding(self) -> str:
        """The week's changes in one sentence."""
        if not (self.approved or self.applied or self.rows):
            return "Nothing was approved or applied in this week, so nothing new was saved."
        waiting = f"; of {self.gpu_hours.unknown} the saving is not known" * bool(
            self.gpu_hours.unknown
        )
        approved = count_text(self.approved, "recommendation was", "recommendations were")
        measured = count_text(self.gpu_hours.measured, "change was", "changes were")
        applied = count_text(self.applied, "change")
        return f"{approved} approved and {applied} applied; {measured} measured{waiting}."


def saved_in(
    week: Week,
    rows: Iterable[LedgerRow],
    decided: Iterable[AuditEntry],
    *,
    days: Sequence[DaySaved],
    until: datetime | None,
) -> WeeklySaved:
    """Return the week's part of ledger, decisions and days; all may hold more than the week's.

    `until` is up to when the days are measured.
    """
    ours = [
        _as_known_at_the_end(row, week)
        for row in rows
        if _within(row.applied_at, week) or (row.measured_at and _within(row.measured_at, week))
    ]
    event_pairs = {(entry.event, entry.digest) for entry in decided if _within(entry.at, week)}
    events = Counter(event for event, _digest in event_pairs)
    return WeeklySaved(
        approved=events[LifecycleEvent.APPROVED],
        rejected=events[LifecycleEvent.REJECTED],
        applied=sum(events[entry] for entry in _APPLIED),
        rows=tuple(ours),
        run_rate=run_rate(days, min(until, week.end)) if days and until else None,
        gpu_hours=total_gpu_hours(ours),
        energy=total_energy(ours),
        emissions_kgco2e=total_emissions(ours),
    )


def _within(at: datetime, week: Week) -> bool:
    return week.start <= at < week.end


def _as_known_at_the_end(row: LedgerRow, week: Week) -> LedgerRow:
    if row.measured_at is None or row.measured_at < week.end:
        return row
    state = str(LifecycleEvent.APPLIED) if row.state in MEASURED else row.state
    return replace(row, state=state, measured_at=None, measurement=None)
