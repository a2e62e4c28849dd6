"""Contract of appliers. Preview and apply walk the same steps; only `execute` changes anything.

The order is always look, change_for, rehearse, execute (step by step), read_back. An applier keeps
no state between calls and never sends a command twice: retries and outcomes are the worker's, which
stores each step before it is sent and reads back after a crash.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Protocol, runtime_checkable

from data.facts.fleet import Gpu
from data.facts.jobs import Job
from data.records.changes import Change, ChangeStep, ReadBack, Rehearsal, StepResult, Target
from data.records.recommendations import Recommendation

GIT_FACT = "git "
"""Start of the facts in a target's state that the Git applier alone writes: they tell its changes.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeText:
    """The exact text of one change: a file name without folder, and what goes into it."""

    file_name: str
    text: str


class Applier(Protocol):
    """Makes approved changes on one kind of target."""

    @property
    def name(self) -> str:
        """Name in settings, audit and pages: kubernetes, slurm, power-cap."""
        ...

    def covers(self, recommendation: Recommendation) -> bool:
        """Return whether this applier makes changes of this kind."""
        ...

    def look(
        self, recommendation: Recommendation, *, job: Job | None, gpus: tuple[Gpu, ...]
    ) -> Target:
        """Read the target afresh; `job` and `gpus` are what the store knows of it.

        Errors: StalePlanError when it is gone, is another object or no longer has what the plan
        saw; ChangeRefusedError when it must not be changed here (foreign owner, no right to read);
        ApplyError when nothing answers.
        """
        ...

    def change_for(self, recommendation: Recommendation, target: Target) -> Change:
        """Return the steps and the steps back; pure. Errors: ChangeRefusedError."""
        ...

    def look_again(self, change: Change) -> Target:
        """Read the target of a change afresh, whatever its fields are. Errors: as of `look`."""
        ...

    def change_back(self, change: Change, target: Target) -> Change:
        """Return the change that restores the fields that `change` touched, and no other; pure.

        `change` is that of the apply, however far it came and whatever attempts to go back came
        since; without steps when every field is as it was before. Errors: StalePlanError when a
        touched field holds neither what was sent nor what was before.
        """
        ...

    def rehearse(self, change: Change) -> Rehearsal:
        """Ask the target what it would do, changing nothing. Errors: ApplyError."""
        ...

    def execute(self, step: ChangeStep, change: Change) -> StepResult:
        """Send one command, once, within its timeout. Never raises for what the target answers."""
        ...

    def read_back(self, change: Change, *, done: int) -> ReadBack:
        """Look once whether the first `done` steps of the change hold. Never raises."""
        ...


class Remains(StrEnum):
    """Remains of an abandoned change."""

    NOTHING = "nothing"
    ALL = "all"
    PART = "part"
    AS_IT_IS = "as-it-is"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseResult:
    """Result of a call to `close`.

    NOTHING: the target is as it was before. ALL: every step holds. PART: some of it stands and
    holds nothing up. AS_IT_IS: there is nothing to close. UNKNOWN: call again.
    """

    left: Remains
    detail: str


@runtime_checkable
class ClosingApplier(Protocol):
    """An applier whose changes pass through states in which no target may be left.

    Optional: ask with isinstance. Called before a change of which a step failed is concluded.
    """

    def close(self, change: Change, *, sent: int) -> CloseResult:
        """Finish or take back a change of which `sent` steps were sent. Never raises."""
        ...

    def between_steps(self, change: Change, *, sent: int) -> str:
        """Return the reason not to leave a target after `sent` steps, '' for none. Pure."""
        ...


@runtime_checkable
class ReviewedApplier(Protocol):
    """An applier whose changes are taken by people elsewhere, in hours or weeks.

    Optional: ask with isinstance. Until the outcome is known such a change is never overdue.
    """

    def looks_every(self) -> timedelta:
        """Return the time between two looks at a change that awaits review."""
        ...


@runtime_checkable
class AccessCheckingApplier(Protocol):
    """An applier that can tell beforehand what its account reaches. Optional: ask with isinstance.

    Nothing is changed by it.
    """

    def access(self) -> tuple[bool, str]:
        """Return whether changes can be made, and what was found. Errors: TrimtabError."""
        ...


@runtime_checkable
class NotingApplier(Protocol):
    """An applier that can also leave a note at the target: who changed it, and on what grounds.

    Optional: ask with isinstance. The note is best effort and changes nothing of the outcome.
    """

    def note(self, change: Change, *, actor: str, outcome: str) -> str:
        """Leave the note; give '' when it is there, else a warning. Never raises."""
        ...
