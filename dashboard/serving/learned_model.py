"""Model of one service from its readings: the load a replica carries, and the work to come."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from data.base.units import SLOT_SECONDS
from data.records.serving import TokenSeconds
from data.store.serving.service_history import ServedHistory
from forecasting.groups.request_rates import RATE_SLOT_SECONDS
from planner.serving.queueing import WaitObjective
from planner.serving.service_model import (
    Floats,
    ReplicaCarries,
    ServiceReadings,
    Times,
    arrival_scv,
    learnt,
    proven_replicas,
)
from planner.serving.token_work import demand, token_seconds

Flags = npt.NDArray[np.bool_]
SLOTS_OF_A_DAY = 86_400 // SLOT_SECONDS
Series = tuple[int, Floats]
"""The start of the first slot of ten minutes (s, epoch), and the rate in each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedCapacity:
    """Lessons of some readings: what a replica `carries`, and its `tokens` where they tell work.

    `work` is what comes a second by slot, of all readings: that of tokens, else requests; `came`
    the same in the slots of those `readings` alone.
    """

    readings: ServiceReadings
    carries: ReplicaCarries
    tokens: TokenSeconds | None
    work: Floats
    came: Floats

    def proven(self, rates: Sequence[float], objective: WaitObjective) -> tuple[float, ...]:
        """Return the bounds of the replicas for each rate; infinity where one was seen full."""
        if self.carries.seen_full:
            return (math.inf,) * len(rates)
        return proven_replicas(self.readings, self.came, rates, self.carries, objective)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedService:
    """A service and what its readings teach.

    `own` are the readings since its engine, model, image, command or GPUs are those of now: they
    tell what a replica carries, and all `readings` what comes. `taught` is by `own`, or by all
    where `own` teaches nothing, as since a weekend; empty where neither does. Where `own` is less
    than a day in which no replica was full, a second is by all: no more is ordered than either
    asks for.
    `series` are to be forecast: requests, and the work of each taught whose tokens tell it.
    """

    history: ServedHistory
    readings: ServiceReadings
    own: ServiceReadings
    arrivals: Floats
    taught: tuple[LearnedCapacity, ...]
    series: tuple[Series, ...]

    def changed(self) -> str:
        """Tell when the service changed where less than a day is learnt since, else ''."""
        of_now = not self.taught or self.taught[0].readings is self.own
        if len(self.readings.starts) < SLOTS_OF_A_DAY or (
            of_now and len(self.own.starts) >= SLOTS_OF_A_DAY
        ):
            return ""
        since = self.readings.starts[np.flatnonzero(~self.history.like_now)[-1] + 1]
        return (
            "its engine, model, image, command or GPUs changed at "
            f"{datetime.fromtimestamp(int(since), UTC):%Y-%m-%d %H:%M} UTC: its fullest cache, "
            "its autoscaler's bounds and smaller GPUs are judged after a day of readings"
        )


def learned_service(history: ServedHistory) -> LearnedService:
    """Return the model of a service from its history."""
    readings = readings_of(history.engine, history.starts, history.columns)
    now, arrivals = readings.where(history.like_now), readings.arrivals
    taught = [_taught(now, history.like_now, readings, arrivals)]
    is_short = len(now.starts) < SLOTS_OF_A_DAY and not (taught[0] and taught[0].carries.seen_full)
    if now is not readings and (taught[0] is None or is_short):
        taught.append(_taught(readings, np.full_like(history.like_now, True), readings, arrivals))
    models = tuple(model for model in taught if model is not None)
    coming = [arrivals / SLOT_SECONDS, *(model.work for model in models if model.tokens)]
    return LearnedService(
        history=history,
        readings=readings,
        own=now,
        arrivals=arrivals,
        taught=models,
        series=tuple(_by_ten_minutes(readings.starts, came) for came in coming if models),
    )


def _taught(
    selected: ServiceReadings, slots: Flags, readings: ServiceReadings, arrivals: Floats
) -> LearnedCapacity | None:
    """Return the lessons of the selected slots' readings, None where those are too few."""
    carries = learnt(selected)
    if carries is None:
        return None
    if selected is not readings:
        carries = replace(carries, arrival_scv=arrival_scv(readings))
    each = token_seconds(selected)
    work = (arrivals if each is None else demand(readings, carries, each)) / SLOT_SECONDS
    return LearnedCapacity(
        readings=selected, carries=carries, tokens=each, work=work, came=work[slots]
    )


def readings_of(engine: str, starts: Times, columns: Mapping[str, Any]) -> ServiceReadings:
    """Return the readings of a service from columns by slot."""

    def column(name: str) -> Floats:
        return np.asarray(columns[name], dtype=np.float64)

    return ServiceReadings(
        engine=engine,
        starts=starts,
        running=column("running_requests"),
        waiting=column("waiting_requests"),
        finished=column("finished_requests"),
        fullest=column("fullest_requests"),
        full=column("full_requests"),
        timed_seconds=column("request_seconds"),
        timed=column("request_count"),
        waited_seconds=column("queue_wait_seconds"),
        waited=column("queue_wait_count"),
        prompt=column("prompt_tokens"),
        generated=column("generation_tokens"),
        replicas=column("replicas"),
        cache=column("kv_cache_ratio"),
    )


def _by_ten_minutes(starts: Times, rates: Floats) -> tuple[int, Floats]:
    """Return the first slot of ten minutes, and the mean rate of each whole one, NaN if unknown."""
    first = int(starts[0]) // RATE_SLOT_SECONDS * RATE_SLOT_SECONDS
    length = (int(starts[-1]) + SLOT_SECONDS - first) // RATE_SLOT_SECONDS
    slots = (starts - first) // RATE_SLOT_SECONDS
    usable = np.isfinite(rates) & (slots < length)
    counts = np.bincount(slots[usable], minlength=length)
    sums = np.bincount(slots[usable], weights=rates[usable], minlength=length)
    return first, np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
