"""Progress as lines for who has no terminal to draw bars on, and as one sentence for a page."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType

_EVERY_SECONDS = 5.0
_WORDS = MappingProxyType(
    {
        "fill": "days of samples",
        "collect": "sources asked",
        "roll up": "hours rolled up",
        "forecast": "jobs forecast",
        "forecast groups": "groups forecast",
        "plan": "steps of the plan",
        "keep": "kept",
        "prepare": "answers for the pages prepared",
    }
)


@dataclass(slots=True)
class ProgressLines:
    """Says what is being done: each stage when it begins, then every few seconds.

    `doing` is the latest of it, '' before anything began and after `end`.
    """

    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    doing: str = ""
    _began: float = field(init=False)
    _said_at: float = field(init=False)
    _seen: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._began = self._said_at = self.clock()

    def at(self, stage: str, done: int, total: int) -> None:
        """Take note of the progress of a cycle."""
        amount = f"{done} of {total} " if total > 1 else ""
        self._tell(stage, f"{amount}{_WORDS.get(stage, stage)}")

    def compiled(self, count: int) -> None:
        """Take note that so many functions were compiled."""
        self._tell("compile", f"function {count} compiled and kept for the next start")

    def end(self) -> None:
        """Do nothing any more."""
        self.doing = ""

    def _tell(self, stage: str, text: str) -> None:
        now = self.clock()
        self.doing = f"{text}, {now - self._began:.0f} s so far"
        if stage not in self._seen or now - self._said_at >= _EVERY_SECONDS:
            self._seen.add(stage)
            self._said_at = now
            self.say(f"    {self.doing}")
