"""Replicas that each inference service will need, from what the store knows of it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice

import numpy as np
import pandas as pd

from dashboard.serving.learned_model import (
    SLOTS_OF_A_DAY,
    LearnedService,
    learned_service,
    readings_of,
)
from data.base.errors import ImpossibleProblemError
from data.base.units import SECONDS_PER_HOUR, SLOT_SECONDS
from data.facts.jobs import Job
from data.records.feasible_changes import SCALES_TO_ZERO
from data.records.serving import BoundsUse, ColdStart, ServiceOutlook
from data.settings.serving import ServingSettings
from data.store import StoreReader
from forecasting.groups.request_rates import (
    RATE_SLOT_SECONDS,
    rate_quantiles_of,
    slots_without_requests,
)
from forecasting.models.demand_model import Quantiles
from planner.serving.bounds_use import NeedRules, bounds_use
from planner.serving.cold_start import cold_start
from planner.serving.missing_signals import missing_signals_reason
from planner.serving.queueing import WaitObjective
from planner.serving.service_model import (
    Floats,
    ReplicaCarries,
    Times,
    carried_rate,
    carries_of,
    most_seen,
    reactive_replicas,
    replicas_for_rates,
    to_order,
)

HISTORY = timedelta(days=7)
"""Forecasts of a few hours gain nothing from more."""
_STARTS_FROM = timedelta(days=30)
"""What started longer ago had another image, model or disk, as likely as not."""
_GONE_AFTER = timedelta(hours=1)
"""Without a reading for so long before the newest of all, a service is no more."""
_HISTORY = ("slot_start", "replicas", "requests_per_second", "is_late", "carried_per_second")
_DEFAULT_MIN_REPLICAS = 1
"""minReplicas of a HorizontalPodAutoscaler that states none."""
_BATCH = 256
"""Services that are forecast at once."""
_MAX_FLOOR_MINUTES = 60
"""For so long at most what waits now is a floor: a queue says nothing of later hours."""
COLD_START_SECONDS = 480.0
"""From the order of a replica to its first request, until enough starts of it were seen."""
_REACTIVE_RATIO = 0.7
"""Share of its requests at once to which the reactive rule fills a replica."""
_READ_MINUTES = SLOT_SECONDS // 60
_SLOTS = 36
_RATE_SLOTS_OF_A_DAY = 86_400 // RATE_SLOT_SECONDS
"""Of ten minutes: the next six hours."""


def service_outlooks(
    reader: StoreReader, settings: ServingSettings, now: datetime
) -> tuple[ServiceOutlook, ...]:
    """Return the services that were read in the last hour of readings up to `now`, by name."""
    services = reader.services(start=now - HISTORY, end=now, within=_GONE_AFTER)
    outlooks: list[ServiceOutlook] = []
    starts: dict[str, dict[str, list[float]]] | None = None
    silent: dict[str, int] = {}
    while batch := list(islice(services, _BATCH)):
        if starts is None:
            starts = _starts(reader, now)
            silent = reader.silent_replicas(start=now - _GONE_AFTER, end=now)
        jobs = reader.jobs_of(sorted({history.job_id for history in batch} - {""}))
        learned = [learned_service(history) for history in batch]
        rates = [series for service in learned for series in service.series]
        quantiles = iter(rate_quantiles_of(rates, _SLOTS))
        for service in learned:
            job_id = service.history.job_id
            starting = cold_start(starts.get(job_id, {}), COLD_START_SECONDS)
            quantiles_by_series = [next(quantiles) for _ in service.series]
            sized = _outlook(service, quantiles_by_series, jobs.get(job_id), starting, settings)
            outlooks.append(_with_silent(sized, silent.get(job_id, 0)))
    return tuple(outlooks)


def _with_silent(outlook: ServiceOutlook, silent: int) -> ServiceOutlook:
    """Return the outlook of a service of which so many replicas tell nothing of what they serve.

    What is required of the others is a lower bound, and none of those that run is given back.
    """
    if not silent:
        return outlook
    there = outlook.replicas + silent
    reason = (
        f"no engine was read of {silent} of {there} replicas for an hour (is it scraped?), so that "
        "required replicas are a lower bound"
    )
    return replace(
        outlook,
        silent_replicas=silent,
        required_replicas=tuple(max(there, count) for count in outlook.required_replicas),
        bounds=None,
        peak_load_ratio=None,
        reason="; ".join(filter(None, (reason, outlook.reason))),
    )


def _starts(reader: StoreReader, now: datetime) -> dict[str, dict[str, list[float]]]:
    """Return the seconds that replicas took to start, by service and source."""
    starts: dict[str, dict[str, list[float]]] = {}
    rows = reader.replica_starts(start=now - _STARTS_FROM, end=now)
    columns = (rows["job_id"], rows["source"], rows["seconds"])
    for job_id, source, seconds in zip(*columns, strict=True):
        starts.setdefault(str(job_id), {}).setdefault(str(source), []).append(float(seconds))
    return starts


def _outlook(
    service: LearnedService,
    forecast: Sequence[Quantiles | None],
    job: Job | None,
    starting: ColdStart,
    settings: ServingSettings,
) -> ServiceOutlook:
    history, readings = service.history, service.readings
    newest = {name: values[-1] for name, values in history.columns.items()}
    waits = readings.mean_waits
    judged = waits[readings.of_last_day & ~np.isnan(waits)]
    late = int((judged > settings.wait_seconds).sum())
    namespace, _, name = history.job_id.rpartition("/")
    plain = ServiceOutlook(
        job_id=history.job_id,
        namespace=namespace.partition("/")[0] if job is None else job.namespace,
        service=(name or history.nameless) if job is None else job.name,
        engine=history.engine,
        model=history.model,
        read_until=datetime.fromtimestamp(int(readings.starts[-1]) + SLOT_SECONDS, UTC),
        replicas=int(newest["replicas"]),
        running_requests=_finite(newest["running_requests"]),
        waiting_requests=_finite(newest["waiting_requests"]),
        requests_per_second=_finite(service.arrivals[-1] / SLOT_SECONDS)
        if newest["replicas"]
        else None,
        kv_cache_ratio=_finite(newest["kv_cache_ratio"]),
        kv_cache_max_ratio=_fullest(service.own.cache),
        prompt_tokens_per_second=_finite(newest["prompt_tokens"] / SLOT_SECONDS),
        generation_tokens_per_second=_finite(newest["generation_tokens"] / SLOT_SECONDS),
        wait_seconds=_finite(waits[-1]),
        late_minutes=late * _READ_MINUTES if len(judged) else None,
        judged_minutes=len(judged) * _READ_MINUTES,
        cold_start=starting,
        hourly_replicas=_by_hour(readings.starts, history.columns["replicas"]),
    )
    if not service.taught:
        return _unlearnt(plain, service, settings, _least(job))
    sized = _sized(plain, service, forecast, starting, settings, _least(job))
    rules = NeedRules(
        objective=objective_of(settings),
        reactive_ratio=_REACTIVE_RATIO,
        cold_start_seconds=starting.seconds,
    )
    return replace(sized, bounds=_bounds(job, service, service.taught[0].carries, rules))


def _least(job: Job | None) -> int:
    """Return the fewest replicas of a service: one, unless its autoscaler may stop the last.

    Only where another trigger starts one when it is asked: else requests that come unforeseen
    would not be served, and not be read either, so that the next are not foreseen.
    """
    labels = {} if job is None else job.extra
    return 0 if SCALES_TO_ZERO in labels else 1


def _unlearnt(
    plain: ServiceOutlook, service: LearnedService, settings: ServingSettings, least: int
) -> ServiceOutlook:
    """Return the outlook of a service that taught nothing: a number if no request came as yet."""
    why = missing_signals_reason(service.readings)
    if why:
        return replace(plain, reason=why)
    slots = _fresh_slots(settings)
    begins = int(service.readings.starts[-1]) // RATE_SLOT_SECONDS * RATE_SLOT_SECONDS
    return replace(
        plain,
        reactive_replicas=0,
        required_replicas=(least,) * slots,
        slot_starts=_slot_starts(begins, slots),
        reason="no request has come yet, so nothing is learnt: what the reactive rule asks",
    )


def _fresh_slots(settings: ServingSettings) -> int:
    """Return the slots in which readings count, and no longer: the next ones ask for their own."""
    return 1 + int(min(settings.stale_minutes, _MAX_FLOOR_MINUTES) * 60 // RATE_SLOT_SECONDS)


def _by_hour(starts: Times, replicas: Floats) -> tuple[int | None, ...]:
    """Return the most replicas in each of the last 24 hours, None where none was read."""
    hours = 23 - (starts[-1] - starts) // SECONDS_PER_HOUR
    most = np.zeros(24)
    lately = (hours >= 0) & np.isfinite(replicas)
    np.maximum.at(most, hours[lately], replicas[lately])
    return tuple(int(count) or None for count in most)


def _bounds(
    job: Job | None, service: LearnedService, carries: ReplicaCarries, rules: NeedRules
) -> BoundsUse | None:
    """Return the use of the autoscaler's bounds, None where the scheduler tells of none."""
    labels = {} if job is None else job.extra
    low, high = (labels.get(name, "") for name in ("min_replicas", "max_replicas"))
    if not low.isdecimal() and not high.isdecimal():
        return None
    try:
        return bounds_use(
            service.own,
            service.own.replicas,
            carries if carries.seen_full else replace(carries, slots=most_seen(service.own)),
            rules,
            min_replicas=int(low) if low.isdecimal() else _DEFAULT_MIN_REPLICAS,
            max_replicas=int(high) if high.isdecimal() else None,
        )
    except ImpossibleProblemError:
        return None


def objective_of(settings: ServingSettings) -> WaitObjective:
    """Return the objective of services by the settings."""
    return WaitObjective(wait_seconds=settings.wait_seconds, share=settings.wait_ratio)


def service_history(
    reader: StoreReader, outlook: ServiceOutlook, settings: ServingSettings
) -> pd.DataFrame:
    """Return the last day of a service by slots of five minutes up to its newest reading.

    Columns slot_start, replicas, requests_per_second, is_late (requests waited longer than promised
    on average), and carried_per_second, what so many replicas carry. NaN is unknown, as in slots
    without a reading.
    """
    end = outlook.read_until
    nameless = "" if outlook.job_id else outlook.service
    rows = reader.service(outlook.job_id, nameless, start=end - timedelta(days=1), end=end)
    if rows.empty:
        return pd.DataFrame(columns=list(_HISTORY))
    starts = np.asarray(rows["slot_start"].astype("int64") // 1_000_000, dtype=np.int64)
    columns = {str(name): values for name, values in rows.items()}
    readings = readings_of(str(rows["engine"].iloc[-1]), starts, columns)
    objective = objective_of(settings)
    carries = carries_of(outlook)
    carried: dict[int, float | None] = {}
    if carries is not None:
        load = carries.load(0.0)
        carried = {
            count: carried_rate(load, count, objective) for count in map(int, set(rows["replicas"]))
        }
    table = pd.DataFrame(
        {
            "slot_start": rows["slot_start"],
            "replicas": rows["replicas"].astype("float64"),
            "requests_per_second": readings.arrivals / SLOT_SECONDS,
            "is_late": readings.mean_waits > settings.wait_seconds,
            "carried_per_second": rows["replicas"].map(carried).astype("float64"),
        }
    )
    table = table.set_index("slot_start").asfreq(f"{SLOT_SECONDS}s").reset_index()
    return table.assign(is_late=table["is_late"].eq(True))


def _sized(
    plain: ServiceOutlook,
    service: LearnedService,
    forecast: Sequence[Quantiles | None],
    starting: ColdStart,
    settings: ServingSettings,
    least: int,
) -> ServiceOutlook:
    """Return the outlook with the replicas for the forecast, and never below the reactive rule.

    Rates are of requests; where tokens tell the work that comes, replicas follow that.
    """
    first, past = service.series[0]
    begins = first + len(past) * RATE_SLOT_SECONDS
    middle, high = _middle_and_high(forecast[0])
    fresh = _fresh_slots(settings)
    by_tokens, taught = iter(forecast[1:]), service.taught[0]
    works = [
        _middle_and_high(forecast[0] if each.tokens is None else next(by_tokens))[1]
        for each in service.taught
    ]
    if least == 0:
        idle = slots_without_requests(past, _SLOTS)
        works = [tuple(np.where(idle[: len(rates)], 0.0, rates)) for rates in works]
    if not all(works):
        works = [(0.0,) * fresh for _each in service.taught]
    objective = objective_of(settings)
    proven = [
        each.proven((float(each.work[-1]), *rates), objective)
        for each, rates in zip(service.taught, works, strict=True)
    ]
    reactive = reactive_replicas(taught.carries, service.readings, _REACTIVE_RATIO)
    is_late = service.readings.mean_waits[-1] > settings.wait_seconds
    if np.nan_to_num(service.readings.waiting[-1]) < 1 and not is_late:
        reactive = int(min(reactive, proven[0][0]))  # nobody waits: what was proven is enough
    carried = carried_rate(taught.carries.load(0.0), plain.replicas, objective)
    few = "" if high else "too little history for a forecast: what the reactive rule asks"
    known_outlook = replace(
        plain,
        carried_per_second=carried,
        slots_per_replica=taught.carries.slots,
        seen_full=taught.carries.seen_full,
        peak_load_ratio=_peak_load(service, works[0], carried)
        if taught.carries.seen_full
        else None,
        service_seconds=taught.carries.service_seconds,
        arrival_scv=taught.carries.arrival_scv,
        token_seconds=taught.tokens,
        reactive_replicas=reactive,
        rates_q50=middle,
        rates_q95=high,
        reason="; ".join(filter(None, (few, service.changed()))),
    )
    try:
        by_formula = [
            replicas_for_rates(each.carries.load(0.0), rates, objective)
            for each, rates in zip(service.taught, works, strict=True)
        ]
    except ImpossibleProblemError as error:
        return replace(known_outlook, reason=str(error))
    answers = (*by_formula, *(by_rate for _now, *by_rate in proven))
    required = to_order(
        [max(least, int(min(slot))) for slot in zip(*answers, strict=True)],
        ahead=-int(-starting.seconds // RATE_SLOT_SECONDS),
        at_least=reactive,
        first=fresh,
    )
    return replace(
        known_outlook,
        required_replicas=required,
        slot_starts=_slot_starts(begins, len(required)),
    )


@lru_cache(maxsize=8)
def _slot_starts(begins: int, slots: int) -> tuple[datetime, ...]:
    """Return the starts of slots of ten minutes from `begins` (s, epoch); services share them."""
    return tuple(
        datetime.fromtimestamp(begins + slot * RATE_SLOT_SECONDS, UTC) for slot in range(slots)
    )


def _peak_load(
    service: LearnedService, work: Sequence[float], carried: float | None
) -> float | None:
    """Return the highest rate of the last day and ahead, of what the replicas of now carry."""
    _first, rates = service.series[0 if service.taught[0].tokens is None else 1]
    rates_seen = rates[-_RATE_SLOTS_OF_A_DAY:]
    values = np.concatenate([rates_seen[np.isfinite(rates_seen)], work])
    return float(values.max()) / carried if carried and len(values) else None


def _middle_and_high(quantiles: Quantiles | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if quantiles is None:
        return (), ()
    return tuple(quantiles.q50.tolist()), tuple(quantiles.q95.tolist())


def _fullest(ratios: Floats) -> float | None:
    """Return the highest of them, None where less than a day of slots is known."""
    measured = ratios[np.isfinite(ratios)]
    return float(measured.max()) if len(measured) >= SLOTS_OF_A_DAY else None


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
