"""Manifest that is sent to a cluster: a person sees the very text that is sent."""

from dataclasses import dataclass

MARK = "trimtab"
"""Prefix of the mark by which a job of ours is found again on its cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """All that names one attempt: the submission's id, the attempt, and where it is sent.

    `raised_host` multiplies the host memory that the job states, after it ran out of it. Kubernetes
    deletes the job `keep_finished_seconds` after its end, never when that is None.
    """

    submission_id: str
    attempt: int
    namespace: str = "default"
    partition: str = ""
    account: str = ""
    raised_host: float = 1.0
    keep_finished_seconds: int | None = None

    @property
    def mark(self) -> str:
        """The mark of this attempt."""
        return f"{MARK}:{self.submission_id}:{self.attempt}"

    def name_for(self, name: str) -> str:
        """Return a name that no other attempt has, from a job's own."""
        return f"{name}-{self.submission_id[:6]}-{self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The text for one cluster, the launch command in it, and the name that the job will have."""

    target: str
    name: str
    text: str
    launch: str
    mark: str
    log: str = ""
