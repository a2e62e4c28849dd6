"""Changes that were refused or did not hold: not proposed again until their grounds change.

A target and a kind of change name it. It comes up again when that is long ago, or when it would
save more an hour than the range of then.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from data.records.actions import Action
from data.records.recommendations import Recommendation, Savings


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Refusal of a recommendation at `at`, which holds until `until`.

    `outcome` is what ended it: rejected, rolled back, fell short, snoozed. `whatever_it_saves`: it
    holds for a larger saving too.
    """

    recommendation: Recommendation
    at: datetime
    until: datetime
    outcome: str = "rejected"
    whatever_it_saves: bool = False

    def holds(self, savings: Savings) -> str:
        """Return the reason not to propose a change of the same kind, '' for none."""
        before, now = self.recommendation.savings, savings
        when = f"{self.at:%Y-%m-%d} (recommendation {self.recommendation.recommendation_id})"
        text = f"{self.outcome} on {when}: nothing of the kind is proposed before"
        text = f"{text} {self.until:%Y-%m-%d}"
        if before.cost is None or now.cost is None or self.whatever_it_saves:
            return text
        high = before.cost.high / before.horizon_hours
        if now.cost.central / now.horizon_hours > high:
            return ""
        return f"{text} unless it would save more than {high:.2f} {before.cost.unit} an hour"


Rejections = Mapping[tuple[str, Action], Rejection]
"""By target and kind of change."""


def rejected(rejections: Rejections, target: str, action: Action | None, savings: Savings) -> str:
    """Return the reason not to propose a rejected change again, '' for none."""
    rejection = None if action is None else rejections.get((target, action))
    return "" if rejection is None else rejection.holds(savings)
