"""Trimtab's own metrics for Prometheus: is it fresh, what does it advise, what would that save.

Names carry their unit as Prometheus asks. What is unknown has no series, so that an alert on
`absent()` finds it; a 0 is a measured 0. Whoever reaches the port reads them without signing in, so
no person, job or namespace is named: recommendations are told by kind and state, and the largest of
the waiting ones by id. A thousand jobs make no thousand series. The exceptions are off until
`serving.named_on_metrics`: the replicas that inference services need, which autoscalers ask for,
and for how long each job has certainly been idle.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily

from collectors.shared.collect import MAX_SKEW
from dashboard.common.attested_idle import AttestedJob, attested_jobs
from dashboard.common.escaping import shown
from dashboard.cycle.cycle_thread import CycleState
from data.records.plans import Plan
from data.records.recommendations import Range, Savings
from data.settings.serving import ServingSettings
from data.store import StoredRecommendation, StoreReader

SERVICES = 1000
"""Inference services that get a series, those with most requests at work."""
NAMED = 100
"""Waiting recommendations that get a series of their own, largest central saving first."""
_MAX_LABEL = 200
_HOUR, _MINUTE = timedelta(hours=1), timedelta(minutes=1)
_NEVER = datetime.min.replace(tzinfo=UTC)
_SAVED: dict[str, tuple[str, Callable[[Savings], Range | None]]] = {
    "gpu_hours": ("GPU-hours of the present model", lambda entry: entry.gpu_hours),
    "energy_kilowatthours": ("site energy, kWh", lambda entry: entry.energy_kwh),
    "emissions_kgco2e": ("emissions, kgCO2e location-based", lambda entry: entry.emissions_kgco2e),
    "cost": ("money, in the currency of trimtab_plan_info", lambda entry: entry.cost),
}


@dataclass(frozen=True, slots=True)
class _PlanFacts:
    plan_id: str
    cost: float
    cost_of_now: float
    lower_bound: float
    gap_ratio: float
    currency: str
    seconds: float


class OwnMetrics:
    """Reads the store at every scrape; a plan, which is large, is read once."""

    def __init__(
        self,
        reader: StoreReader,
        state: Callable[[], CycleState],
        stopped: Callable[[], object],
        serving: Callable[[], ServingSettings] = ServingSettings,
    ) -> None:
        self._reader = reader
        self._state = state
        self._stopped = stopped
        self._serving = serving
        self._plan: _PlanFacts | None = None
        self._idle: tuple[datetime, list[AttestedJob]] = (_NEVER, [])

    def exposition(self, now: datetime) -> bytes:
        """Return the metrics at `now` (UTC) in Prometheus' text format. Errors: StoreError."""
        registry = CollectorRegistry()
        registry.register(_At(self, now))
        return generate_latest(registry)

    def families(self, now: datetime) -> Iterator[Metric]:
        """Yield every metric family at `now`."""
        yield InfoMetricFamily("trimtab_build", "Release.", {"version": version("trimtab")})
        yield from self._freshness(now)
        yield from self._sources()
        yield from self._contradictions(now)
        yield from self._fleet()
        yield from self._advice(now)
        yield from self._services(now)
        yield from self._idle_jobs(now)

    def _freshness(self, now: datetime) -> Iterator[Metric]:
        state, cycle = self._state(), self._reader.last_cycle()
        yield _gauge("last_cycle_failed", "1 when the last cycle failed.", bool(state.last_error))
        yield _gauge("cycle_running", "1 while a cycle runs.", state.running)
        yield _gauge("apply_stopped", "1 while the kill switch is on.", bool(self._stopped()))
        latest = self._reader.latest_sample_at()
        finished = None if cycle is None else cycle.finished_at
        times = [at for at in (latest, finished) if at is not None]
        yield from _age("newest_sample_age_seconds", "Age of the newest sample.", latest, now)
        yield from _age("last_cycle_age_seconds", "Time since the last kept cycle.", finished, now)
        if times:
            behind = max(0.0, (max(times) - now).total_seconds())
            yield _gauge("clock_behind_seconds", "How far the newest time kept is ahead.", behind)
        if cycle is not None:
            took = (cycle.finished_at - cycle.started_at).total_seconds()
            yield _gauge("last_cycle_duration_seconds", "How long that cycle took.", max(0.0, took))
            yield _gauge("forecasts", "Jobs forecast in it.", cycle.forecast_count)
            yield _gauge("forecasts_skipped", "Jobs without forecast.", cycle.skipped_count)
        free = self._reader.free_mib()
        if free is not None:
            yield _gauge("store_free_bytes", "Room left on the store's disk.", free * 2**20)
        rows = GaugeMetricFamily("trimtab_store_rows", "Rows kept.", labels=["table"])
        for table, count in self._reader.counts().items():
            rows.add_metric([table], count)
        yield rows

    def _sources(self) -> Iterator[Metric]:
        complete = GaugeMetricFamily(
            "trimtab_source_completeness_ratio",
            "Share of the expected samples that a source gave, 0..1.",
            labels=["source"],
        )
        ran = GaugeMetricFamily(
            "trimtab_source_up", "1 when the source ran in its last collection.", labels=["source"]
        )
        dropped = GaugeMetricFamily(
            "trimtab_source_dropped_samples",
            "Samples refused in the last collection, by reason.",
            labels=["source", "reason"],
        )
        for report in self._reader.source_reports():
            ran.add_metric([_label(report.source)], report.state == "ran")
            if report.completeness_ratio is not None:
                complete.add_metric([_label(report.source)], report.completeness_ratio)
            for reason, count in report.dropped:
                dropped.add_metric([_label(report.source), _label(reason)], count)
        yield from (ran, complete, dropped)

    def _contradictions(self, now: datetime) -> Iterator[Metric]:
        slots = GaugeMetricFamily(
            "trimtab_contradicted_counter_slots",
            "Slots of five minutes in which other readings contradicted a counter, in a day.",
            labels=["node", "gpu_uuid", "counter"],
        )
        latest = self._reader.latest_sample_at() or now
        most: dict[tuple[str, str, str], int] = {}
        for entry in self._reader.contradicted_counters(end=latest):
            key = _label(entry.node), _label(entry.gpu_uuid), entry.counter
            most[key] = max(entry.slots, most.get(key, 0))
        for labels, count in sorted(most.items()):
            slots.add_metric([*labels], count)
        yield slots

    def _fleet(self) -> Iterator[Metric]:
        latest = self._reader.latest_sample_at()
        if latest is None:
            return
        hours = self._reader.fleet_history(start=latest - _HOUR, end=latest, slot_seconds=3600)
        if hours.empty:
            return
        now = hours.iloc[-1]
        states = GaugeMetricFamily(
            "trimtab_fleet_gpus", "GPUs by what they do, mean of the last hour.", labels=["state"]
        )
        for state in ("used", "idle_allocated", "unknown", "unattributed", "free"):
            states.add_metric([state], float(now[f"{state}_gpus"]))
        yield states
        yield _gauge("fleet_boards", "Boards seen in that hour.", float(now["boards"]))

    def _advice(self, now: datetime) -> Iterator[Metric]:
        plan = self._plan_facts()
        if plan is None:
            return
        yield InfoMetricFamily(
            "trimtab_plan", "The newest plan.", {"id": plan.plan_id[:12], "currency": plan.currency}
        )
        yield _gauge("plan_cost", "Cost of the plan over its horizon.", plan.cost)
        yield _gauge(
            "plan_cost_of_now", "Cost of today's allocation, autoscalers at work.", plan.cost_of_now
        )
        yield _gauge("plan_lower_bound", "No plan can cost less.", plan.lower_bound)
        yield _gauge("plan_gap_ratio", "(cost - lower bound) / cost.", plan.gap_ratio)
        yield _gauge("plan_solve_seconds", "Time the planner took.", plan.seconds)
        yield from _recommendations(self._reader.recommendations(now=now), plan.plan_id)

    def _services(self, now: datetime) -> Iterator[Metric]:
        """Yield the replicas that services need now; none of a service of which it is unknown."""
        settings = self._serving()
        if not settings.named_on_metrics:
            return
        family = GaugeMetricFamily(
            "trimtab_required_replicas",
            "Replicas of an inference service to order now.",
            labels=["namespace", "service", "workload"],
        )
        busiest = sorted(
            self._reader.serving_outlook(), key=lambda outlook: -(outlook.running_requests or 0)
        )
        replicas: dict[tuple[str, ...], int] = {}
        for outlook in busiest[:SERVICES]:
            required = outlook.required_at(now, timedelta(minutes=settings.stale_minutes))
            if required is not None:
                workload = outlook.job_id or f"model:{outlook.service}"
                names = (outlook.namespace, outlook.service, workload)
                labels = tuple(_label(name) for name in names)
                # Names that are cut may be alike, and one series twice spoils the whole page.
                replicas[labels] = max(required, replicas.get(labels, required))
        for labels, required in replicas.items():
            family.add_metric(labels, required)
        yield family

    def _idle_jobs(self, now: datetime) -> Iterator[Metric]:
        """Yield for how long each running job has certainly been idle, made once a minute."""
        if not self._serving().named_on_metrics:
            return
        if not timedelta(0) <= now - self._idle[0] < _MINUTE:
            self._idle = now, attested_jobs(self._reader, now=now)
        family = GaugeMetricFamily(
            "trimtab_job_idle_seconds",
            "Time that a running job was certainly idle; 0: active, or not known.",
            labels=["job_id"],
        )
        # Names that are cut may be alike: of these the one at work counts.
        seconds: dict[str, float] = {}
        for row in self._idle[1]:
            name, idle = _label(row.job_id), 60 * row.idle_minutes
            seconds[name] = min(idle, seconds.get(name, idle))
        for name, idle in seconds.items():
            family.add_metric([name], idle)
        yield family

    def _plan_facts(self) -> _PlanFacts | None:
        cycle = self._reader.last_cycle()
        if cycle is None:
            return None
        if self._plan is None or self._plan.plan_id != cycle.plan_id:
            plan = self._reader.plan(cycle.plan_id)
            self._plan = None if plan is None else _facts(plan)
        return self._plan


@dataclass(frozen=True, slots=True)
class _At:
    """Source of families for prometheus_client: the metrics at one moment."""

    metrics: OwnMetrics
    now: datetime

    def collect(self) -> Iterator[Metric]:
        return self.metrics.families(self.now)


def _facts(plan: Plan) -> _PlanFacts:
    return _PlanFacts(
        plan.plan_id,
        plan.cost,
        plan.cost_of_now,
        plan.lower_bound,
        plan.gap_ratio,
        plan.currency,
        plan.seconds,
    )


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(f"trimtab_{name}", meaning, value=float(value))


def _age(name: str, meaning: str, at: datetime | None, now: datetime) -> Iterator[Metric]:
    """Yield the time since `at`; nothing where it is unknown, as after a clock was set back.

    A source may be ahead of this clock by as much as a collection lets pass: that age is 0.
    """
    if at is not None and at <= now + MAX_SKEW:
        yield _gauge(name, meaning, max(0.0, (now - at).total_seconds()))


def _label(text: str) -> str:
    """Return foreign text as a label value: one printable line, cut."""
    return shown(text[:_MAX_LABEL])


def _recommendations(stored: Iterable[StoredRecommendation], plan_id: str) -> Iterator[Metric]:
    """Yield their number by state and action, the savings of the waiting ones, and the largest."""
    every = list(stored)
    counted = GaugeMetricFamily(
        "trimtab_recommendations", "Recommendations kept.", labels=["state", "action"]
    )
    for (state, action), count in sorted(
        Counter(
            (recommendation.state, str(recommendation.recommendation.action))
            for recommendation in every
        ).items()
    ):
        counted.add_metric([state, action], count)
    yield counted
    waiting = [
        recommendation
        for recommendation in every
        if recommendation.recommendation.plan_id == plan_id
        and recommendation.state in ("proposed", "approved")
    ]
    for unit, (meaning, part) in _SAVED.items():
        yield _by_kind(every, unit, meaning, part)
        yield from _savings(waiting, unit, meaning, part)


def _by_kind(
    every: Iterable[StoredRecommendation],
    unit: str,
    meaning: str,
    part: Callable[[Savings], Range | None],
) -> Metric:
    """Return the central savings added up by state and action; unknown ones have no part in it."""
    sums: defaultdict[tuple[str, str], float] = defaultdict(float)
    for recommendation in every:
        if saving := part(recommendation.recommendation.savings):
            sums[recommendation.state, str(recommendation.recommendation.action)] += saving.central
    family = GaugeMetricFamily(
        f"trimtab_recommended_savings_{unit}",
        f"Central savings of all recommendations kept, as they were promised: {meaning}.",
        labels=["state", "action"],
    )
    for labels, total in sorted(sums.items()):
        family.add_metric(labels, total)
    return family


def _savings(
    waiting: list[StoredRecommendation],
    unit: str,
    meaning: str,
    part: Callable[[Savings], Range | None],
) -> Iterator[Metric]:
    total = GaugeMetricFamily(
        f"trimtab_waiting_savings_{unit}",
        f"What the waiting recommendations would save over the horizon: {meaning}.",
        labels=["estimate"],
    )
    single = GaugeMetricFamily(
        f"trimtab_recommendation_saving_{unit}",
        f"Central saving of one waiting recommendation, the largest {NAMED}: {meaning}.",
        labels=["finding", "action", "risk", "state"],
    )
    savings = [
        (recommendation, saving)
        for recommendation in waiting
        if (saving := part(recommendation.recommendation.savings))
    ]
    if savings:
        for estimate in ("low", "central", "high"):
            total.add_metric([estimate], sum(getattr(saving, estimate) for _one, saving in savings))
    for entry, saving in sorted(savings, key=lambda pair: -pair[1].central)[:NAMED]:
        revision = entry.recommendation
        labels = (entry.reference, str(revision.action), str(revision.risk), entry.state)
        single.add_metric(labels, saving.central)
    yield from (total, single)
