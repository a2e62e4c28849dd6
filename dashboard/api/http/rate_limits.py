"""Rate limits of callers, and one answer for a request repeated under one key.

Both are kept by this process alone. After a restart the states of findings and submissions still
refuse what was done before.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar, cast

from data.base.errors import StalePlanError, TrimtabError

_MOST_CALLERS, _MOST_KEYS = 10_000, 1_000
_MINUTE_SECONDS = 60.0
Answer = TypeVar("Answer")


class TooManyRequestsError(TrimtabError):
    """Asked too often, or of what is busy; `retry_after_seconds` says when to ask again."""

    def __init__(self, message: str, *, retry_after_seconds: int) -> None:
        super().__init__(message, f"Ask again in {retry_after_seconds} s.")
        self.retry_after_seconds = retry_after_seconds


class KeyTakenError(TrimtabError):
    """An Idempotency-Key stands for something else."""


class RequestInProgressError(StalePlanError):
    """Error of an Idempotency-Key whose request is being carried out at this moment."""


class RequestLimit:
    """So many requests a minute of each caller, all of them at once if they like (GCRA).

    `clock` gives seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._spent_until: OrderedDict[Hashable, float] = OrderedDict()
        self._lock = threading.Lock()

    def take(
        self,
        caller: Hashable,
        per_minute: int,
        what: str = "requests in a minute",
    ) -> None:
        """Count a request. Errors: TooManyRequestsError."""
        each = _MINUTE_SECONDS / per_minute
        with self._lock:
            now = self._clock()
            spent = max(now, self._spent_until.get(caller, now))
            wait = spent + each - now - _MINUTE_SECONDS
            if wait > 1e-6:
                raise TooManyRequestsError(
                    f"more than {per_minute} {what}",
                    retry_after_seconds=int(wait) + 1,
                )
            self._spent_until[caller] = spent + each
            self._spent_until.move_to_end(caller)
            if len(self._spent_until) > _MOST_CALLERS:
                self._spent_until.popitem(last=False)


class IdempotentRequests:
    """Requests under a key: done once, and answered again; what failed may be repeated."""

    def __init__(self) -> None:
        self._done: OrderedDict[Hashable, tuple[Hashable, object | None]] = OrderedDict()
        self._lock = threading.Lock()

    def once(
        self, caller: str, key: str | None, request: Hashable, do: Callable[[], Answer]
    ) -> Answer:
        """Return the result of `do` under this key of the caller.

        Errors: KeyTakenError where something else was asked under it, StillUnderWayError.
        """
        if key is None:
            return do()
        with self._lock:
            before, answer = self._done.get((caller, key), (None, None))
            if before is not None and before != request:
                raise KeyTakenError(
                    f"the Idempotency-Key {key[:100]!a} stands for something else that was asked",
                    "Give each ask a key of its own.",
                )
            if answer is not None:
                return cast("Answer", answer)
            if before is not None:
                raise RequestInProgressError("this is being done already", "Ask again in a moment.")
            self._done[caller, key] = (request, None)
        try:
            answer = do()
        finally:
            with self._lock:
                self._done.pop((caller, key))
                if answer is not None:
                    self._done[caller, key] = (request, answer)
                while len(self._done) > _MOST_KEYS:
                    self._done.popitem(last=False)
        return answer
