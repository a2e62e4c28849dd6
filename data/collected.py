"""What one source gave in one window: the unit in which facts are kept."""

from dataclasses import dataclass

import pandas as pd

from data.columns import SAMPLES, check_frame
from data.records.cluster import SourceReport
from data.records.jobs import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """Samples (columns SAMPLES), the jobs they name, and how the source fared.

    `batch_id` is the same for the same source, window and content: keeping it twice is harmless.
    """

    batch_id: str
    samples: pd.DataFrame
    jobs: tuple[Job, ...]
    report: SourceReport

    def __post_init__(self) -> None:
        check_frame(self.samples, SAMPLES)
