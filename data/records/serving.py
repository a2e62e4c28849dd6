"""What an inference service carries, and the replicas that it is foreseen to need."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from data.records.decisions import Range


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOutlook:
    """One service as read up to `read_until`; None is unknown.

    `slots_per_replica` are the requests that a replica works on at once; `seen_full` whether one
    ever let requests wait: else it may carry more. `required_replicas[i]` is what should be ordered
    in the slot from `slot_starts[i]`; none where `reason` says why. Rates are requests per second.
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
