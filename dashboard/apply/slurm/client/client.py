"""One way to ask and to change a Slurm cluster; the client programs or slurmrestd."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from collectors.slurm.backend import read_queue
from collectors.slurm.queue_facts import with_queue_facts
from collectors.slurm.records import Record, SlurmJob, SlurmNode
from collectors.slurm.reservations import RESERVATION_HORIZON, with_reservations
from collectors.slurm.values import identifier_of
from dashboard.apply.slurm.client.job_state import JobFacts, read_job
from dashboard.apply.slurm.client.requests import Payload, release_of
from dashboard.apply.slurm.client.responses import CommandAnswer
from data.base.errors import (
    ApplyError,
    ChangeRefusedError,
    CollectorError,
    SourceRefusedError,
    UnexpectedAnswerError,
)
from data.facts.quotas import Quota


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Records of jobs or nodes as one answer gave them, and the interface that gave them."""

    interface: str
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition: its state in capitals, '' where Slurm does not tell, and its longest jobs, s.

    `allowed` and `denied` are its lists of accounts, QOS and groups by those words; a list that is
    not there lets everybody in.
    """

    state: str = ""
    max_seconds: float | None = None
    max_nodes: int | None = None
    allowed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    denied: Mapping[str, frozenset[str]] = field(default_factory=dict)


class SlurmClient(Protocol):
    """One way to talk to one cluster. Reading raises CollectorError; sending never raises."""

    def jobs(self, number: str) -> Records:
        """Return the records of a job or of an array; maybe more."""
        ...

    def queue(self) -> Records:
        """Return the records of all jobs that run or wait; maybe more."""
        ...

    def nodes(self) -> Records:
        """Return the records of all nodes."""
        ...

    def reservations(self) -> list[Record]:
        """Return the reservations of nodes."""
        ...

    def partition(self, name: str) -> Partition:
        """Return the facts by which a partition starts a job."""
        ...

    def limits(self, job: SlurmJob) -> tuple[Quota, ...]:
        """Return the limits on GPUs that hold for a job, none where they are hidden."""
        ...

    def submission(self, number: str) -> tuple[str | None, str | None]:
        """Return the batch script and the submit line of a job.

        None where Slurm does not give them, or accounting does not have the job yet.
        """
        ...

    def may_change_all(self) -> bool | None:
        """Tell whether the account may change jobs of others, None where Slurm does not tell."""
        ...

    def send(self, payload: Payload) -> CommandAnswer:
        """Send one command, once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReading:
    """A job as read now."""

    facts: JobFacts
    interface: str


def find_job(client: SlurmClient, number: str, now: datetime) -> JobReading | None:
    """Return the job of a raw number, None when Slurm does not know it. Errors: CollectorError."""
    answered = client.jobs(number)
    matches = [record for record in answered.records if _number(record, "job_id") == number]
    if not matches:
        return None
    array = _number(matches[0], "array_job_id")
    records = {identifier_of(record.get("job_id")): record for record in answered.records}
    if array not in ("", number):
        further = client.jobs(array).records
        records |= {identifier_of(record.get("job_id")): record for record in further}
    others = [
        record for record in records.values() if array and _number(record, "array_job_id") == array
    ]
    try:
        facts = read_job(matches[0], others, now)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise UnexpectedAnswerError(
            f"what Slurm answered of job {number} cannot be read: {error!r}",
            "A release that is not known here? Change this job by hand.",
        ) from error
    return JobReading(facts=facts, interface=answered.interface)


def queue_of(client: SlurmClient) -> tuple[SlurmJob, ...]:
    """Return all jobs that run or wait. Errors: CollectorError."""
    answered = client.queue()
    return read_queue(answered.records, Counter(), release=release_of(answered.interface))


def promised_nodes(
    client: SlurmClient,
    nodes: Iterable[SlurmNode],
    now: datetime,
    *,
    ahead: timedelta = RESERVATION_HORIZON,
) -> tuple[SlurmNode, ...]:
    """Return the nodes, of which those say so that a reservation takes now or within `ahead`."""
    marked, _warnings = with_reservations(nodes, client.reservations, now, ahead)
    return marked


def queue_with_facts(client: SlurmClient, nodes: Iterable[SlurmNode]) -> tuple[SlurmJob, ...]:
    """Return all jobs that run or wait, with what the others mean for each (`queue_facts.py`).

    `nodes` are those of `promised_nodes`. Errors: CollectorError.
    """
    answered = client.queue()
    jobs = read_queue(answered.records, Counter(), release=release_of(answered.interface))
    return with_queue_facts(jobs, answered.records, nodes)


def _number(record: Record, key: str) -> str:
    number = identifier_of(record.get(key))
    return "" if number == "0" else number


def as_apply_error(error: CollectorError) -> ApplyError:
    """Return a failed reading as an error of applying, its hint naming the applying settings."""
    kind = ChangeRefusedError if isinstance(error, SourceRefusedError) else ApplyError
    return kind(_own_settings(error.message), _own_settings(error.hint))


def explained(error: CollectorError | ApplyError) -> str:
    """Return the message of a failed reading, naming the applying settings."""
    return _own_settings(str(error))


def _own_settings(text: str) -> str:
    text = text.replace(" use slurm.mode=rest", " give apply_slurm.rest_token")
    for name in ("rest_user", "rest_token_file", "rest_token"):
        text = text.replace(f" slurm.{name}", f" apply_slurm.{name}")
    return text
