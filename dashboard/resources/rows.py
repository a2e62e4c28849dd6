"""Rows of the command line and the HTTP API: one for each thing, the same in both.

Unknown is None, or '' where a text is not told; a cluster is '' for the main one. Times are UTC.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dashboard.accounting.savings.ledger import LedgerRow
from dashboard.accounting.savings.shown_money import as_shown
from dashboard.decisions.findings import FindingStatus
from data.base.rows import columns_of, row_of
from data.facts.cluster_names import cluster_in
from data.facts.fleet import Gpu, Node, SourceReport
from data.facts.jobs import Job
from data.records.commands import AuditEntry, Measurement
from data.records.recommendations import StatedRecommendation
from data.records.serving import ServiceOutlook
from data.settings.all_settings import Settings
from data.settings.serving import ServingSettings
from data.store import StoreReader


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job as last known."""

    job_id: str
    name: str
    namespace: str
    owner: str
    platform: str
    kind: str
    state: str
    workload: str
    user: str
    reason: str
    gpu_model: str
    gpu_count: int
    mig_profile: str
    last_seen_at: datetime
    source: str
    assumed: str
    cluster: str


def job_row(job: Job) -> JobRow:
    """Return the row of a job."""
    facts = job.scheduling
    return row_of(
        JobRow,
        job,
        platform=str(job.platform),
        kind=str(job.kind),
        state=str(facts.state),
        workload=facts.workload,
        user=facts.user,
        reason=facts.reason,
        assumed="; ".join(f"{name}={value}" for name, value in job.assumed),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow:
    """A board or MIG instance as last seen."""

    gpu_uuid: str
    mig_instance: str
    mig_profile: str
    node: str
    gpu_model: str
    memory_total_mib: float | None
    job_id: str
    shares_with: str
    last_seen_at: datetime


def gpu_row(gpu: Gpu) -> GpuRow:
    """Return the row of a board or MIG instance, with all jobs that are on it."""
    return row_of(GpuRow, gpu, shares_with=", ".join(gpu.co_holders))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node as its scheduler describes it."""

    name: str
    gpu_model: str
    gpu_count: int
    mig_instances: str
    cpus: int | None
    memory_mib: float | None
    partitions: str
    state: str
    schedulable: bool
    reason: str
    seen_at: datetime
    source: str
    cluster: str


def node_row(node: Node) -> NodeRow:
    """Return the row of a node."""
    return NodeRow(**{name: _plain(getattr(node, name)) for name in columns_of(NodeRow)})


def _plain(value: Any) -> Any:
    """Return a tuple as text: names, or `2 x 3g.40gb` for pairs of a profile and a count."""
    if not isinstance(value, tuple):
        return value
    return ", ".join(
        f"{entry[1]} x {entry[0]}" if isinstance(entry, tuple) else entry for entry in value
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """The latest collection of a source; `dropped` counts rows by reason.

    `holds_from` is since when a source has readings that was asked for its past, `read_from` since
    when they were read.
    """

    source: str
    state: str
    reason: str
    samples: int
    dropped: dict[str, int]
    completeness_ratio: float | None
    warnings: list[str]
    window_start: datetime | None
    window_end: datetime | None
    holds_from: datetime | None
    read_from: datetime | None


def source_row(report: SourceReport) -> SourceRow:
    """Return the row of the report of a source."""
    return row_of(
        SourceRow,
        report,
        state=str(report.state),
        dropped=dict(report.dropped),
        warnings=list(report.warnings),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UrgentRow:
    """An alert. `at` is when it is expected, or was first shown where it `happened`.

    It ends by `until`, None: when its cause ends. `owner` is whose job or budget it is about.
    `alert` is its key; `acknowledged_by` has taken it on, '' while nobody has.
    """

    alert: str
    kind: str
    about: str
    what: str
    next_step: str
    at: datetime | None
    happened: bool
    until: datetime | None
    owner: str
    finding: str
    acknowledged_by: str
    acknowledged_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSlot:
    """What should be ordered in ten minutes, and the request rate foreseen in them."""

    start: datetime
    required_replicas: int
    requests_per_second_q50: float | None
    requests_per_second_q95: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRow:
    """An inference service; `required_replicas` is what to order now, None while unknown.

    One replica that only reads or only writes carries so many tokens a second (`…_carried`).
    Forecasts lead by `cold_start_seconds`, from `cold_start_source`: pods, boards (both learnt from
    the `starts_seen`) or setting. `state`: stale (readings too old), late (requests wait longer
    than promised), unknown (no number), short (too few replicas), rising (soon too few), spare (too
    many in all slots) or enough. `max_required_replicas` is the highest from now on.
    """

    job_id: str
    namespace: str
    service: str
    state: str
    engine: str
    model: str
    read_until: datetime
    replicas: int
    required_replicas: int | None
    max_required_replicas: int | None
    reactive_replicas: int | None
    running_requests: float | None
    waiting_requests: float | None
    requests_per_second: float | None
    carried_per_second: float | None
    kv_cache_ratio: float | None
    prompt_tokens_per_second: float | None
    generation_tokens_per_second: float | None
    prompt_tokens_carried: float | None
    generation_tokens_carried: float | None
    wait_seconds: float | None
    late_minutes: int | None
    judged_minutes: int
    slots_per_replica: int | None
    seen_full: bool
    service_seconds: float | None
    service_seconds_low: float | None
    service_seconds_high: float | None
    arrival_scv: float | None
    cold_start_seconds: float | None
    cold_start_typical_seconds: float | None
    cold_start_source: str
    starts_seen: int | None
    reason: str
    slots: tuple[ServiceSlot, ...]


def service_row(outlook: ServiceOutlook, settings: ServingSettings, now: datetime) -> ServiceRow:
    """Return the row of a service at `now` (UTC)."""
    seconds, rates = outlook.service_seconds, (outlook.rates_q50, outlook.rates_q95)
    limit = timedelta(minutes=settings.stale_minutes)
    required = outlook.required_at(now, limit)
    stale = required is None and bool(outlook.required_replicas)
    is_old = stale or now - outlook.read_until > limit
    ahead = [] if required is None else [required, *outlook.required_after(now)]
    cold = outlook.cold_start
    return row_of(
        ServiceRow,
        outlook,
        state=_service_state(outlook, settings, ahead, is_old=is_old),
        required_replicas=required,
        max_required_replicas=max(ahead, default=None),
        service_seconds=None if seconds is None else seconds.central,
        service_seconds_low=None if seconds is None else seconds.low,
        service_seconds_high=None if seconds is None else seconds.high,
        cold_start_seconds=None if cold is None else cold.seconds,
        cold_start_typical_seconds=None if cold is None else cold.typical_seconds,
        cold_start_source="" if cold is None else cold.source,
        starts_seen=None if cold is None else cold.starts,
        reason="its readings are stale" if stale else outlook.reason,
        slots=tuple(
            ServiceSlot(
                start=start,
                required_replicas=outlook.required_replicas[slot],
                requests_per_second_q50=rates[0][slot] if rates[0] else None,
                requests_per_second_q95=rates[1][slot] if rates[1] else None,
            )
            for slot, start in enumerate(outlook.slot_starts)
        ),
    )


def _service_state(
    outlook: ServiceOutlook, settings: ServingSettings, ahead: Sequence[int], *, is_old: bool
) -> str:
    """Return the state of a service in a word; `ahead` is what to order now and later."""
    if is_old:
        return "stale"
    if outlook.wait_seconds is not None and outlook.wait_seconds > settings.wait_seconds:
        return "late"
    if not ahead:
        return "unknown"
    there = outlook.replicas + outlook.silent_replicas
    if ahead[0] > there:
        return "short"
    highest = max(ahead)
    if highest > there:
        return "rising"
    if outlook.silent_replicas:
        return "unknown"
    return "spare" if highest < there else "enough"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """An entry of the append-only record."""

    sequence: int
    at: datetime
    actor: str
    event: str
    digest: str
    detail: str
    entry_hash: str


def audit_row(entry: AuditEntry) -> AuditRow:
    """Return the row of an entry of the record."""
    return row_of(AuditRow, entry)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionRow(StatedRecommendation):
    """The recommendation that people mean by a finding, with what they decided."""

    decided_by: str
    decided_at: datetime | None
    comment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRow:
    """A finding, where it stands, and the recommendation that people mean by it."""

    finding: str
    target: str
    action: str
    state: str
    opened_at: datetime
    seen_at: datetime | None
    until: datetime | None
    reason: str
    cluster: str
    revision: RevisionRow | None
    apply_first: tuple[str, ...] = ()


def finding_row(status: FindingStatus, settings: Settings) -> FindingRow:
    """Return the row of a finding, its money as every door shows it."""
    finding, stored = status.finding, status.revision
    names = ("state", "decided_by", "decided_at", "comment")
    return row_of(
        FindingRow,
        status,
        finding=finding.reference,
        target=finding.target,
        action=str(finding.action),
        opened_at=finding.opened_at,
        seen_at=finding.seen_at,
        cluster=cluster_in(finding.target),
        revision=None
        if stored is None
        else as_shown(stored.recommendation, settings).as_row(
            RevisionRow, **{name: getattr(stored, name) for name in names}
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRow:
    """What was said of a finding or done about it."""

    at: datetime
    by: str
    event: str
    detail: str


def record_of(reader: StoreReader, number: int) -> list[RecordRow]:
    """Return the record of a finding, in order."""
    return [row_of(RecordRow, entry, by=entry.actor) for entry in reader.entries_about(number)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingRow:
    """What an applied recommendation promised and brought in the first hours after it."""

    finding: str
    id: str
    digest: str
    job: str
    state: str
    applied_at: datetime | None
    measured_at: datetime | None
    measurement: Measurement | None
    unknown_because: str


def saving_row(row: LedgerRow) -> SavingRow:
    """Return the row of an applied recommendation."""
    return row_of(
        SavingRow,
        row,
        finding=row.reference,
        id=row.recommendation.recommendation_id,
        digest=row.recommendation.digest,
        job=row.recommendation.job_id,
        unknown_because=row.reason,
    )
