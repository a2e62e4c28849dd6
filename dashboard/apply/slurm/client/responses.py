"""Meaning of Slurm's answer to a change. Return code 0 is not success, 1 is not nothing.

The words only sort an answer; whether the change holds is always read back.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from data.base.errors import scrub


class CommandOutcome(StrEnum):
    """Outcome of a command by Slurm's answer, before anything is read back."""

    YES = "yes"
    NO = "no"
    LATER = "later"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAnswer:
    """The answer to one command; `retry_after_seconds` is the server's own wish."""

    outcome: CommandOutcome
    words: str
    retry_after_seconds: float | None = None


_RETRYABLE = re.compile(
    r"Resource temporarily unavailable|Unable to contact|[Cc]onnect failure|Connection refused"
    r"|too many (?:requests|connections)|backup controller|in recovery mode"
)
_NOTHING = re.compile(
    r"Socket timed out|Zero Bytes|Unexpected message|Connection (?:reset|timed out)|Broken pipe"
)
_UNRECORDED = re.compile(r"DB index is being set")
"""ESLURM_JOB_SETTING_DB_INX: no field of a job changes while slurmdbd has not recorded its requeue.

22.05.8 never gets over it when slurmctld was restarted meanwhile (measured).
"""
_UNRECORDED_TEXT = (
    "Slurm changes nothing of a job before slurmdbd has recorded its requeue: look whether "
    "slurmdbd runs; where slurmctld was restarted meanwhile, it may never end: cancel the job and "
    "submit it again"
)
_STARTED = re.compile(r"no longer pending execution|\b2073\b")
_JOB_ENDED = re.compile(r"already (?:finished|completing)|\b2021\b|\b2020\b")
_WAITS = re.compile(r"Job is pending execution")


def answer_of(words: str) -> CommandAnswer:
    """Sort an answer that is no plain success by its words."""
    clean = scrub(words) or "without a word"
    if _RETRYABLE.search(words):
        return CommandAnswer(outcome=CommandOutcome.LATER, words=clean)
    if _UNRECORDED.search(words):
        return CommandAnswer(outcome=CommandOutcome.LATER, words=f"{_UNRECORDED_TEXT} ({clean})")
    if _NOTHING.search(words):
        return CommandAnswer(outcome=CommandOutcome.NOTHING, words=clean)
    if _STARTED.search(words):
        return CommandAnswer(
            outcome=CommandOutcome.NO, words=f"the job started meanwhile ({clean})"
        )
    if _JOB_ENDED.search(words):
        return CommandAnswer(
            outcome=CommandOutcome.NO, words=f"the job has ended meanwhile ({clean})"
        )
    if _WAITS.search(words):
        return CommandAnswer(
            outcome=CommandOutcome.NO, words=f"the job waits, it does not run ({clean})"
        )
    return CommandAnswer(outcome=CommandOutcome.NO, words=clean)
