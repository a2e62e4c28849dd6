"""What people said no to: not proposed again until what it rested on has changed.

A target and a kind of change name what was rejected. It comes up again when the rejection is old,
or when it would save more an hour than the range that was rejected.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from data.records.decisions import Action, Recommendation, Savings


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A recommendation that somebody rejected at `at`; it holds until `until`."""

    recommendation: Recommendation
    at: datetime
    until: datetime

    def holds(self, savings: Savings) -> str:
        """Return why a change of the same kind is not proposed, '' when it may be again."""
        before, now = self.recommendation.savings, savings
        when = f"{self.at:%Y-%m-%d} (recommendation {self.recommendation.recommendation_id})"
        said = f"rejected on {when}: nothing of the kind is proposed before {self.until:%Y-%m-%d}"
        if before.cost is None or now.cost is None:
            return said
        high = before.cost.high / before.horizon_hours
        if now.cost.central / now.horizon_hours > high:
            return ""
        return f"{said} unless it would save more than {high:.2f} {before.cost.unit} an hour"


Rejections = Mapping[tuple[str, Action], Rejection]
"""By target and kind of change."""


def rejected(rejections: Rejections, target: str, action: Action | None, savings: Savings) -> str:
    """Return why a change that was rejected is not proposed again, '' when it may be."""
    found = None if action is None else rejections.get((target, action))
    return "" if found is None else found.holds(savings)
