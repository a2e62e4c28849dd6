"""Asks a Prometheus, through prometheus-api-client, with the guards that it lacks.

One collection is one `begin()`: secrets are read anew and the time for all its requests starts.
Questions too large are split, passing failures tried again, what stays unanswered is remembered as
a gap; every failure is one of our errors. The traps are in docs/extending.md.

A question is split by time, and when one step is left, by board. Prometheus refuses above 11,000
points a series (HTTP 400) and above its sample limit (422), and proxies give up on long answers.
Halving ends in log2 steps.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException

from collectors.prometheus.session import (
    GuardedSession,
    QueryTooLargeError,
    TooSlowError,
    TransientError,
)
from collectors.readings.metric_names import BY_NAME, ReadingKind
from collectors.readings.serving_metric_names import slot_functions
from data.base.clock import utc_now
from data.base.errors import (
    CollectorError,
    SourceRefusedError,
    SourceUnreachableError,
    UnexpectedAnswerError,
    scrub,
)
from data.base.text import storable
from data.settings.sources import PrometheusSettings

BUDGET_SECONDS = 300.0
"""Of all requests of one collection: what is left is a gap, which the next one asks for."""
_TRIES = 3
_MAX_SLOW = 3
"""Answers in a row that came too late before the server counts as down for this collection."""

_MAX_REFUSED = 3
"""Smallest questions refused, after which a metric's others are not asked in this collection."""

_MAX_GAPS_NAMED = 40
_PROBE_SECONDS = 600
_PAST_STEP = timedelta(hours=6)
"""Between two looks at whether a server held readings; a look costs it one reading a series."""
_NOT_YET = timedelta(seconds=31)
"""VictoriaMetrics repeats older values for the last 30 s, until its -search.latencyOffset."""
_SEVERAL = 1.9
"""Readings a step from which on a roll-up is worth asking for; below, windows could stay empty."""
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
            return (replace(self, end=middle), replace(self, start=middle + self.step))
        if self.digits is None:
            return tuple(replace(self, digits=digits) for digits in (_HEX[:8], _HEX[8:], ""))
        if len(self.digits) > 1:
            cut = len(self.digits) // 2
            parts = (self.digits[:cut], self.digits[cut:])
            return tuple(replace(self, digits=digits) for digits in parts)
        return ()


class PrometheusClient:
    """One Prometheus, or a server that speaks its query API."""

    def __init__(self, settings: PrometheusSettings) -> None:
        self._settings = settings
        self._session = GuardedSession(settings)
        self.url = self._session.url
        self._connect = PrometheusConnect(url=settings.url, session=self._session)
        self._gaps: list[tuple[RangePart, CollectorError]] = []
        self._requested = 0.0
        self._answers = self._slow = 0
        self._refused: Counter[str] = Counter()
        self._broken: Counter[str] = Counter()
        self._down: SourceUnreachableError | None = None

    def begin(self) -> None:
        """Start a collection: sign in anew, forget earlier gaps, start the budget of time."""
        self._session.sign_in()
        self._session.ends = time.monotonic() + BUDGET_SECONDS
        self._session.warnings.clear()
        self._gaps.clear()
        self._requested = 0.0
        self._answers = self._slow = 0
        self._refused.clear()
        self._broken.clear()
        self._down = None

    def take_warnings(self) -> tuple[str, ...]:
        """Return the server's warnings, what was left out, and the gaps of this collection."""
        broken = [f"{count} {what} left out" for what, count in self._broken.items()]
        warnings = (*self._session.warnings, *broken, *self._named_gaps())
        self._session.warnings.clear()
        self._broken.clear()
        return warnings

    def _named_gaps(self) -> list[str]:
        """Return a line for each run of gaps of a metric that have one reason."""
        runs: list[tuple[RangePart, datetime, str]] = []
        for part, error in self._gaps:
            first, until, reason = runs[-1] if runs else (part, part.start, "")
            if (first.metric, str(error)) == (part.metric, reason) and part.start <= (
                until + part.step
            ):
                runs[-1] = (first, max(until, part.end), reason)
            else:
                runs.append((part, part.end, str(error)))
        lines = [
            f"no answer for {part.metric} from {part.start:%Y-%m-%d %H:%M} to "
            f"{until:%Y-%m-%d %H:%M}: {reason}"
            for part, until, reason in runs[:_MAX_GAPS_NAMED]
        ]
        further = len(runs) - len(lines)
        return [*lines, f"no answer for {further} further times"] if further else lines

    def answered(self) -> tuple[float, datetime | None]:
        """Return the share of what was asked that was answered, and the start of the first gap.

        Errors: CollectorError when nothing was answered at all.
        """
        if self._gaps and not self._answers:
            raise self._gaps[0][1]
        lost = sum(part.size for part, _error in self._gaps)
        share = max(0.0, 1 - lost / self._requested) if self._requested else 1.0
        return share, min((part.start for part, _error in self._gaps), default=None)

    def metric_names(self, *, selector: str = "") -> frozenset[str]:
        """Return the names of all metrics that the server holds. Errors: CollectorError.

        With a selector they are those of its series, where the server can tell (Prometheus 2.24).
        """
        params = {"match[]": f'{{__name__!="",{selector}}}'} if selector else None
        names = self._tried(lambda: self._connect.all_metrics(params))
        if not isinstance(names, list):
            raise self._unexpected(names)
        return frozenset(name for name in names if isinstance(name, str))

    def scrape_seconds(self, metric: str, at: datetime) -> float | None:
        """Return the usual time between two readings of a metric, None when it cannot be told."""
        selector = f"{{{self._settings.selector}}}" if self._settings.selector else ""
        query = f"count_over_time({metric}{selector}[{_PROBE_SECONDS * 1000 - 1}ms])"
        try:
            vector = self.instant(query, at)
            counts = sorted(float(entry["value"][1]) for entry in vector)
        except (CollectorError, KeyError, IndexError, TypeError, ValueError, OverflowError):
            return None
        middle = counts[len(counts) // 2] if counts else 0.0
        return _PROBE_SECONDS / middle if middle > 0 else None

    def first_reading_at(self, metric: str, start: datetime, end: datetime) -> datetime | None:
        """Return the start of a metric's readings in [start, end], to six hours; None without any.

        Errors: CollectorError.
        """
        selector = f"{{{self._settings.selector}}}" if self._settings.selector else ""
        step = int(_PAST_STEP.total_seconds())
        rows = self.range(f"count({metric}{selector})", start=start, end=end, step_seconds=step)
        times = [float(point[0]) for row in rows for point in row["values"]]
        first = datetime.fromtimestamp(min(times), UTC) if times else None
        return first and max(start, first - _PAST_STEP)

    def instant(self, query: str, at: datetime) -> list[dict[str, Any]]:
        """Return the vector that a query answers at a time. Errors: CollectorError."""
        vector = self._tried(
            lambda: self._connect.custom_query(query, params={"time": at.timestamp()})
        )
        if not isinstance(vector, list):
            raise self._unexpected(vector)
        return vector

    def range(
        self, query: str, *, start: datetime, end: datetime, step_seconds: int
    ) -> Iterator[dict[str, Any]]:
        """Yield the series of any range query in [start, end]. Errors: CollectorError."""
        for part in parts_of(query, "", start, end, step_seconds):
            yield from self._answer(query, part)

    def series(
        self,
        metric: str,
        *,
        start: datetime,
        end: datetime,
        step_seconds: int,
        scrape_seconds: float | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield the series of a metric in [start, end], rolled up to the step by the server.

        A part that stays unanswered after splits and retries is a gap (see `answered`), unless
        nothing was answered at all: that is the error.
        """
        if self._session.victoria_metrics:
            end = min(end, utc_now() - _NOT_YET)
        for part in parts_of(metric, self._settings.selector, start, end, step_seconds):
            self._requested += part.size
            for entry in self._split(part, scrape_seconds):
                yield entry | {"metric": {**entry["metric"], "__name__": metric}}

    def _split(self, part: RangePart, scrape_seconds: float | None) -> Iterator[dict[str, Any]]:
        if self._down is not None:
            self._gaps.append((part, self._down))
            return
        step = int(part.step.total_seconds())
        query = end_aligned(part.metric, part.vector(), step, scrape_seconds)
        try:
            series = self._answer(query, part)
        except (QueryTooLargeError, TooSlowError) as error:
            for range_part in self._smaller(part, error):
                yield from self._split(range_part, scrape_seconds)
        except SourceUnreachableError as error:
            # Every further question would wait as long: the next collection asks them again.
            self._down = error
            self._gaps.append((part, error))
        except (UnexpectedAnswerError, SourceRefusedError) as error:
            self._gaps.append((part, error))
        else:
            self._slow = 0
            self._answers += 1
            yield from series

    def _smaller(
        self, part: RangePart, error: QueryTooLargeError | TooSlowError
    ) -> tuple[RangePart, ...]:
        """Return the smaller questions to ask instead; none, and a gap, when that is of no use."""
        if isinstance(error, TooSlowError):
            self._slow += 1
            if self._slow >= _MAX_SLOW:
                self._down = error
        smaller = part.halves()
        self._refused[part.metric] += not smaller
        hopeless = self._refused[part.metric] >= _MAX_REFUSED
        if smaller and not hopeless and self._down is None:
            return smaller
        self._gaps.append((part, error))
        return ()

    def _answer(self, query: str, part: RangePart) -> list[dict[str, Any]]:
        step = part.step // timedelta(seconds=1)
        result = self._tried(
            lambda: self._connect.custom_query_range(
                query=query, start_time=part.start, end_time=part.end, step=str(step)
            )
        )
        if not isinstance(result, list):
            raise self._unexpected(result)
        answer = read_answer(result, part.start, part.end)
        if result and answer.broken_series == len(result):
            raise UnexpectedAnswerError(
                f"{self.url} answered a range query with something that is no matrix",
                "Is this the address of a Prometheus?",
            )
        for what, count in (
            ("series without labels and values", answer.broken_series),
            ("readings without a time in the range and a value", answer.broken_readings),
        ):
            if count:
                self._broken[what] += count
        return answer.series

    def _tried(self, ask: Callable[[], Any]) -> Any:
        """Ask, again after a pause with jitter when the failure may pass and time is left."""
        for tries in range(1, _TRIES + 1):
            try:
                return self._guarded(ask)
            except TransientError as error:
                pause = error.wait_seconds
                if pause is None:
                    pause = (0.2 * 2**tries) * (0.5 + random.random())  # noqa: S311 - jitter
                if tries == _TRIES or time.monotonic() + pause >= self._session.ends:
                    raise
                time.sleep(pause)
        raise AssertionError("unreachable")

    def _guarded(self, ask: Callable[[], Any]) -> Any:
        """Return the answer, every failure of the library as one of our errors."""
        try:
            return ask()
        except PrometheusApiClientException as error:
            raise SourceRefusedError(
                f"{self.url} refused: {scrub(str(error))}",
                "Check prometheus.selector and the server's query limits.",
            ) from error
        except (requests.exceptions.JSONDecodeError, RecursionError) as error:
            raise UnexpectedAnswerError(
                f"{self.url} answered something that is no JSON",
                "A login page? Check the address, the path and prometheus.bearer_token.",
            ) from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnexpectedAnswerError(
                f"{self.url} answered JSON that is no Prometheus answer ({type(error).__name__})",
                "Is this the address of a Prometheus?",
            ) from error

    def _unexpected(self, answer: object) -> UnexpectedAnswerError:
        return UnexpectedAnswerError(
            f"{self.url} answered {type(answer).__name__} where a list of series was expected",
            "Is this the address of a Prometheus?",
        )


def end_aligned(metric: str, vector: str, step_seconds: int, scrape_seconds: float | None) -> str:
    """Return the expression whose value at a step stands for the step before it.

    `vector` is the metric with its matchers. The window is a millisecond shorter than the step:
    servers before Prometheus 3 count both of its ends. Without a known scrape interval, or with
    less than two readings a step, the instant itself is asked for. An instant every minute of a
    gauge scraped every 15 s throws three of four readings away, so the server is asked for the
    mean of several readings, of memory for the largest, of counters and limits for the last.
    """
    if scrape_seconds is None or step_seconds < _SEVERAL * scrape_seconds:
        return vector
    return f"{_function(metric)}({vector}[{step_seconds * 1000 - 1}ms])"


def _function(metric: str) -> str:
    if metric in slot_functions():
        return slot_functions()[metric]
    meaning = BY_NAME.get(metric)
    if (
        meaning is None
        or meaning[0].kind is not ReadingKind.GAUGE
        or "limit" in meaning[0].quantity
    ):
        return "last_over_time"
    return "max_over_time" if meaning[0].quantity.startswith("memory") else "avg_over_time"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAnswer:
    """The series that could be read, and how many series and readings could not."""

    series: list[dict[str, Any]]
    broken_series: int
    broken_readings: int


def read_answer(result: Sequence[Any], start: datetime, end: datetime) -> ReadAnswer:
    """Return the series (`metric`, `values`) of the `result` of a matrix, within [start, end].

    A value is left as the server wrote it; that it is no number is for the reader of values.
    Servers are not trusted: what does not have the form of an answer is left out and counted.
    """
    series, broken, readings = [], 0, 0
    # Prometheus rounds times to ms, and the library the question to s.
    first, last = start.timestamp() - 1, end.timestamp() + 1
    for entry in result:
        labels = entry.get("metric") if isinstance(entry, dict) else None
        values = entry.get("values") if isinstance(entry, dict) else None
        if not _are_labels(labels) or not isinstance(values, list):
            broken += 1
            continue
        inside = [point for point in values if _is_reading(point, first, last)]
        readings += len(values) - len(inside)
        if inside:
            metric = {storable(name): storable(value) for name, value in (labels or {}).items()}
            series.append({"metric": metric, "values": inside})
    return ReadAnswer(series=series, broken_series=broken, broken_readings=readings)


def _are_labels(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(entry, str) for entry in value.values())


def _is_reading(point: object, first: float, last: float) -> bool:
    return (
        isinstance(point, list)
        and len(point) == 2
        and isinstance(point[0], int | float)
        and first <= point[0] <= last
        # A whole number here is none that a server writes, and may be too large for a float.
        and not isinstance(point[1], int)
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
