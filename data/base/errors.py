"""The error tree. Message: what was tried, on which object, what came back. Hint: what to do next.

TrimtabError
├── SettingsError
├── UnknownGpuModelError
├── StoreError ─ StoreBusyError, SchemaTooNewError, LeaseLostError, NoRoomError, NotKnownError,
│                NoTextError, AlreadySubmittedError
├── CollectorError ─ SourceUnreachableError, SourceRefusedError, UnexpectedAnswerError,
│                    SourceNotConfiguredError
├── ForecastError ─ NotEnoughHistoryError
├── PlanningError ─ ImpossibleProblemError
└── ApplyError ─ ApprovalMissingError, StalePlanError,
                 ChangeRefusedError ─ NotAllowedError ─ NotSignedInError
"""

import errno
import re

from data.base.text import visible

_SECRET = re.compile(
    r"(?i)(bearer\s+|basic\s+|"
    r"(?:password|passwd|token|secret|api[_-]?key|\w-key|authorization|cookie)"
    r"[\"']?\s*[=:]\s*[\"']?(?:bearer\s+|basic\s+)?"
    r"|://(?!\[[0-9a-f:.]*\])[^/\s:@]*:"
    r"(?!\d{1,5}(?=[^\w.:%$!@-]|\.?(?:\s|$))(?![^\s@]*@)))"
    r"[^\s&@,;\"']+"
)
"""A word that announces a secret, as text, header or JSON has it, and the secret after it.

What follows the colon of an address is one unless it is a port, with no @ behind it.
"""
_MAX_LENGTH = 300
_CONTROLS = dict.fromkeys((*range(32), *range(127, 160)), " ")
_PASSWORD = re.compile(r"(://[^/\s:@]*:)[^\s/]*(?=@)|([?&]password=)[^&\s]+")


def without_password(text: str) -> str:
    """Return an address, or a text with addresses, without the passwords in them."""
    return _PASSWORD.sub(r"\1\2***", text)


def scrub(text: str, *, limit: int = _MAX_LENGTH) -> str:
    """Return foreign text fit for one line of a message: secrets masked, one line, clipped."""
    flat = visible(" ".join(text.translate(_CONTROLS).split()))
    masked = _SECRET.sub(lambda match: f"{match.group(1)}***", without_password(flat))
    return masked if len(masked) <= limit else masked[: limit - 1] + "…"


OUT_OF_MEMORY = "the process ran out of memory"
MORE_MEMORY = (
    "Nothing half done was kept. Give it more memory, or less to think about: a smaller "
    "planning.history_days, prometheus.lookback_hours or prometheus.selector."
)


_NO_MEMORY_WORDS = re.compile(
    r"cannot allocate memory|out of memory|bad_alloc|failed to map segment|can't start new thread",
    re.IGNORECASE,
)


def lacks_memory(failure: BaseException) -> bool:
    """Return whether a failure, or one that it came from, is that no memory was left.

    Beside Python's own error: the system's, and in words of a library that cannot be loaded, a
    thread that has no room for its stack, or C++ below.
    """
    cause: BaseException | None = failure
    while cause is not None:
        if isinstance(cause, MemoryError) or getattr(cause, "errno", None) == errno.ENOMEM:
            return True
        if isinstance(cause, (OSError, ImportError, RuntimeError, SystemError)) and (
            _NO_MEMORY_WORDS.search(str(cause))
        ):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def sentence(text: str) -> str:
    """Return a text with a stop at its end, which many reasons have already."""
    return text if text.rstrip("\"'”)").endswith((".", "!", "?", "…")) else f"{text}."


class TrimtabError(Exception):
    """Anything a person can act on; carries a message and a hint."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{sentence(self.message)} {self.hint}" if self.hint else self.message


class SettingsError(TrimtabError):
    """A settings file, environment variable or option that cannot be used."""


class BadRangeError(SettingsError):
    """A range of time, or groups in it, that cannot be asked for."""


class UnknownGpuModelError(TrimtabError):
    """A GPU model that the catalogue does not know."""


class StoreError(TrimtabError):
    """The store cannot be opened, read or written."""


class StoreBusyError(StoreError):
    """Another process holds the DuckDB file."""


class NoRoomError(StoreError):
    """The disk of the store is nearly full: facts wait until there is room."""


class SchemaTooNewError(StoreError):
    """The store was written by a newer Trimtab."""


class NotKnownError(StoreError):
    """No record has that id, or none that the caller may see."""


class AlreadySubmittedError(StoreError):
    """The same job was submitted before and has not ended."""


class NoTextError(StoreError):
    """A text that no store can hold, such as a lone surrogate."""


class LeaseLostError(StoreError):
    """Another worker has taken the command over; nothing was written."""


class CollectorError(TrimtabError):
    """A source of facts did not give what was asked."""


class SourceUnreachableError(CollectorError):
    """Nothing answered: refused, timed out, unknown name."""


class SourceRefusedError(CollectorError):
    """The source answered no: 401, 403, 422, quota."""


class UnexpectedAnswerError(CollectorError):
    """The source answered something that is not the expected format."""


class SourceNotConfiguredError(CollectorError):
    """The source lacks a setting that it needs."""


class ForecastError(TrimtabError):
    """A forecast cannot be made."""


class NotEnoughHistoryError(ForecastError):
    """Too few or too broken samples to forecast from."""


class PlanningError(TrimtabError):
    """A plan cannot be made."""


class ImpossibleProblemError(PlanningError):
    """The planning problem contradicts itself."""


class ApplyError(TrimtabError):
    """A change was not made, or not made as approved."""


class ApprovalMissingError(ApplyError):
    """No approval exists of exactly this recommendation digest."""


class StalePlanError(ApplyError):
    """The cluster is no longer as the plan saw it, or the recommendation has expired."""


class ChangeRefusedError(ApplyError):
    """The target refused the change."""


class NotAllowedError(ChangeRefusedError):
    """The caller has no right to it."""


class NotSignedInError(NotAllowedError):
    """A request is not authenticated."""
