"""The relief of a job whose GPU memory will run out: a change, or advice."""

from dataclasses import dataclass

from data.records.actions import Action
from data.records.memory import MemoryFinding
from planner.proposals.proposal import Proposal
from planner.proposals.savings import ProposalOutcome

_FULL_MEMORY_RATIO = 0.999


@dataclass(frozen=True, slots=True, kw_only=True)
class Relief:
    """Result of one finding. Without an `outcome` the proposal keeps the job: advice alone.

    `limit_mib` is what a program can have on each proposed device, `why_not` why nothing is
    changed, '' where something is.
    """

    finding: MemoryFinding
    proposal: Proposal
    outcome: ProposalOutcome | None
    limit_mib: float
    why_not: str = ""

    @property
    def job_id(self) -> str:
        """The job whose memory runs out."""
        return self.finding.job_id

    @property
    def action(self) -> Action:
        """Action to propose."""
        if self.outcome is None or self.proposal.action is None:
            return Action.LESS_MEMORY
        return self.proposal.action

    @property
    def cut_off(self) -> bool:
        """Return whether the forecast ends at the device's memory, so that more may be needed."""
        return is_censored(self.finding)


def is_censored(finding: MemoryFinding) -> bool:
    """Return whether the forecast ends at the device's memory."""
    return finding.needed_mib >= _FULL_MEMORY_RATIO * finding.limit_mib
