"""Editions of the report and their readers: the fleet, one namespace, or one owner's own jobs.

An edition shows what lies within it and nothing of others: no total, plot or name from outside.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from data.facts.jobs import Job
from data.settings.fields import entries
from data.settings.reports import ReportSettings, named_addresses


class EditionKind(StrEnum):
    """What a report is cut down to; of `own` the reader that it is made through is cut down."""

    FLEET = "fleet"
    NAMESPACE = "namespace"
    OWNER = "owner"
    OWN = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edition:
    """One cut of the report; `name` is '' for the whole."""

    kind: EditionKind = EditionKind.FLEET
    name: str = ""

    @property
    def key(self) -> str:
        """Key for files and requests: fleet, namespace:search, owner:ada."""
        return f"{self.kind}:{self.name}" if self.name else str(self.kind)

    @property
    def whose(self) -> str:
        """Owner of its jobs, in words."""
        return self.name if self.kind is EditionKind.OWN else f"{self.kind} {self.name}"

    def holds(self, job: Job) -> bool:
        """Return whether a job belongs to it."""
        if self.kind is EditionKind.NAMESPACE:
            return job.namespace == self.name
        return self.kind in (EditionKind.FLEET, EditionKind.OWN) or job.owner == self.name

    def jobs(self, jobs: Iterable[Job]) -> dict[str, Job]:
        """Return its jobs by id."""
        return {job.job_id: job for job in jobs if self.holds(job)}


WHOLE = Edition()


def own_edition(name: str) -> Edition:
    """Return the edition of a reader who sees their own jobs alone."""
    return Edition(kind=EditionKind.OWN, name=name)


def edition_of(key: str) -> Edition:
    """Return the edition of a key. Errors: ValueError for an unknown kind."""
    kind, _, name = key.partition(":")
    return Edition(kind=EditionKind(kind), name=name)


def recipients(settings: ReportSettings) -> dict[Edition, tuple[str, ...]]:
    """Return the e-mail addresses of every edition that somebody gets."""
    by_edition: dict[Edition, tuple[str, ...]] = {}
    if listed := entries(settings.mail_to):
        by_edition[WHOLE] = listed
    for kind, text in (
        (EditionKind.NAMESPACE, settings.teams),
        (EditionKind.OWNER, settings.owners),
    ):
        for name, whose in named_addresses(text).items():
            by_edition[Edition(kind=kind, name=name)] = whose
    return by_edition
