"""Reading the store: every call takes a connection of its own, so any thread may call."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import sqlalchemy as sa

from data.columns import HISTORY, check_frame
from data.errors import StoreError
from data.records.cluster import Cluster, Gpu, SourceReport
from data.records.decisions import AuditEntry, Decision, Recommendation
from data.records.forecasts import DemandForecast, ForecastSkipped
from data.records.jobs import Job
from data.records.plans import Plan
from data.store import samples_sql, tables
from data.store.audit_chain import chain_problems
from data.store.bulk import read_frame
from data.store.planning_view import PlanningView
from data.store.record_json import from_json

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FAR = datetime(9000, 1, 1, tzinfo=UTC)
SHORTEST_PREFIX = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleRow:
    """One cycle as kept."""

    cycle_id: str
    started_at: datetime
    finished_at: datetime
    plan_id: str
    forecast_count: int
    skipped_count: int
    recommendation_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecommendation:
    """A recommendation and what became of it.

    `state`: proposed, approved, rejected, written, expired or superseded (a newer plan exists).
    """

    recommendation: Recommendation
    state: str
    decided_by: str
    decided_at: datetime | None
    comment: str


def as_utc(at: Any) -> datetime:
    """Give a time from the driver as a standard UTC datetime."""
    elapsed: timedelta = at - _EPOCH
    return _EPOCH + elapsed


def audit_entry(row: Any) -> AuditEntry:
    """Give the entry of a row of the audit table."""
    return AuditEntry(
        sequence=row.sequence,
        at=as_utc(row.entry_at),
        actor=row.actor,
        event=row.event,
        digest=row.digest,
        detail=row.detail,
        previous_hash=row.previous_hash,
        entry_hash=row.entry_hash,
    )


class StoreReader:
    """Everything that can be read; nothing here writes."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def _frame(self, query: str, **parameters: Any) -> pd.DataFrame:
        with self._engine.connect() as connection:
            return read_frame(connection, query, parameters)

    def _rows(self, statement: sa.Executable) -> list[Any]:
        with self._engine.connect() as connection:
            return list(connection.execute(statement).all())

    def latest_sample_at(self, *, until: datetime | None = None) -> datetime | None:
        """Give the time of the newest sample, up to `until`; None when there is none."""
        statement = sa.text("SELECT max(sampled_at) FROM samples WHERE sampled_at <= :until")
        rows = self._rows(statement.bindparams(until=until or _FAR))
        return None if rows[0][0] is None else as_utc(rows[0][0])

    def planning_view(self, now: datetime, *, slot_seconds: int, history_days: int) -> PlanningView:
        """Give fleet, jobs and history as known at `now`; later samples are not looked at."""
        as_of = self.latest_sample_at(until=now) or now
        start = as_of - timedelta(days=history_days)
        history = self.job_history("", start=start, end=as_of, slot_seconds=slot_seconds)
        seen = set(history["job_id"])
        signals = self._frame(samples_sql.SIGNALS, start=start, end=as_of)
        return PlanningView(
            as_of=as_of,
            cluster=Cluster(as_of=as_of, gpus=self.gpus(start=start, end=as_of)),
            jobs=tuple(job for job in self.jobs() if job.job_id in seen),
            history=history,
            signals=dict(zip(signals["job_id"], signals["signal"], strict=True)),
        )

    def jobs(self) -> tuple[Job, ...]:
        """Give every job ever seen, by id."""
        rows = self._rows(sa.select(tables.jobs.c.record).order_by(tables.jobs.c.job_id))
        return tuple(from_json(Job, row.record) for row in rows)

    def job(self, job_id: str) -> Job | None:
        """Give one job, None when it was never seen."""
        rows = self._rows(sa.select(tables.jobs.c.record).where(tables.jobs.c.job_id == job_id))
        return from_json(Job, rows[0].record) if rows else None

    def gpus(self, *, start: datetime = _EPOCH, end: datetime = _FAR) -> tuple[Gpu, ...]:
        """Give the boards and MIG instances as last seen in (start, end]."""
        rows: Iterable[Any] = self._frame(samples_sql.GPUS, start=start, end=end).itertuples()
        return tuple(
            Gpu(
                gpu_uuid=row.gpu_uuid,
                mig_instance=row.mig_instance,
                mig_profile=row.mig_profile,
                node=row.node,
                gpu_model=row.gpu_model,
                memory_total_mib=None if pd.isna(row.memory_total_mib) else row.memory_total_mib,
                job_id=row.job_id,
                last_seen_at=row.last_seen_at.to_pydatetime(),
            )
            for row in rows
        )

    def job_history(
        self, job_id: str, *, start: datetime, end: datetime, slot_seconds: int
    ) -> pd.DataFrame:
        """Give the history (columns HISTORY) of one job, or of all for '', in (start, end]."""
        frame = self._frame(
            samples_sql.JOB_HISTORY, job_id=job_id, start=start, end=end, slot_seconds=slot_seconds
        )
        return check_frame(frame, HISTORY)

    def fleet_history(self, *, start: datetime, end: datetime, slot_seconds: int) -> pd.DataFrame:
        """Give per slot: boards, allocated, used, idle allocated, unknown, free GPUs, power in W.

        Power is NaN where no board reported it.
        """
        return self._frame(
            samples_sql.FLEET_HISTORY, start=start, end=end, slot_seconds=slot_seconds
        )

    def energy(self, *, start: datetime, end: datetime, by: str) -> pd.DataFrame:
        """Give key, energy_kwh, gpu_hours, idle_gpu_hours, observed_hours in (start, end].

        `by` is job, namespace, gpu_model, day or fleet; key '' is what no job held. Board power by
        trapezoid over gaps of at most five minutes; NaN where power was never reported.
        """
        if by not in samples_sql.ENERGY_KEYS:
            raise ValueError(f"energy by {by!r}; known: {', '.join(samples_sql.ENERGY_KEYS)}")
        query = samples_sql.ENERGY.replace("{key}", samples_sql.ENERGY_KEYS[by])
        return self._frame(query, start=start, end=end, gap=samples_sql.LARGEST_GAP_SECONDS)

    def _latest_plan_id(self) -> str | None:
        rows = self._rows(
            sa.select(tables.cycles.c.plan_id).order_by(tables.cycles.c.sequence.desc()).limit(1)
        )
        return rows[0].plan_id if rows else None

    def latest_plan(self) -> Plan | None:
        """Give the plan of the latest cycle."""
        plan_id = self._latest_plan_id()
        return None if plan_id is None else self.plan(plan_id)

    def plan(self, plan_id: str) -> Plan | None:
        """Give one plan, None when it is not kept."""
        rows = self._rows(sa.select(tables.plans.c.record).where(tables.plans.c.plan_id == plan_id))
        return from_json(Plan, rows[0].record) if rows else None

    def forecasts(self, plan_id: str | None = None) -> tuple[DemandForecast | ForecastSkipped, ...]:
        """Give the forecasts behind a plan, by default the latest."""
        wanted = plan_id or self._latest_plan_id()
        rows = self._rows(
            sa.select(tables.forecasts.c.skipped, tables.forecasts.c.record)
            .join(tables.cycles, tables.cycles.c.cycle_id == tables.forecasts.c.cycle_id)
            .where(tables.cycles.c.plan_id == (wanted or ""))
            .order_by(tables.forecasts.c.position)
        )
        return tuple(
            from_json(ForecastSkipped, row.record)
            if row.skipped
            else from_json(DemandForecast, row.record)
            for row in rows
        )

    def recommendations(self, *, now: datetime) -> tuple[StoredRecommendation, ...]:
        """Give all, the newest plan first, then by central cost saving, largest first."""
        newest = self._latest_plan_id()
        found = self._stored(sa.select(tables.recommendations), now)
        return tuple(
            sorted(
                found,
                key=lambda one: (
                    one.recommendation.plan_id != newest,
                    -one.recommendation.created_at.timestamp(),
                    -(
                        one.recommendation.savings.cost.central
                        if one.recommendation.savings.cost
                        else 0
                    ),
                    one.recommendation.job_id,
                ),
            )
        )

    def recommendation(self, id_or_digest: str, *, now: datetime) -> StoredRecommendation:
        """Give the one whose digest starts so. Errors: StoreError when none or several do."""
        wanted = id_or_digest.strip().lower()
        if len(wanted) < SHORTEST_PREFIX:
            raise StoreError(
                f"{id_or_digest!r} is too short to name a recommendation",
                f"Give at least {SHORTEST_PREFIX} characters of its id.",
            )
        column = tables.recommendations.c.digest
        found = self._stored(
            sa.select(tables.recommendations).where(column.startswith(wanted, autoescape=True)), now
        )
        if len(found) != 1:
            what = "no recommendation" if not found else f"{len(found)} recommendations"
            raise StoreError(
                f"{what} with the id {id_or_digest!r}",
                "`trimtab recommendations list` shows the ids.",
            )
        return found[0]

    def _stored(self, statement: sa.Select[Any], now: datetime) -> list[StoredRecommendation]:
        decided = {
            row.digest: row
            for row in self._rows(sa.select(tables.decisions).order_by(tables.decisions.c.sequence))
        }
        newest = self._latest_plan_id()
        stored = []
        for row in self._rows(statement):
            recommendation = from_json(Recommendation, row.record)
            decision = decided.get(row.digest)
            stored.append(
                StoredRecommendation(
                    recommendation=recommendation,
                    state=_state(
                        recommendation, decision and decision.decision, now=now, newest=newest
                    ),
                    decided_by=decision.decided_by if decision else "",
                    decided_at=as_utc(decision.decided_at) if decision else None,
                    comment=decision.remark if decision else "",
                )
            )
        return stored

    def source_reports(self) -> tuple[SourceReport, ...]:
        """Give the latest report of every source."""
        rows = self._rows(
            sa.select(tables.batches.c.source, tables.batches.c.report).order_by(
                tables.batches.c.sequence
            )
        )
        latest = {row.source: row.report for row in rows}
        return tuple(from_json(SourceReport, latest[source]) for source in sorted(latest))

    def last_cycle(self) -> CycleRow | None:
        """Give the latest cycle, None before the first."""
        rows = self._rows(
            sa.select(tables.cycles).order_by(tables.cycles.c.sequence.desc()).limit(1)
        )
        if not rows:
            return None
        values = dict(rows[0]._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
        values.pop("sequence")
        values["started_at"] = as_utc(values["started_at"])
        values["finished_at"] = as_utc(values["finished_at"])
        return CycleRow(**values)

    def audit(self) -> tuple[AuditEntry, ...]:
        """Give the append-only record in order."""
        return tuple(
            audit_entry(row)
            for row in self._rows(sa.select(tables.audit).order_by(tables.audit.c.sequence))
        )

    def verify_audit(self) -> tuple[str, ...]:
        """Give every break of the audit chain; nothing when it is intact."""
        counted = self._rows(sa.select(sa.func.count()).select_from(tables.decisions))
        return chain_problems(self.audit(), int(counted[0][0]))

    def counts(self) -> dict[str, int]:
        """Give the number of rows per table."""
        names = ("samples", *sorted(tables.metadata.tables))
        query = " UNION ALL ".join(
            f"SELECT '{name}' AS name, count(*) AS rows FROM {name}"  # noqa: S608 - our own names
            for name in names
        )
        return {row.name: int(row.rows) for row in self._rows(sa.text(query))}


def _state(
    recommendation: Recommendation, decision: str | None, *, now: datetime, newest: str | None
) -> str:
    if decision in (Decision.REJECTED, Decision.WRITTEN):
        return str(decision)
    if now >= recommendation.expires_at:
        return "expired"
    if decision is not None:
        return str(decision)
    return "proposed" if recommendation.plan_id == newest else "superseded"
