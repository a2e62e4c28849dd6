"""KRR (Kubernetes Resource Recommender), its `simple` strategy.

CPU: the 95th percentile; memory: the maximum plus 15 %; both over two weeks of history.
"""

from dataclasses import dataclass

from planner.rightsizing.past import Past, Values, quantile

HISTORY_HOURS = 336.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KrrCpu:
    """The 95th percentile of the samples."""

    level: float = 0.95
    name: str = "KRR CPU (P95)"

    def recommend(self, past: Past) -> Values:
        """Return the percentile."""
        return quantile(past.recent(HISTORY_HOURS), self.level)


@dataclass(frozen=True, slots=True, kw_only=True)
class KrrMemory:
    """The largest sample plus a share."""

    margin_ratio: float = 0.15
    name: str = "KRR memory (max + 15 %)"

    def recommend(self, past: Past) -> Values:
        """Return the maximum with its margin."""
        return quantile(past.recent(HISTORY_HOURS), 1.0) * (1 + self.margin_ratio)
