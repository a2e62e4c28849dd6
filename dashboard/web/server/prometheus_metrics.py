"""Trimtab's own metrics for Prometheus: is it fresh, what does it advise, what would that save.

Names carry their unit as Prometheus asks. What is unknown has no series, so that an alert on
`absent()` finds it; a 0 is a measured 0. Whoever reaches the port reads them without signing in, so
no person, job or namespace is named: recommendations are told by kind and state, and the largest of
the waiting ones by id. A thousand jobs make no thousand series. The exceptions are off until
`serving.named_on_metrics`: the replicas that inference services need, which autoscalers ask for,
and for how long each job has certainly been idle.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version

from prometheus_client import Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from collectors.shared.collect import MAX_SKEW
from dashboard.common.attested_idle import AttestedJob, attested_jobs
from dashboard.common.escaping import shown
from dashboard.cycle.cycle_thread import CycleState
from data.records.plans import Plan
from data.records.recommendations import Range, Recommendation, Savings
from data.settings.serving import ServingSettings
from data.store import StoredRecommendation, StoreReader

SERVICES = 1000
"""Inference services that get a series, those with most requests at work."""
MAX_NAMED_FINDINGS = 100
"""Waiting recommendations that get a series of their own, largest central saving first."""
_MAX_LABEL = 200
_HOUR, _MINUTE = timedelta(hours=1), timedelta(minutes=1)
_NO_TIME = datetime.min.replace(tzinfo=UTC)
_SAVED: dict[str, tuple[str, Callable[[Savings], Range | None]]] = {
    "gpu_hours": ("GPU-hours of the present model", lambda entry: entry.gpu_hours),
    "energy_kilowatthours": ("site energy, kWh", lambda entry: entry.energy_kwh),
    "emissions_kgco2e": ("emissions, kgCO2e location-based", lambda entry: entry.emissions_kgco2e),
    "cost": ("money, in the currency of trimtab_plan_info", lambda entry: entry.cost),
}


class OwnMetrics:
    """Reads the store at every scrape; a plan, which is large, is read once."""

    def __init__(
        self,
        reader: StoreReader,
        state: Callable[[], CycleState],
        stopped: Callable[[], object],
        serving: Callable[[], ServingSettings] = ServingSettings,
        shown: Callable[[Recommendation], Recommendation] = lambda recommendation: recommendation,
    ) -> None:
        self._reader = reader
        self._state = state
        self._stopped = stopped
        self._serving, self._shown = serving, shown
        self._plan: tuple[str, tuple[Metric, ...]] | None = None
        self._idle: tuple[datetime, list[AttestedJob]] = (_NO_TIME, [])

    def exposition(self, now: datetime) -> bytes:
        """Return the metrics at `now` (UTC) in Prometheus' text format. Errors: StoreError."""
        return generate_latest(_MetricsAt(self, now))

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
        rows = (((table,), count) for table, count in self._reader.counts().items())
        yield _family("store_rows", "Rows kept.", ["table"], rows)

    def _sources(self) -> Iterator[Metric]:
        reports = [(_label(report.source), report) for report in self._reader.source_reports()]
        yield _family(
            "source_up",
            "1 when the source ran in its last collection.",
            ["source"],
            (((source,), report.state == "ran") for source, report in reports),
        )
        yield _family(
            "source_completeness_ratio",
            "Share of the expected samples that a source gave, 0..1.",
            ["source"],
            (
                ((source,), report.completeness_ratio)
                for source, report in reports
                if report.completeness_ratio is not None
            ),
        )
        yield _family(
            "source_dropped_samples",
            "Samples refused in the last collection, by reason.",
            ["source", "reason"],
            (
                ((source, _label(reason)), count)
                for source, report in reports
                for reason, count in report.dropped
            ),
        )

    def _contradictions(self, now: datetime) -> Iterator[Metric]:
        latest = self._reader.latest_sample_at() or now
        most: dict[tuple[str, str, str], int] = {}
        for entry in self._reader.contradicted_counters(end=latest):
            key = _label(entry.node), _label(entry.gpu_uuid), entry.counter
            most[key] = max(entry.slots, most.get(key, 0))
        yield _family(
            "contradicted_counter_slots",
            "Slots of five minutes in which other readings contradicted a counter, in a day.",
            ["node", "gpu_uuid", "counter"],
            sorted(most.items()),
        )

    def _fleet(self) -> Iterator[Metric]:
        latest = self._reader.latest_sample_at()
        if latest is None:
            return
        hours = self._reader.fleet_history(start=latest - _HOUR, end=latest, slot_seconds=3600)
        if hours.empty:
            return
        now = hours.iloc[-1]
        states = ("used", "idle_allocated", "unknown", "unattributed", "free")
        yield _family(
            "fleet_gpus",
            "GPUs by what they do, mean of the last hour.",
            ["state"],
            (((state,), float(now[f"{state}_gpus"])) for state in states),
        )
        yield _gauge("fleet_boards", "Boards seen in that hour.", float(now["boards"]))

    def _advice(self, now: datetime) -> Iterator[Metric]:
        cycle = self._reader.last_cycle()
        if cycle is None:
            return
        if self._plan is None or self._plan[0] != cycle.plan_id:
            plan = self._reader.plan(cycle.plan_id)
            self._plan = None if plan is None else (plan.plan_id, tuple(_plan_metrics(plan)))
        if self._plan is not None:
            plan_id, metrics = self._plan
            yield from metrics
            stored = self._reader.recommendations(now=now)
            every = (replace(row, recommendation=self._shown(row.recommendation)) for row in stored)
            yield from _recommendations(every, plan_id)

    def _services(self, now: datetime) -> Iterator[Metric]:
        """Yield the replicas that services need now; none of a service of which it is unknown."""
        settings = self._serving()
        if not settings.named_on_metrics:
            return
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
        yield _family(
            "required_replicas",
            "Replicas of an inference service to order now.",
            ["namespace", "service", "workload"],
            replicas.items(),
        )

    def _idle_jobs(self, now: datetime) -> Iterator[Metric]:
        """Yield for how long each running job has certainly been idle, made once a minute."""
        if not self._serving().named_on_metrics:
            return
        if not timedelta(0) <= now - self._idle[0] < _MINUTE:
            self._idle = now, attested_jobs(self._reader, now=now)
        # Names that are cut may be alike: of these the one at work counts.
        seconds: dict[tuple[str], float] = {}
        for row in self._idle[1]:
            name, idle = (_label(row.job_id),), 60 * row.idle_minutes
            seconds[name] = min(idle, seconds.get(name, idle))
        yield _family(
            "job_idle_seconds",
            "Time that a running job was certainly idle; 0: active, or not known.",
            ["job_id"],
            seconds.items(),
        )


@dataclass(frozen=True, slots=True)
class _MetricsAt(Collector):
    """Source of families for prometheus_client: the metrics at one moment."""

    metrics: OwnMetrics
    now: datetime

    def collect(self) -> Iterator[Metric]:
        return self.metrics.families(self.now)


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(f"trimtab_{name}", meaning, value=float(value))


def _family(
    name: str, meaning: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], float]]
) -> Metric:
    """Return a metric with a series for each row: the values of its labels, and its own."""
    family = GaugeMetricFamily(f"trimtab_{name}", meaning, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def _age(name: str, meaning: str, at: datetime | None, now: datetime) -> Iterator[Metric]:
    """Yield the time since `at`; nothing where it is unknown, as after a clock was set back.

    A source may be ahead of this clock by as much as a collection lets pass: that age is 0.
    """
    if at is not None and at <= now + MAX_SKEW:
        yield _gauge(name, meaning, max(0.0, (now - at).total_seconds()))


def _label(text: str) -> str:
    """Return foreign text as a label value: one printable line, cut."""
    return shown(text[:_MAX_LABEL])


def _plan_metrics(plan: Plan) -> Iterator[Metric]:
    """Yield what is told of a plan."""
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


def _recommendations(stored: Iterable[StoredRecommendation], plan_id: str) -> Iterator[Metric]:
    """Yield their number by state and action, the savings of the waiting ones, and the largest."""
    every = [((entry.state, str(entry.recommendation.action)), entry) for entry in stored]
    kinds = ["state", "action"]
    counts = Counter(kind for kind, _entry in every)
    yield _family("recommendations", "Recommendations kept.", kinds, sorted(counts.items()))
    for unit, (meaning, part) in _SAVED.items():
        sums: defaultdict[tuple[str, str], float] = defaultdict(float)
        waiting: list[tuple[StoredRecommendation, Range]] = []
        for kind, entry in every:
            # Unknown savings have no part in a sum.
            if saving := part(entry.recommendation.savings):
                sums[kind] += saving.central
                is_newest = entry.recommendation.plan_id == plan_id
                if is_newest and entry.state in ("proposed", "approved"):
                    waiting.append((entry, saving))
        yield _family(
            f"recommended_savings_{unit}",
            f"Central savings of all recommendations kept, as they were promised: {meaning}.",
            kinds,
            sorted(sums.items()),
        )
        estimates = ("low", "central", "high") if waiting else ()
        yield _family(
            f"waiting_savings_{unit}",
            f"What the waiting recommendations would save over the horizon: {meaning}.",
            ["estimate"],
            (
                ((estimate,), sum(getattr(saving, estimate) for _entry, saving in waiting))
                for estimate in estimates
            ),
        )
        yield _family(
            f"recommendation_saving_{unit}",
            f"Central saving of a waiting recommendation, the largest {MAX_NAMED_FINDINGS}: "
            f"{meaning}.",
            ["finding", "action", "risk", "state"],
            (
                (
                    (
                        entry.reference,
                        str(entry.recommendation.action),
                        str(entry.recommendation.risk),
                        entry.state,
                    ),
                    saving.central,
                )
                for entry, saving in sorted(waiting, key=lambda pair: -pair[1].central)[
                    :MAX_NAMED_FINDINGS
                ]
            ),
        )
