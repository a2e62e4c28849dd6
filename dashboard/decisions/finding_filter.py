"""Filter and order of listed findings, for the command line and the API."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from dashboard.decisions.findings import DISMISSED, OPEN, REOPENED, RESOLVED, FindingStatus
from data.facts.cluster_names import MAIN_CLUSTER, cluster_in
from data.records.actions import Action, Risk
from data.records.lifecycle import State

STATES = frozenset({OPEN, DISMISSED, REOPENED, RESOLVED, *map(str, State)})
_OF_REVISIONS: Mapping[str, str] = {
    State.PROPOSED: OPEN,
    State.REJECTED: DISMISSED,
    State.EXPIRED: RESOLVED,
    State.SUPERSEDED: RESOLVED,
}
"""States of a recommendation that its finding has by another word."""


WORDS = ("team", "namespace", "account", "owner", "cluster", "model", "node", "search")
"""Filters of `FindingChoice` that are texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingChoice:
    """Filters, all of which a listed finding passes. Without `states` what is resolved is left out.

    `team` is a namespace, `node` one on which its job runs, `since` when it was seen at the
    earliest, `account` that of the job's scheduler. `search` is looked for in number,
    target, namespace, owner and proposal, in any case.
    """

    states: frozenset[str] = frozenset()
    kind: Action | None = None
    risk: Risk | None = None
    team: str = ""
    namespace: str = ""
    account: str = ""
    owner: str = ""
    cluster: str = ""
    model: str = ""
    node: str = ""
    since: datetime | None = None
    search: str = ""
    all: bool = False


def states_of(word: str | None) -> frozenset[str]:
    """Return the states that a word means, of a finding or of its recommendation; all for None."""
    return frozenset() if word is None else frozenset({_OF_REVISIONS.get(word, word)})


class FindingOrder(StrEnum):
    """An order of findings: the largest saving of money or energy, the number, the latest first.

    `urgent` is by saving too, after what keeps jobs from running out of memory.
    """

    URGENT = "urgent"
    SAVING = "saving"
    ENERGY = "energy"
    NUMBER = "number"
    SEEN = "seen"
    NEWEST = "newest"
    OLDEST = "oldest"

    def key(self, status: FindingStatus) -> tuple[float, ...]:
        """Return the sort key of a finding."""
        number, seen_at = status.finding.number, status.finding.seen_at
        opened = status.finding.opened_at.timestamp()
        match self:
            case FindingOrder.NUMBER:
                return 0.0, number
            case FindingOrder.SEEN:
                return -seen_at.timestamp() if seen_at else 0.0, number
            case FindingOrder.NEWEST:
                return -opened, -number
            case FindingOrder.OLDEST:
                return opened, number
        revision = None if status.revision is None else status.revision.recommendation
        savings = None if revision is None else revision.savings
        energy = self is FindingOrder.ENERGY
        amount = savings and (savings.energy_kwh if energy else savings.cost)
        saving = (-amount.central if amount else 0.0, number)
        if self is not FindingOrder.URGENT:
            return saving
        if revision is None or status.state != OPEN:
            return (True, 0.0, *saving)
        return (*revision.urgency, *saving)


def chosen_findings(items: Iterable[FindingStatus], choice: FindingChoice) -> list[FindingStatus]:
    """Return the findings that pass the filters, in the order given."""
    return [status for status in items if is_chosen(status, choice)]


def is_chosen(status: FindingStatus, choice: FindingChoice) -> bool:
    """Return whether a finding passes the filters."""
    states, seen_at = choice.states, status.finding.seen_at
    if choice.since is not None and (seen_at is None or seen_at < choice.since):
        return False
    if choice.node and (status.job is None or choice.node not in status.job.scheduling.nodes):
        return False
    if status.state not in states if states else status.state == RESOLVED and not choice.all:
        return False
    revision = None if status.revision is None else status.revision.recommendation
    job, target, kind = status.job, status.finding.target, status.finding.action
    owner = job.owner if job else ""
    facts = {
        "kind": kind,
        "risk": None if revision is None else revision.risk,
        "team": None if revision is None else revision.namespace,
        "namespace": None if revision is None else revision.namespace,
        "account": job and job.scheduler and job.scheduler.account,
        "owner": owner,
        "cluster": cluster_in(target) or MAIN_CLUSTER,
        "model": job and job.gpu_model,
    }
    words = [status.finding.reference, target, kind, owner]
    if revision is not None:
        words += [revision.namespace, revision.summary, revision.action.spec.title]
    return choice.search.casefold() in " ".join(words).casefold() and all(
        getattr(choice, name) in (None, "", fact) for name, fact in facts.items()
    )
