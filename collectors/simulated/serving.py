"""Metrics of engines of the simulated fleet's services: requests, queue, tokens, KV-cache.

Some of the inference tenants run an engine on each device that they hold. Demand follows day and
week; of each eight services one drowns at its peak, one is launched every third day, one has
bursts, two have a batch at night, and one has an engine that tells no requests at work. A queue is
what came and could not be taken, from the trough of each day on, so that any window gives the same
readings.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pandas as pd

from collectors.simulated.holdings import Settlement
from collectors.simulated.layout import Tenant
from collectors.simulated.signals import Times, Values, hashed_uniform
from data.base.units import SLOT_SECONDS
from data.facts.columns import SERVING, check_frame
from data.facts.jobs import WorkloadKind

_DAY = 86_400
_TROUGH_SECONDS = 4 * 3600
_ENGINE_NAMES = ("chat", "captioner", "moderation")
"""Tenants that run an engine of language models; embedders and rankers do not."""
_KINDS = ("drowning", "launched", "bursty", "mute", "nightly", "daily", "nightly", "daily")
_PEAKS = {
    "drowning": 1.15, "launched": 0.3, "bursty": 0.55, "mute": 0.5, "nightly": 0.35, "daily": 0.6,
}  # fmt: skip
"""Load at the daily peak, of what its replicas carry."""
_SLOTS = 16
_PATIENCE_SECONDS = 120
"""Longest wait of a request; a longer one is given up."""
_FIRST_TOKEN_SECONDS = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedService:
    """A tenant whose devices run an engine each; one request takes `request_seconds`."""

    tenant: Tenant
    kind: str
    engine: str
    model: str
    request_seconds: float

    def demand(self, times: Times, replicas: int) -> Values:
        """Return the requests per second that come to what began with so many replicas."""
        hour = (times + self.tenant.offset_seconds) % _DAY / 3600
        day = 0.1 + 0.9 * (0.5 - 0.5 * np.cos(2 * np.pi * (hour - 4) / 24))
        weekend = np.where(np.isin(times // _DAY % 7, (2, 3)), 0.6, 1.0)
        stream = self.tenant.number + 13_000_003
        noise = 0.94 + 0.12 * hashed_uniform(stream, times)
        if self.kind == "bursty":
            noise = noise * (1 + 1.2 * (hashed_uniform(stream + 1, times // 1800) > 0.9))
        if self.kind == "launched":
            since = (times + self.tenant.number * _DAY) % (3 * _DAY) - 10 * 3600
            noise = noise * (1 + 3 * np.clip(since / 1800, 0, 1) * (since < 9 * 3600))
        carried = replicas * _SLOTS / self.request_seconds
        batch = 1.4 * ((hour >= 2) & (hour < 2.3)) if self.kind == "nightly" else 0.0
        return np.asarray(carried * (_PEAKS[self.kind] * day * weekend * noise + batch))


def simulated_services(tenants: tuple[Tenant, ...]) -> tuple[SimulatedService, ...]:
    """Return the services among the tenants, in order."""
    serving = [
        tenant
        for tenant in tenants
        if tenant.kind is WorkloadKind.INFERENCE and tenant.name.startswith(_ENGINE_NAMES)
    ]
    return tuple(
        SimulatedService(
            tenant=tenant,
            kind=(kind := _KINDS[place % len(_KINDS)]),
            engine="ray_serve" if kind == "mute" else ("vllm", "sglang")[place % 2],
            model="" if kind == "mute" else ("assistant-8b", "assistant-14b")[place % 2],
            request_seconds=4.0 + 2.0 * (tenant.number % 4),
        )
        for place, tenant in enumerate(serving)
    )


def serving_history(
    services: tuple[SimulatedService, ...],
    settlement: Settlement,
    start: datetime,
    end: datetime,
) -> pd.DataFrame:
    """Return the traffic of engines (columns SERVING) in the slots that end in (start, end]."""
    first = int(start.timestamp()) // SLOT_SECONDS * SLOT_SECONDS
    last = int(end.timestamp()) // SLOT_SECONDS * SLOT_SECONDS
    parts = [part for service in services for part in _service(service, settlement, first, last)]
    history = pd.concat(parts, ignore_index=True) if parts else None
    return check_frame(pd.DataFrame() if history is None else history, SERVING)


def _service(
    service: SimulatedService, settlement: Settlement, first: int, last: int
) -> Iterator[pd.DataFrame]:
    """Yield the rows of each replica in the slots from `first` to `last`."""
    tenant = service.tenant
    shift = _TROUGH_SECONDS - tenant.offset_seconds
    trough = (first - shift) // _DAY * _DAY + shift
    trough = trough // SLOT_SECONDS * SLOT_SECONDS
    times = np.arange(trough, last, SLOT_SECONDS, dtype=np.int64)
    replicas = np.array([len(settlement.holding_at(tenant, int(at)).places) for at in times])
    if not len(times) or not replicas.any():
        return
    came = service.demand(times, len(tenant.devices)) * SLOT_SECONDS
    carried = replicas * _SLOTS / service.request_seconds
    restarts = (times - shift) % _DAY < SLOT_SECONDS
    queued, ended = _queue(came, carried, restarts)
    busy = np.minimum(ended * service.request_seconds / SLOT_SECONDS, replicas * _SLOTS)
    waits = queued / np.where(carried > 0, carried, np.inf)
    for number in range(int(replicas.max())):
        there = (times >= first) & (replicas > number)
        share = 1 / np.where(replicas > 0, replicas, 1)[there]
        yield _replica(
            service, f"{tenant.job_id(0)}-{number}", times[there],
            running=(busy[there] * share), waiting=queued[there] * share,
            ended=np.round(ended[there] * share), waits=waits[there],
        )  # fmt: skip


def _queue(came: Values, carried: Values, restarts: "np.ndarray") -> tuple[Values, Values]:
    """Return the mean requests that wait in each slot, and those that ended; none at a restart."""
    queued, ended = np.zeros(len(came)), np.zeros(len(came))
    rest = 0.0
    for slot, (arrived, rate) in enumerate(zip(came, carried, strict=True)):
        before = 0.0 if restarts[slot] else rest
        ended[slot] = min(before + arrived, rate * SLOT_SECONDS)
        rest = min(before + arrived - ended[slot], rate * _PATIENCE_SECONDS)
        queued[slot] = (before + rest) / 2
    return queued, ended


def _replica(
    service: SimulatedService,
    label: str,
    times: Times,
    *,
    running: Values,
    waiting: Values,
    ended: Values,
    waits: Values,
) -> pd.DataFrame:
    """Return the rows of one replica; of an engine that tells little, what it tells."""
    tells = service.kind != "mute"
    seconds = service.request_seconds
    full = running / _SLOTS
    rows = pd.DataFrame(
        {
            "slot_start": pd.to_datetime(times, unit="s", utc=True).astype("datetime64[us, UTC]"),
            "label_id": label,
            "engine": service.engine,
            "model": service.model,
            "address": "",
            "waiting_requests": np.round(waiting, 2),
            "finished_requests": ended,
        }
    )
    if not tells:
        return rows
    return rows.assign(
        running_requests=np.round(running, 2),
        kv_cache_ratio=np.round(np.clip(0.08 + 0.85 * full + 0.06 * (waiting > 0), 0, 1), 3),
        prompt_tokens=np.round(ended * 820),
        generation_tokens=np.round(ended * 36 * seconds),
        preemptions=np.round(np.where(waiting > 0, ended * 0.01, 0.0)),
        first_token_seconds=ended * (waits + _FIRST_TOKEN_SECONDS),
        first_token_count=ended,
        queue_wait_seconds=ended * waits,
        queue_wait_count=ended,
        request_seconds=ended * (waits + seconds),
        request_count=ended,
    )
