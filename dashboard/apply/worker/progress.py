"""Progress of a command, folded from its journal. Pure: a restart sees what the crash left."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from data.records.changes import Change, StepOutcome, StepResult
from data.records.changes import VerificationResult as Verdict
from data.records.commands import JournalRow, Work
from data.records.lifecycle import LifecycleEvent
from data.store.engine.record_json import from_json

MEASURED = frozenset({LifecycleEvent.VERIFIED, LifecycleEvent.FELL_SHORT, Work.UNMEASURED})
_OUTCOMES = frozenset(
    {
        LifecycleEvent.APPLIED,
        LifecycleEvent.APPLIED_DIFFERENTLY,
        LifecycleEvent.FAILING,
        LifecycleEvent.REFUSED,
        LifecycleEvent.UNKNOWN,
        LifecycleEvent.ROLLED_BACK,
        LifecycleEvent.ROLLBACK_REFUSED,
        LifecycleEvent.UNDONE_OUTSIDE,
        LifecycleEvent.CHANGED_OUTSIDE,
        LifecycleEvent.TARGET_GONE,
        LifecycleEvent.REPLACED,
    }
)


@dataclass(slots=True, kw_only=True)
class Progress:
    """The change as prepared, the steps sent and answered, what was seen since, and the outcome.

    `answers` holds the last answer to each step; a step in `sent` without one is in doubt. `looks`
    are the sights since the last sending or answer, `since` when that was.
    """

    change: Change | None = None
    since: datetime | None = None
    sent: Counter[int] = field(default_factory=Counter)
    answers: dict[int, tuple[datetime, StepResult]] = field(default_factory=dict)
    looks: list[tuple[datetime, Verdict]] = field(default_factory=list)
    outcome: LifecycleEvent | None = None
    concluded_at: datetime | None = None
    measured: bool = False

    @property
    def doubtful_step(self) -> int | None:
        """The step that was sent and of which nobody knows whether it arrived."""
        for step in sorted(self.sent):
            answer = self.answers.get(step)
            if answer is None or answer[1].outcome is StepOutcome.UNKNOWN:
                return step
        return None

    @property
    def done(self) -> int:
        """Number of steps, from the first on, that are known to have been taken."""
        count = 0
        while (answer := self.answers.get(count)) and answer[1].outcome is StepOutcome.DONE:
            count += 1
        return count

    @property
    def sent_steps(self) -> int:
        """Number of steps, from the first on, that were sent, whatever came of them."""
        return max((*self.sent, -1)) + 1

    @property
    def failing_since(self) -> datetime | None:
        """Since when every look finds the work suffering; None when the last did not."""
        at = None
        for looked_at, verdict in reversed(self.looks):
            if verdict is not Verdict.FAILING:
                break
            at = looked_at
        return at


def progress_of(journal: Iterable[JournalRow]) -> Progress:
    """Fold the journal of one command, oldest row first."""
    progress = Progress()
    for row in journal:
        _take_in(progress, row)
    return progress


def _take_in(progress: Progress, row: JournalRow) -> None:
    if row.event == Work.PREPARED:
        progress.change, progress.since = from_json(Change, row.record), row.at
    elif row.event == Work.SENDING:
        progress.sent[row.step] += 1
        progress.answers.pop(row.step, None)
        progress.looks, progress.since = [], row.at
    elif row.event == Work.ANSWERED:
        progress.answers[row.step] = (row.at, from_json(StepResult, row.record))
        progress.looks, progress.since = [], row.at
    elif row.event == Work.LOOKED:
        progress.looks.append((row.at, Verdict(row.record)))
    elif row.event in MEASURED:
        progress.measured = True
    elif row.event in _OUTCOMES:
        progress.outcome, progress.concluded_at = LifecycleEvent(row.event), row.at
