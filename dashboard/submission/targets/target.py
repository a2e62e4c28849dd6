"""Contract of every cluster that takes jobs."""

import re
from dataclasses import dataclass
from typing import Protocol

from dashboard.submission.job.fleet import SubmissionFleet
from dashboard.submission.job.job_file import JobFile
from dashboard.submission.job.manifest import JobOrder, Manifest
from dashboard.submission.job.placement import Placement
from data.records.submissions import Attempt, SubmissionState

_GPU_MEMORY = re.compile(
    r"torch(?:\.cuda)?\.OutOfMemoryError|CUDA out of memory|CUDA error: out of memory"
    r"|CUBLAS_STATUS_ALLOC_FAILED"
)


def ran_out_of_gpu_memory(log: str) -> bool:
    """Return whether the end of a log tells that GPU memory ran out."""
    return _GPU_MEMORY.search(log) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SentJobState:
    """State of a sent job, with the cluster's reason."""

    state: SubmissionState
    reason: str = ""


class SubmissionTarget(Protocol):
    """One cluster that takes jobs."""

    @property
    def name(self) -> str:
        """The word for it in settings, as kubernetes."""
        ...

    def why_not(self) -> str:
        """Return the reason to send nothing there, '' for none. Errors: CollectorError."""
        ...

    def fleet(self) -> SubmissionFleet:
        """Return the nodes as the cluster sees them now. Errors: CollectorError."""
        ...

    def manifest(self, job: JobFile, placement: Placement, order: JobOrder) -> Manifest:
        """Return the manifest that would be sent; pure. Errors: ChangeRefusedError."""
        ...

    def check(self, manifest: Manifest) -> str:
        """Have the cluster try the manifest without keeping it; give what it said.

        Errors: ChangeRefusedError, CollectorError.
        """
        ...

    def send(self, manifest: Manifest) -> str:
        """Submit, and give the job's id as telemetry names it.

        What bears this mark already is not sent again. Errors: ChangeRefusedError, CollectorError.
        """
        ...

    def find(self, manifest: Manifest) -> str:
        """Return the id of the job that bears the manifest's mark, '' when there is none.

        Errors: CollectorError.
        """
        ...

    def standing(self, attempt: Attempt, job: JobFile) -> SentJobState:
        """Return the state of a sent attempt. Errors: CollectorError."""
        ...
