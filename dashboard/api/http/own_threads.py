"""Threads set apart for what must answer while all others are busy, and answers shared by many."""

import time
from collections.abc import Callable
from functools import partial
from typing import Generic, ParamSpec, TypeVar

import anyio
from anyio.to_thread import run_sync

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")
_SHARE = 0.05
_LEAST_SECONDS, _MOST_SECONDS = 1.0, 15.0


class OwnThreads:
    """At most so many threads, which no other work takes."""

    def __init__(self, most: int) -> None:
        self._limiter = anyio.CapacityLimiter(most)

    async def run(
        self, work: Callable[Asked, Answer], *args: Asked.args, **options: Asked.kwargs
    ) -> Answer:
        """Return the result of `work` in one of them."""
        return await run_sync(partial(work, *args, **options), limiter=self._limiter)


class SharedAnswer(Generic[Answer]):
    """An answer that is made once for all who ask within a while, in a thread of its own.

    It is kept for twenty times what it took, so that it takes at most a twentieth of a core,
    however many ask: 1 s at least, 15 s at most.
    """

    def __init__(self, make: Callable[[], Answer]) -> None:
        self._make = make
        self._threads = OwnThreads(1)
        self._lock = anyio.Lock()
        self._answer: Answer
        self._fresh_until = float("-inf")

    async def get(self) -> Answer:
        """Return the answer."""
        async with self._lock:
            if time.monotonic() >= self._fresh_until:
                began = time.monotonic()
                self._answer = await self._threads.run(self._make)
                ended = time.monotonic()
                seconds = (ended - began) / _SHARE
                self._fresh_until = ended + min(_MOST_SECONDS, max(_LEAST_SECONDS, seconds))
            return self._answer
