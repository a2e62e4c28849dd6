"""The decisions that people take about findings."""

from enum import StrEnum


class WishKind(StrEnum):
    """What is asked about a finding; a change that no applier makes can be written as a file."""

    APPROVE = "approve"
    APPROVE_AND_APPLY = "approve-and-apply"
    REJECT = "reject"
    KEEP = "keep"
    SNOOZE = "snooze"
    REOPEN = "reopen"
    WRITE = "write"
    APPLY = "apply"
    APPLY_OR_WRITE = "apply-or-write"
    ROLL_BACK = "roll-back"
    MAKE_AGAIN = "make-again"
