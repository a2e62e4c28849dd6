"""Writing the store: one writer at a time, every write one transaction, repeats harmless."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Self

import pandas as pd
import sqlalchemy as sa

from data.collected import Collected
from data.errors import StoreError, scrub
from data.records.cluster import SourceReport
from data.records.decisions import AuditEntry, Decision, Recommendation
from data.records.forecasts import DemandForecast, ForecastSkipped, GroupForecast
from data.records.plans import Plan
from data.settings import RetentionSettings
from data.store import tables
from data.store.audit_chain import next_entry
from data.store.bulk import insert_new_rows
from data.store.engine import open_engine, store_path
from data.store.facts import keep_allocations, keep_jobs, keep_nodes, keep_samples
from data.store.migrate import migrate
from data.store.plan_json import plan_to_json
from data.store.reader import StoreReader, audit_entry
from data.store.record_json import to_json
from data.store.rollup import forget, roll_up

Progress = Callable[[int, int], None]


def open_store(url: str, *, create: bool = True) -> "Store":
    """Give the store at duckdb:///PATH, at the newest schema.

    Errors: StoreBusyError naming the process that holds it, SchemaTooNewError, StoreError.
    """
    engine = open_engine(store_path(url), create=create)
    try:
        migrate(engine)
        with engine.begin() as connection:
            # Samples of a store made before roll-ups are marked by the migration.
            roll_up(connection)
    except BaseException:
        engine.dispose()
        raise
    return Store(engine)


class Store:
    """Keeps facts, plans and decisions. Close it, or use it in a `with` block."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._writing = threading.Lock()
        self.reader = StoreReader(engine)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the file."""
        with self._writing:
            self._engine.dispose()

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        """Give a connection whose writes are kept together or not at all, one writer at a time."""
        try:
            with self._writing, self._engine.begin() as connection:
                yield connection
        except UnicodeEncodeError as error:
            raise StoreError(
                f"nothing was kept: the text {scrub(ascii(error.object), limit=80)} is no Unicode",
                "Mend the source that sent it; such text cannot be stored or shown.",
            ) from error

    def keep(self, *collected: Collected, progress: Progress | None = None) -> int:
        """Keep the facts of one or more sources and roll them up; give the number of new samples.

        All or nothing. A batch kept before changes nothing; samples, jobs, nodes and allocations
        merge with what is kept in whatever order they come. Samples older than their retention
        are refused and counted in the report as `older-than-retention`.
        """
        with self._transaction() as connection:
            rows = sum(_keep(connection, one) for one in collected)
            roll_up(connection, progress=progress)
        return rows

    def forget(self, retention: RetentionSettings, now: datetime) -> dict[str, int]:
        """Delete facts beyond their retention; give the rows deleted by resolution."""
        with self._transaction() as connection:
            return forget(connection, retention, now)

    def keep_cycle(
        self,
        *,
        cycle_id: str,
        started_at: datetime,
        finished_at: datetime,
        reports: Sequence[SourceReport],
        forecasts: Sequence[DemandForecast | ForecastSkipped],
        group_forecasts: Sequence[GroupForecast] = (),
        plan: Plan,
        recommendations: Sequence[Recommendation],
    ) -> None:
        """Keep the thoughts of one cycle, all or nothing; a cycle kept before changes nothing."""
        skipped = [isinstance(one, ForecastSkipped) for one in forecasts]
        with self._transaction() as connection:
            known = sa.select(sa.func.count()).where(tables.cycles.c.cycle_id == cycle_id)
            if connection.execute(known).scalar_one():
                return
            connection.execute(
                tables.cycles.insert().values(
                    cycle_id=cycle_id,
                    sequence=_next_sequence(connection, tables.cycles),
                    started_at=started_at,
                    finished_at=finished_at,
                    plan_id=plan.plan_id,
                    forecast_count=len(forecasts) - sum(skipped),
                    skipped_count=sum(skipped),
                    recommendation_count=len(recommendations),
                )
            )
            _insert(
                connection,
                "plans",
                [{"plan_id": plan.plan_id, "cycle_id": cycle_id, "record": plan_to_json(plan)}],
                key=("plan_id",),
            )
            _insert(
                connection,
                "forecasts",
                [
                    {
                        "cycle_id": cycle_id,
                        "job_id": one.job_id,
                        "position": position,
                        "skipped": skipped[position],
                        "record": to_json(one),
                    }
                    for position, one in enumerate(forecasts)
                ],
                key=("cycle_id", "position"),
            )
            _insert(
                connection,
                "group_forecasts",
                [
                    {"cycle_id": cycle_id, "position": position, "record": to_json(one)}
                    for position, one in enumerate(group_forecasts)
                ],
                key=("cycle_id", "position"),
            )
            _insert(
                connection,
                "recommendations",
                [
                    {
                        "digest": one.digest,
                        "cycle_id": cycle_id,
                        "plan_id": one.plan_id,
                        "record": to_json(one),
                    }
                    for one in recommendations
                ],
                key=("digest",),
            )

    def append_decision(
        self, *, digest: str, decision: Decision, by: str, at: datetime, comment: str
    ) -> AuditEntry:
        """Append a decision and its audit entry. Errors: StoreError for an unknown digest."""
        with self._transaction() as connection:
            known = sa.select(sa.func.count()).where(tables.recommendations.c.digest == digest)
            if not connection.execute(known).scalar_one():
                raise StoreError(
                    f"no recommendation has the digest {digest[:80]!r}",
                    "`trimtab recommendations list` shows the ids.",
                )
            connection.execute(
                tables.decisions.insert().values(
                    sequence=_next_sequence(connection, tables.decisions),
                    digest=digest,
                    decision=str(decision),
                    decided_by=by,
                    decided_at=at,
                    remark=comment,
                )
            )
            return _append(
                connection, at=at, actor=by, event=str(decision), digest=digest, detail=comment
            )

    def append_audit(
        self, *, at: datetime, actor: str, event: str, digest: str, detail: str
    ) -> AuditEntry:
        """Append an entry that is no decision, such as a refused change."""
        with self._transaction() as connection:
            return _append(
                connection, at=at, actor=actor, event=event, digest=digest, detail=detail
            )


def _keep(connection: sa.Connection, collected: Collected) -> int:
    known = sa.select(sa.func.count()).where(tables.batches.c.batch_id == collected.batch_id)
    if connection.execute(known).scalar_one():
        return 0
    rows, late = keep_samples(connection, collected.samples, collected.batch_id)
    keep_allocations(connection, collected.allocations)
    keep_nodes(connection, collected.nodes)
    keep_jobs(connection, collected.jobs)
    report = collected.report
    if late:
        dropped = (*report.dropped, ("older-than-retention", late))
        report = replace(report, dropped=tuple(sorted(dropped)))
    connection.execute(
        tables.batches.insert().values(
            batch_id=collected.batch_id,
            sequence=_next_sequence(connection, tables.batches),
            source=report.source,
            row_count=rows,
            report=to_json(report),
        )
    )
    return rows


def _next_sequence(connection: sa.Connection, table: sa.Table) -> int:
    highest = connection.execute(sa.select(sa.func.max(table.c.sequence))).scalar_one()
    return int(highest or 0) + 1


def _insert(
    connection: sa.Connection,
    table: str,
    rows: list[dict[str, object]],
    *,
    key: tuple[str, ...],
) -> None:
    if rows:
        insert_new_rows(connection, table, pd.DataFrame(rows), key=key)


def _append(
    connection: sa.Connection, *, at: datetime, actor: str, event: str, digest: str, detail: str
) -> AuditEntry:
    last = connection.execute(
        sa.select(tables.audit).order_by(tables.audit.c.sequence.desc()).limit(1)
    ).first()
    previous = None if last is None else audit_entry(last)
    entry = next_entry(previous, at=at, actor=actor, event=event, digest=digest, detail=detail)
    connection.execute(
        tables.audit.insert().values(
            sequence=entry.sequence,
            entry_at=entry.at,
            actor=entry.actor,
            event=entry.event,
            digest=entry.digest,
            detail=entry.detail,
            previous_hash=entry.previous_hash,
            entry_hash=entry.entry_hash,
        )
    )
    return entry
