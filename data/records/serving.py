"""Load of an inference service, and its forecast need of replicas."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from data.records.recommendations import Range

MAX_START_SECONDS = 7200.0
"""Longest start of a replica; a longer one is none, as far as can be told."""
_ORDER_SLOT = timedelta(minutes=10)
"""The slots of required replicas."""
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStart:
    """The time of a replica from its order to its first request, s, and the source of that time.

    `seconds` is what forecasts lead by; `typical_seconds` the median of the `starts` seen, None
    where there was none. `source` is pods (learnt from when its pods were put on a node and ready),
    boards (from the first reading of a replica's boards to its first served tokens) or setting.
    """

    seconds: float
    typical_seconds: float | None
    starts: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundsUse:
    """The use of a service's autoscaler bounds in the `known_hours` of `span_hours`.

    In `spare_hours` no more than `min_replicas` were there and fewer were needed, never fewer than
    `least_needed`: `spare_replica_hours` of all `replica_hours`. Requests waited longer than
    promised while `max_replicas` were there `times_at_max` times, `hours_at_max` in all, when up to
    `most_needed` were needed.
    """

    min_replicas: int
    max_replicas: int | None
    span_hours: float
    known_hours: float
    replica_hours: float
    spare_hours: float
    spare_replica_hours: Range
    least_needed: int
    times_at_max: int
    hours_at_max: float
    most_needed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSeconds:
    """Seconds of one of a replica's places for a token that is read and for one that is written.

    The range is that of the quarters of the last day, each learnt alone.
    """

    prompt: Range
    generated: Range


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFit:
    """That a service's `model` fits on another GPU model, as many GPUs a replica as now.

    The cache at its fullest was that of `sequences` of `context_tokens` each: they fit with
    `fit_probability`. `replicas` are what the
    replicas of now become for the highest rate foreseen: low as fast as now, central by the
    catalogue's relative speed, high at half of that.
    """

    gpu_model: str
    model: str
    gpus: int
    sequences: int
    context_tokens: int
    fit_probability: float
    p95_gib: float
    replicas: Range


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOutlook:
    """One service as read up to `read_until`; None is unknown.

    `slots_per_replica` are the requests that a replica works on at once; `seen_full` whether one
    ever let requests wait: else it may carry more. `required_replicas[i]` is what should be ordered
    in the slot from `slot_starts[i]`; none where `reason` says why. It also says when the service
    changed, where less than a day is known since. Rates are requests per second;
    `carried_per_second` is the highest that the replicas there carry as promised. The mean wait is
    that of the newest reading; requests waited too long in `late_minutes` of the `judged_minutes`
    of the last day in which waits are known. `bounds` of its autoscaler are those of the week read;
    None where no scheduler tells any, or what was needed is unknown. Forecasts lead by the
    `cold_start`, and required replicas follow the tokens by `token_seconds` where these are known.
    `kv_cache_max_ratio` is the fullest of the week, None where less than a day of it is known.
    `fits` are the cheaper GPU models on which its model fits. `peak_load_ratio` is the highest
    rate of the last day and of the slots ahead over what the replicas there carry as promised;
    None where none was seen full, as they may carry more. `hourly_replicas` are the most that were
    there in each of the 24 hours before the newest reading, oldest first, None where none was read.
    Of `silent_replicas`, which run beside the `replicas`, no engine was read: required replicas are
    a lower bound then, and what all of them carry is unknown.
    """

    job_id: str
    namespace: str
    service: str
    engine: str
    model: str
    read_until: datetime
    replicas: int
    running_requests: float | None
    waiting_requests: float | None
    requests_per_second: float | None
    kv_cache_ratio: float | None = None
    kv_cache_max_ratio: float | None = None
    prompt_tokens_per_second: float | None = None
    generation_tokens_per_second: float | None = None
    wait_seconds: float | None = None
    late_minutes: int | None = None
    judged_minutes: int = 0
    carried_per_second: float | None = None
    slots_per_replica: int | None = None
    seen_full: bool = False
    service_seconds: Range | None = None
    arrival_scv: float | None = None
    reactive_replicas: int | None = None
    slot_starts: tuple[datetime, ...] = ()
    rates_q50: tuple[float, ...] = ()
    rates_q95: tuple[float, ...] = ()
    required_replicas: tuple[int, ...] = ()
    reason: str = ""
    bounds: BoundsUse | None = None
    cold_start: ColdStart | None = None
    token_seconds: TokenSeconds | None = None
    fits: tuple[ModelFit, ...] = ()
    peak_load_ratio: float | None = None
    hourly_replicas: tuple[int | None, ...] = ()
    silent_replicas: int = 0

    @property
    def prompt_tokens_carried(self) -> float | None:
        """Prompt tokens/s of one replica that only reads, None while unknown."""
        return self._carried("prompt")

    @property
    def generation_tokens_carried(self) -> float | None:
        """Generated tokens/s of one replica that only writes, None while unknown."""
        return self._carried("generated")

    def _carried(self, which: str) -> float | None:
        each = None if self.token_seconds is None else getattr(self.token_seconds, which).central
        return self.slots_per_replica / each if self.slots_per_replica and each else None

    def required_at(self, now: datetime, max_age: timedelta) -> int | None:
        """Return the replicas to order at `now`; None when unknown or the readings are older."""
        if now - self.read_until > max_age:
            return None
        begun = [
            required
            for start, required in zip(self.slot_starts, self.required_replicas, strict=True)
            if start <= now
        ]
        return begun[-1] if begun else None

    def foreseen_between(self, start: datetime, end: datetime) -> int | None:
        """Return the forecast replicas from `start` to `end`; None where there is no forecast.

        The most that should be ordered for then, or that were there in the same hours a day before.
        """
        ordered = [
            required
            for at, required in zip(self.slot_starts, self.required_replicas, strict=True)
            if start < at + _ORDER_SLOT and at < end
        ]
        from_hour = (start - self.read_until) % _DAY // _HOUR
        hours = -(-((start - self.read_until) % _HOUR + (end - start)) // _HOUR)
        day = self.hourly_replicas
        there = [day[(from_hour + step) % len(day)] for step in range(hours) if day]
        before = [replicas for replicas in there if replicas is not None]
        return max([*ordered, *before], default=None)

    def required_after(self, now: datetime) -> tuple[int, ...]:
        """Return the replicas to order in the slots that begin after `now`."""
        pairs = zip(self.slot_starts, self.required_replicas, strict=True)
        return tuple(required for start, required in pairs if start > now)
