"""What an inference service carries, and the replicas that it is foreseen to need."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from data.records.decisions import Range


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOutlook:
    """One service as read up to `read_until`; None is unknown.

    `slots_per_replica` are the requests that a replica works on at once; `seen_full` whether one
    ever let requests wait: else it may carry more. `required_replicas[i]` is what should be ordered
    in the slot from `slot_starts[i]`; none where `reason` says why. Rates are requests per second;
    `carried_per_second` is the highest that the replicas there carry as promised. The mean wait is
    that of the newest reading; requests waited too long in `late_minutes` of the `judged_minutes`
    of the last day in which waits are known.
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

    def required_after(self, now: datetime) -> tuple[int, ...]:
        """Return the replicas to order in the slots that begin after `now`."""
        pairs = zip(self.slot_starts, self.required_replicas, strict=True)
        return tuple(required for start, required in pairs if start > now)
