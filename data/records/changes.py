"""Changes to a cluster: what a fresh look saw, the steps of a change, and what came of them.

A change is worked out from a recommendation and a target; the same steps are shown, rehearsed and
executed. All records are plain text inside, so that they are stored before anything is sent.
"""

from dataclasses import dataclass
from enum import StrEnum

from data.facts.identifiers import digest_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The object that a change is made to, as a fresh look saw it.

    `identity` differs for another object of the same name (uid; Slurm job id with its submit time;
    GPU UUIDs). `version` is what an optimistic server checks (resourceVersion), '' where there is
    none: it may move without anyone touching what matters. `state` holds the (field, value) pairs
    that the change touches or depends on. `owners` are those who would undo a change from outside.
    """

    kind: str
    name: str
    identity: str
    version: str = ""
    state: tuple[tuple[str, str], ...] = ()
    owners: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Digest of what must not have moved between approval and apply: all but the version."""
        return digest_of([self.kind, self.name, self.identity, self.state, self.owners])


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeStep:
    """One command to the target, sent at most once.

    `verb` and `payload` (JSON) are what the applier sends; `field`, `before`, `after` what a person
    compares; `text` how a person would do the same by hand. Unset fields are None.
    """

    verb: str
    target: str
    field: str
    before: str | None
    after: str | None
    payload: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The steps of a change, the steps back, and what a person should know before approving."""

    recommendation_digest: str
    target: Target
    steps: tuple[ChangeStep, ...]
    undo: tuple[ChangeStep, ...]
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Digest of the target's fingerprint and every step: what an approval is bound to."""
        return digest_of([self.recommendation_digest, self.target.fingerprint, self.steps])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """A dry run: the target's answer to the steps without taking them (on the server, capacity).

    `refusals` stop the change; `differences` are (field, intended, answered) where the server would
    store something else; `rehearsed` is False where the platform offers no rehearsal.
    """

    rehearsed: bool
    refusals: tuple[str, ...] = ()
    differences: tuple[tuple[str, str, str], ...] = ()
    warnings: tuple[str, ...] = ()


class StepOutcome(StrEnum):
    """The outcome as known right after a command was sent."""

    DONE = "done"
    REFUSED = "refused"
    BUSY = "busy"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """The answer to one command. REFUSED and BUSY: nothing changed; UNKNOWN: only a look can tell.

    `retry_after_seconds` is the server's own wish after BUSY (429, 503), None when it named none.
    `wait_within_seconds` is how long the target allows what the step waits for (a rollout, the end
    of pods): the tries are spread over it, close together at first. None when it waits for nothing.
    """

    outcome: StepOutcome
    detail: str
    retry_after_seconds: float | None = None
    wait_within_seconds: float | None = None


class VerificationResult(StrEnum):
    """The result of reading back a change."""

    AS_INTENDED = "as-intended"
    NOT_YET = "not-yet"
    UNTOUCHED = "untouched"
    DIFFERENT = "different"
    FAILING = "failing"
    GONE = "gone"
    UNREADABLE = "unreadable"
    DECLINED = "declined"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBack:
    """One reading of a changed target.

    NOT_YET: the value is set, its effect is still coming (rollout, scheduling pass). UNTOUCHED: the
    steps have not reached it. DIFFERENT: another value is set than was sent. FAILING: the value is
    set and the work suffers (pods pending, crashing, out of memory; Reason BadConstraints).
    DECLINED: it was laid before people elsewhere, who said no; nothing was changed.
    """

    seen: VerificationResult
    detail: str
    observed: tuple[tuple[str, str], ...] = ()
