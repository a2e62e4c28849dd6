"""Splits a question that is too large: by time, and when one step is left, by board.

Prometheus refuses above 11,000 points a series (HTTP 400) and above its sample limit (422), and
proxies give up on long answers. Halving ends in log2 steps.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

MAX_POINTS = 10_000
"""Points asked for at once and series; Prometheus refuses more than 11,000."""

_HEX = "0123456789abcdef"
_UUID_LABEL = {"DCGM_FI_": "UUID"}
_ANY_BOARD = "(GPU-|MIG-|MIG-GPU-)?"


@dataclass(frozen=True, slots=True, kw_only=True)
class RangePart:
    """One question: a metric from `start` to `end` by `step`, of boards that begin with `digits`.

    `digits` is None for all series, '' for those whose UUID begins otherwise.
    """

    metric: str
    selector: str
    start: datetime
    end: datetime
    step: timedelta
    digits: str | None = None

    @property
    def size(self) -> float:
        """The amount of a request, in steps of all series; halves add up to the whole."""
        steps = (self.end - self.start) // self.step + 1
        # One of seventeen shares is that of UUIDs that begin with no digit.
        return steps if self.digits is None else steps * (len(self.digits) or 1) / 17

    def matchers(self) -> str:
        """Return the matchers inside the braces."""
        return ",".join(name for name in (self.selector, self._board()) if name)

    def _board(self) -> str:
        if self.digits is None:
            return ""
        label = next(
            (name for start, name in _UUID_LABEL.items() if self.metric.startswith(start)), "uuid"
        )
        digits = self.digits or _HEX
        return f'{label}{"=~" if self.digits else "!~"}"{_ANY_BOARD}[{digits}{digits.upper()}].*"'

    def vector(self) -> str:
        """Return the selector of the series."""
        matchers = self.matchers()
        return f"{self.metric}{{{matchers}}}" if matchers else self.metric

    def halves(self) -> tuple["RangePart", ...]:
        """Return the smaller questions that together ask the same; none when it is the smallest."""
        steps = (self.end - self.start) // self.step
        if steps >= 1:
            middle = self.start + self.step * (steps // 2)
            return (self._in(self.start, middle), self._in(middle + self.step, self.end))
        if self.digits is None:
            return tuple(self._of(digits) for digits in (_HEX[:8], _HEX[8:], ""))
        if len(self.digits) > 1:
            cut = len(self.digits) // 2
            return (self._of(self.digits[:cut]), self._of(self.digits[cut:]))
        return ()

    def _in(self, start: datetime, end: datetime) -> "RangePart":
        return RangePart(
            metric=self.metric,
            selector=self.selector,
            start=start,
            end=end,
            step=self.step,
            digits=self.digits,
        )

    def _of(self, digits: str) -> "RangePart":
        return RangePart(
            metric=self.metric,
            selector=self.selector,
            start=self.start,
            end=self.end,
            step=self.step,
            digits=digits,
        )


def parts_of(
    metric: str, selector: str, start: datetime, end: datetime, step_seconds: int
) -> Iterator[RangePart]:
    """Yield questions below the point limit that cover [start, end] without a seam twice."""
    step = timedelta(seconds=step_seconds)
    while start <= end:
        last = min(end, start + step * (MAX_POINTS - 1))
        yield RangePart(metric=metric, selector=selector, start=start, end=last, step=step)
        start = last + step
