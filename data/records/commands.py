"""Commands to the apply worker, the journal of what it did, and the lease under which it works.

A command says who asked for what over which digest. The journal is append-only: what will be sent
is written before it is sent, and the answer after. The lease alone changes in place.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from data.facts.identifiers import digest_of
from data.records.recommendations import Range


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A person or program that acts.

    `via` says how that is known: local, open, cli, proxy, oidc, token or rule (the worker).
    `max_role` is the highest role that a token gives, '' without one. `account` is that of the
    machine by which somebody asked who typed the name.
    """

    name: str
    groups: tuple[str, ...] = ()
    via: str = "cli"
    max_role: str = ""
    account: str = ""

    @property
    def actor(self) -> str:
        """The name for the record, with the account behind it where the name was typed."""
        return f"{self.name} ({self.account})" if self.account else self.name


class CommandKind(StrEnum):
    """The task that a command gives the worker."""

    APPLY = "apply"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One durable command.

    `digest` is the recommendation's. `subject` is what it is unique for: of an apply the digest, of
    a rollback the id of the command to undo and the attempt. `change_digest` is '' unless the
    approval was given over a previewed change. `target` is the job.
    """

    command_id: str
    kind: CommandKind
    digest: str
    subject: str
    target: str
    change_digest: str
    person: Person
    asked_at: datetime


def command_id_of(kind: CommandKind, subject: str) -> str:
    """Return the id that makes a command unique."""
    return digest_of([kind, subject])


class Work(StrEnum):
    """Journal words that move no recommendation: the steps of the worker."""

    PREPARED = "prepared"
    SENDING = "sending"
    ANSWERED = "answered"
    LOOKED = "looked"
    UNMEASURED = "unmeasured"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRow:
    """One thing the worker did or found.

    `event` is a word of Work or of lifecycle.Event. `step` is the position of the step, -1 where
    none is meant. `record` is JSON: of PREPARED the whole change, of ANSWERED the outcome, of
    LOOKED what was seen, of VERIFIED and FELL_SHORT the measurement.
    """

    sequence: int
    command_id: str
    digest: str
    event: str
    step: int
    at: datetime
    fence: int
    detail: str
    record: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to work on one command until `until`; `fence` grows with every taker."""

    command_id: str
    owner: str
    fence: int
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandStatus:
    """A command, whether it is finished, and why it waits ('' when it does not)."""

    command: Command
    finished: bool
    held: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Realised against predicted over the slots after a change, against the job without it.

    Predictions are scaled to `hours`. Work is counted in effective GPU-hours. A quantity that could
    not be measured is None, and `reasons` say why. `memory_peak_mib` is the largest memory per
    device, `memory_limit_mib` what a program can have there: both only of changes made for memory
    and of shares.
    `board_hours_without` are of the model before the change, `board_hours_with` of the one since.
    """

    hours: float
    work_before: float | None
    work_after: float | None
    throughput_ratio: float | None
    saturated: bool | None
    predicted_gpu_hours: Range | None
    realised_gpu_hours: Range | None
    predicted_energy_kwh: Range | None
    realised_energy_kwh: Range | None
    realised_emissions_kgco2e: Range | None
    reasons: tuple[str, ...] = ()
    memory_peak_mib: float | None = None
    memory_limit_mib: float | None = None
    board_hours_without: float | None = None
    board_hours_with: float | None = None


MAX_REMARK = 2000
"""Characters of what a person writes beside a decision."""
SWITCH_EVENTS = ("stopped", "resumed", "stop-asked", "resume-asked")
"""Events of the kill switch in the record: no finding changes by them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One row of the append-only record; `entry_hash` covers the row and `previous_hash`.

    `covers` names the row of another table (`journal:7`) whose content `row_digest` is.
    """

    sequence: int
    at: datetime
    actor: str
    event: str
    digest: str
    detail: str
    previous_hash: str
    entry_hash: str
    covers: str = ""
    row_digest: str = ""
