"""Findings as rows of the inbox: what they hold, which are shown and in which order."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dashboard.accounting.savings.daily_savings import SavedSum
from dashboard.accounting.savings.shown_money import HOURS_A_DAY, a_day, as_shown
from dashboard.common.figures import range_text
from dashboard.decisions.finding_filter import FindingChoice, FindingOrder, is_chosen, states_of
from dashboard.decisions.findings import DISMISSED, OPEN, REOPENED, RESOLVED, FindingStatus
from data.records.actions import FOR_MEMORY
from data.records.findings import DismissalReason
from data.records.lifecycle import ACTIVE_STATES, STANDING_STATES, State
from data.records.recommendations import Range, Recommendation
from data.settings.all_settings import Settings

_GROUPS: Mapping[str, frozenset[str]] = {
    "to decide": frozenset({OPEN}),
    "under way": frozenset(ACTIVE_STATES - STANDING_STATES | {State.UNKNOWN}),
    "in place": frozenset(STANDING_STATES - {State.UNKNOWN}),
    "snoozed or dismissed": frozenset({State.SNOOZED, DISMISSED, REOPENED}),
    "undone or refused": frozenset(
        {State.ROLLED_BACK, State.UNDONE_OUTSIDE, State.CHANGED_OUTSIDE, State.REFUSED}
    ),
    "resolved": frozenset({RESOLVED, State.TARGET_GONE, State.REPLACED}),
}
STATES = (*_GROUPS, "all")


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxRow:
    """A finding with its newest revision as shown; `saved` is what it saved to date, if known.

    A finding of which no revision is kept is not listed.
    """

    status: FindingStatus
    revision: Recommendation
    urgent: bool
    saved: SavedSum | None

    @property
    def reference(self) -> str:
        """Name for people."""
        return self.status.finding.reference

    @property
    def number(self) -> int:
        """Its number."""
        return self.status.finding.number

    @property
    def owner(self) -> str:
        """Owner of the job, '' where nobody told."""
        return "" if self.status.job is None else self.status.job.owner

    @property
    def worth(self) -> Range | None:
        """Savings of money a day; advice has no price."""
        return a_day(None if self.revision.is_advice else self.revision.savings.cost, self.revision)

    @property
    def gpus(self) -> float | None:
        """Return the GPUs that it would free, on average over a day."""
        hours = _central(a_day(self.revision.savings.gpu_hours, self.revision))
        return None if hours is None else hours / HOURS_A_DAY

    @property
    def energy_a_day(self) -> float | None:
        """Return the kWh that it would save a day."""
        return _central(a_day(self.revision.savings.energy_kwh, self.revision))

    @property
    def expired(self) -> bool:
        """True if it ended without a decision."""
        return self.status.revision is not None and self.status.revision.state == State.EXPIRED

    @property
    def state(self) -> str:
        """State, and savings so far, in words."""
        revision = self.status.revision
        by = f" by {revision.decided_by}" if revision and revision.decided_by else ""
        match self.status.state:
            case "open":
                return "to decide"
            case State.SNOOZED:
                until = self.status.until
                return "snoozed" if until is None else f"snoozed until {until:%Y-%m-%d}"
            case "dismissed":
                reason = self.status.reason.replace("-", " ")
                if reason == DismissalReason.DONE:
                    return f"done{by}"
                return f"dismissed{by}: {reason}" if reason else f"dismissed{by}"
            case "reopened":
                return "reopened, for the next cycle"
        saved = self.saved.money if self.saved else None
        return f"{self.status.state}{by}" + (f", saved {range_text(saved)}" if saved else "")


def _central(value: Range | None) -> float | None:
    return None if value is None else value.central


def inbox_rows(
    statuses: Iterable[FindingStatus],
    settings: Settings,
    *,
    urgent: frozenset[str],
    saved: Mapping[str, SavedSum],
) -> tuple[InboxRow, ...]:
    """Return the rows of findings; `urgent` are the references of those that cannot wait."""
    return tuple(
        InboxRow(
            status=status,
            revision=(revision := as_shown(status.revision.recommendation, settings)),
            urgent=status.state == OPEN
            and (revision.action in FOR_MEMORY or status.finding.reference in urgent),
            saved=saved.get(status.finding.reference),
        )
        for status in statuses
        if status.revision is not None
    )


def state_of(word: str) -> str:
    """Return the choice of states that a word of the address means: a choice or a single state."""
    if word in STATES:
        return word
    return next((name for name, states in _GROUPS.items() if states & states_of(word)), STATES[0])


def choice_of_state(word: str) -> FindingChoice:
    """Return the filter of a choice of states."""
    states = _GROUPS.get(word)
    return FindingChoice(all=True) if states is None else FindingChoice(states=states)


def chosen_rows(
    rows: Iterable[InboxRow],
    choice: FindingChoice,
    order: FindingOrder = FindingOrder.URGENT,
    *,
    urgent: bool = False,
) -> list[InboxRow]:
    """Return the rows that are chosen, in order; only those that cannot wait with `urgent`."""

    def key(row: InboxRow) -> tuple[float, ...]:
        return order is FindingOrder.URGENT and not row.urgent, *order.key(row.status)

    matches = (row for row in rows if is_chosen(row.status, choice) and (row.urgent or not urgent))
    return sorted(matches, key=key)


def steady(rows: Sequence[InboxRow], before: Sequence[int], every: Sequence[InboxRow]) -> list[int]:
    """Return the numbers of rows in the order they had; what is new comes at the end.

    What no longer fits the choice stays as long as it is among `every`.
    """
    present = {row.number for row in every}
    numbers = [number for number in before if number in present]
    return numbers + [row.number for row in rows if row.number not in set(numbers)]


def age_text(opened_at: datetime, now: datetime) -> str:
    """Return since when a finding is there, as people say it."""
    hours = max(0.0, (now - opened_at).total_seconds() / 3600)
    return f"{hours:.0f} h" if hours < 2 * HOURS_A_DAY else f"{hours / HOURS_A_DAY:.0f} d"


def interrupts(revision: Recommendation) -> bool:
    """Return whether making the change stops the work of its job for a while, or for good."""
    stops = revision.transition is not None and revision.transition.seconds.high > 0
    return stops or revision.action.spec.takes_all
