"""Progress: how much of its work a job says that it has done."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReport:
    """A report of a job at one time: the share of all its work that is done, 0..1."""

    reported_at: datetime
    done_ratio: float
