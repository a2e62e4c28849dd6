"""Who gets which report: the whole, one namespace's, or one owner's own jobs.

An edition shows what lies within it and nothing of others: no total, plot or name from outside.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from data.records.jobs import Job
from data.report_settings import ReportSettings, addresses, named_addresses


class EditionKind(StrEnum):
    """What a report is cut down to."""

    FLEET = "fleet"
    NAMESPACE = "namespace"
    OWNER = "owner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edition:
    """One cut of the report; `name` is '' for the whole."""

    kind: EditionKind = EditionKind.FLEET
    name: str = ""

    @property
    def key(self) -> str:
        """How it is filed and asked for: fleet, namespace:search, owner:ada."""
        return f"{self.kind}:{self.name}" if self.name else str(self.kind)

    def holds(self, job: Job) -> bool:
        """Tell whether a job belongs to it."""
        if self.kind is EditionKind.NAMESPACE:
            return job.namespace == self.name
        return self.kind is EditionKind.FLEET or job.owner == self.name

    def jobs(self, jobs: Iterable[Job]) -> dict[str, Job]:
        """Return its jobs by id."""
        return {job.job_id: job for job in jobs if self.holds(job)}


WHOLE = Edition()


def edition_of(key: str) -> Edition:
    """Return the edition of a key. Errors: ValueError for an unknown kind."""
    kind, _, name = key.partition(":")
    return Edition(kind=EditionKind(kind), name=name)


def recipients(settings: ReportSettings) -> dict[Edition, tuple[str, ...]]:
    """Return the e-mail addresses of every edition that somebody gets."""
    found: dict[Edition, tuple[str, ...]] = {}
    if listed := addresses(settings.mail_to):
        found[WHOLE] = listed
    for kind, text in (
        (EditionKind.NAMESPACE, settings.teams),
        (EditionKind.OWNER, settings.owners),
    ):
        for name, whose in named_addresses(text).items():
            found[Edition(kind=kind, name=name)] = whose
    return found
