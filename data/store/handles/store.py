"""Writing the store: one writer at a time, every write one transaction, repeats harmless.

Facts say what happened and are kept for long; a forecast is made anew every cycle and is large.
What a person decided on stays whole: its recommendation and the plan behind it.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

import sqlalchemy as sa

from data.base.errors import NoTextError, NotKnownError, StoreError, scrub
from data.base.extras import require_extra
from data.facts.collected import Collected
from data.records.commands import AuditEntry, Person
from data.records.findings import FindingEvent
from data.records.forecasts import DemandForecast, ForecastSkipped, GroupForecast, WorkloadForecast
from data.records.lifecycle import LifecycleEvent
from data.records.memory import MemoryFinding
from data.records.plans import Plan
from data.records.recommendations import Decision, Recommendation
from data.records.serving import ServiceOutlook
from data.records.slow_work import SlowWork
from data.records.submissions import MeasuredPeak, Submission
from data.settings.all_settings import RetentionSettings
from data.settings.store import is_postgres_url, store_path
from data.store.engine import tables
from data.store.engine.bulk import insert_records
from data.store.engine.dialects import Lock, drop_temporary, hold, is_postgres, next_sequence
from data.store.engine.duckdb_engine import open_engine
from data.store.engine.migrate import migrate, schema_version
from data.store.engine.process_locks import SoleHolder
from data.store.engine.record_json import to_json
from data.store.engine.served_queries import answer_query
from data.store.facts.fact_writer import SampleCounts, keep_collected
from data.store.facts.slot_tables import keep_rows, roll_up_boards
from data.store.handles.cached_reader import CachedReader
from data.store.handles.reader import StoreReader
from data.store.record.commands import Commands, require_may_follow, void_leases
from data.store.record.finding_log import FindingLog, append_event, numbers_of
from data.store.record.last_write import Head
from data.store.record.ledger import append_entry, append_row
from data.store.record.outbox import Outbox, release_claims
from data.store.record.report_log import ReportLog
from data.store.record.submissions import write_measured_peak, write_submission
from data.store.record.tokens import SignIns, Tokens
from data.store.results.forecasts import insert_forecasts, keep_workloads
from data.store.results.plan_json import plan_to_json
from data.store.rollups.rollup import forget, retained_since

FORECAST_HOURS = 6
"""Superseded forecasts are some 11 kB a job and cycle: of a thousand jobs a gigabyte a day."""
PLAN_HOURS = 24
_UNDECIDED_HOURS = 7 * 24
"""A week, so that whoever was away on holiday still finds by what a finding was supported."""
_DECIDED_DIGESTS = sa.union(
    sa.select(tables.decisions.c.digest), sa.select(tables.finding_events.c.digest)
)


def forget_plans(connection: sa.Connection, now: datetime) -> dict[str, int]:
    """Delete superseded forecasts, plans and undecided recommendations; give the rows by table.

    The newest cycle keeps all of its own, however old it is.
    """

    def old(hours: float) -> sa.Select[tuple[str]]:
        newest = sa.select(sa.func.max(tables.cycles.c.sequence)).scalar_subquery()
        return sa.select(tables.cycles.c.cycle_id).where(
            tables.cycles.c.started_at < now - timedelta(hours=hours),
            tables.cycles.c.sequence < newest,
        )

    forecasts, groups, memory, serving, slow, plans, advice = (
        tables.forecasts,
        tables.group_forecasts,
        tables.memory_outlooks,
        tables.serving_outlooks,
        tables.slow_work,
        tables.plans,
        tables.recommendations,
    )
    kept_plans = sa.select(advice.c.plan_id).where(advice.c.digest.in_(_DECIDED_DIGESTS))
    gone = (
        (forecasts, forecasts.c.cycle_id.in_(old(FORECAST_HOURS))),
        (groups, groups.c.cycle_id.in_(old(FORECAST_HOURS))),
        (memory, memory.c.cycle_id.in_(old(FORECAST_HOURS))),
        (serving, serving.c.cycle_id.in_(old(FORECAST_HOURS))),
        (slow, slow.c.cycle_id.in_(old(FORECAST_HOURS))),
        (
            plans,
            plans.c.cycle_id.in_(old(PLAN_HOURS)) & plans.c.plan_id.not_in(kept_plans),
        ),
        (
            advice,
            advice.c.cycle_id.in_(old(_UNDECIDED_HOURS)) & advice.c.digest.not_in(_DECIDED_DIGESTS),
        ),
    )
    return {table.name: _delete(connection, table, which) for table, which in gone}


def _delete(connection: sa.Connection, table: sa.Table, which: sa.ColumnElement[bool]) -> int:
    """Delete and count; counted beforehand, since DuckDB reports -1 for some statements."""
    counted = sa.select(sa.func.count()).select_from(table).where(which)
    rows = int(connection.execute(counted).scalar_one())
    if rows:
        connection.execute(table.delete().where(which))
    return rows


Progress = Callable[[int, int], None]


def open_store(url: str, *, create: bool = True) -> "Store":
    """Return the store at duckdb:///PATH or postgresql+psycopg://…, at the newest schema.

    Errors: StoreBusyError naming the process that holds it, SchemaTooNewError, StoreError.
    """
    if is_postgres_url(url):
        return Store(_shared_engine(url, create=create))
    path = store_path(url)
    engine = open_engine(path, create=create)
    head = Head(path, engine)
    try:
        head.make_log()
        migrate(engine)
        head.find_loss()
        with engine.begin() as connection:
            # Samples of a store made before roll-ups are marked by the migration.
            roll_up_boards(connection)
            # Who opens the file is its only process: whoever held a lease or claim before is dead.
            void_leases(connection)
            release_claims(connection)
    except BaseException:
        engine.dispose()
        raise
    return Store(engine, head)


def _shared_engine(url: str, *, create: bool) -> sa.Engine:
    """Return an engine on a database that other processes use as well; their leases run out."""
    require_extra("postgres", "the store is a PostgreSQL database")
    from data.store.engine.postgres_engine import open_postgres

    engine = open_postgres(url)
    try:
        if not create:
            _require_store(engine)
        migrate(engine)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _require_store(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        version = schema_version(connection)
    if not version:
        raise StoreError(
            f"there is no store in the database {engine.url.database}",
            "Run `trimtab store migrate`, or `trimtab cycle`, first.",
        )


class Store:
    """Keeps facts, plans and decisions. Close it, or use it in a `with` block."""

    def __init__(self, engine: sa.Engine, head: Head | None = None) -> None:
        self._engine = engine
        self._head = head
        self._begin = engine.begin if head is None else head.transaction
        # The processes of a PostgreSQL store wait for one another by `bridge.Lock`.
        self._writing = nullcontext() if is_postgres(engine) else threading.Lock()
        self._joined = threading.local()
        self.reader = StoreReader(engine)
        self.commands = Commands(self._transaction)
        self.outbox = Outbox(self._transaction)
        self.report_log = ReportLog(self._transaction)
        self.finding_log = FindingLog(self._transaction)
        self.tokens = Tokens(self._transaction)
        self.sign_ins = SignIns(self._transaction)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def commits(self) -> int | None:
        """The number of writes of this process, None where others write too."""
        return None if self._head is None else self._head.commits

    def reader_for_pages(self) -> CachedReader:
        """Return a reader that answers again what it answered before, until the data change."""
        head = self._head
        return CachedReader(self._engine, None if head is None else lambda: head.commits)

    def answer_query(self, form: str, text: str, values: Sequence[object]) -> bytes:
        """Return the answer to a query of another process. Errors: StoreError."""
        return answer_query(self._engine, form, text, values)

    def close(self) -> None:
        """Release the file."""
        with self._writing:
            self._engine.dispose()

    @property
    def is_shared(self) -> bool:
        """Return whether several processes can use the store at once."""
        return is_postgres(self._engine)

    @property
    def file(self) -> Path | None:
        """The DuckDB file, None where a database server keeps the store."""
        return None if self.is_shared else Path(self._engine.url.database or "")

    @property
    def losses(self) -> tuple[str, ...]:
        """Acknowledged writes that were found missing on opening, and not accepted yet."""
        return () if self._head is None else self._head.losses

    def accept_losses(self) -> None:
        """Say no more of the losses found so far; the record keeps them. Errors: StoreError."""
        if self._head is not None:
            with self._writing:
                self._head.accept_losses()

    @property
    def schema(self) -> int:
        """The number of the newest migration that ran on it."""
        with self._engine.connect() as connection:
            return schema_version(connection)

    def sole(self, part: str) -> SoleHolder:
        """Return claim to be the only process that does a part of the work on a shared store."""
        return SoleHolder(self._engine, part)

    @contextmanager
    def _transaction(self, *locks: Lock) -> Iterator[sa.Connection]:
        """Yield a connection whose writes are kept together or not at all.

        One writer at a time of what the locks name; on DuckDB of everything.
        """
        outer: sa.Connection | None = getattr(self._joined, "connection", None)
        if outer is not None:
            hold(outer, *locks)
            yield outer
            return
        try:
            with self._writing, self._begin() as connection:
                hold(connection, *locks)
                yield connection
                drop_temporary(connection)
        except UnicodeEncodeError as error:
            raise NoTextError(
                f"nothing was kept: the text {scrub(ascii(error.object), limit=80)} is no Unicode",
                "Mend the source that sent it; such text cannot be stored or shown.",
            ) from error

    @contextmanager
    def together(self) -> Iterator[None]:
        """Keep all that this thread writes into the record within the block, or nothing of it.

        The store's readers see it afterwards.
        """
        with self._transaction(Lock.RECORD) as connection:
            self._joined.connection = connection
            try:
                yield
            finally:
                del self._joined.connection

    def keep(self, *collected: Collected, progress: Progress | None = None) -> int:
        """Keep the facts of one or more sources and roll them up; give the number of new samples.

        All or nothing. A batch kept before changes nothing; samples, jobs, nodes, allocations and
        XID codes merge with what is kept in whatever order they come. Samples older than their
        retention are refused and counted in the report as `older-than-retention`.
        """
        return self.keep_pieces(collected, progress=progress).new

    def keep_pieces(
        self, pieces: Iterable[Collected], *, progress: Progress | None = None
    ) -> SampleCounts:
        """Keep facts as `keep` does, piece by piece in one transaction.

        Each report counts what was refused of the pieces up to its own.
        """
        new = late = 0
        with self._transaction(Lock.FACTS) as connection:
            for piece in pieces:
                rows, refused = keep_collected(connection, piece, late_before=late)
                new, late = new + rows, late + refused
            roll_up_boards(connection, progress=progress)
            return SampleCounts(new, late, retained_since(connection, "samples"))

    def keep_history(self, *, slot_seconds: int, progress: Progress | None = None) -> None:
        """Keep the history of past slots that a cycle reads, as far as it is not kept yet."""
        with self._transaction(Lock.FACTS) as connection:
            keep_rows(connection, slot_seconds=slot_seconds, progress=progress)

    def forget(self, retention: RetentionSettings, now: datetime) -> dict[str, int]:
        """Delete what is beyond its retention; give the rows by table."""
        with self._transaction(Lock.FACTS, Lock.RECORD) as connection:
            return forget(connection, retention, now) | forget_plans(connection, now)

    def keep_cycle(
        self,
        *,
        cycle_id: str,
        started_at: datetime,
        finished_at: datetime,
        forecasts: Sequence[DemandForecast | ForecastSkipped],
        group_forecasts: Sequence[GroupForecast] = (),
        workloads: Sequence[WorkloadForecast] | None = None,
        memory: Sequence[MemoryFinding] | None = None,
        serving: Sequence[ServiceOutlook] = (),
        slow_work: Sequence[SlowWork] = (),
        plan: Plan,
        recommendations: Sequence[Recommendation],
    ) -> None:
        """Keep what one cycle made, all or nothing; a cycle kept before changes nothing.

        `workloads` take the place of those before, None leaves them. `memory` is what is foreseen
        of the running jobs' memory, None where nobody looked; `serving` of inference services;
        `slow_work` is why jobs are slow.
        """
        skipped = [isinstance(forecast, ForecastSkipped) for forecast in forecasts]
        with self._transaction(Lock.FACTS) as connection:
            query = sa.select(sa.func.count()).where(tables.cycles.c.cycle_id == cycle_id)
            if connection.execute(query).scalar_one():
                return
            numbers = numbers_of(connection, recommendations, started_at)
            connection.execute(
                tables.cycles.insert().values(
                    cycle_id=cycle_id,
                    sequence=next_sequence(connection, tables.cycles),
                    started_at=started_at,
                    finished_at=finished_at,
                    plan_id=plan.plan_id,
                    forecast_count=len(forecasts) - sum(skipped),
                    skipped_count=sum(skipped),
                    recommendation_count=len(recommendations),
                )
            )
            insert_records(
                connection,
                "plans",
                [{"plan_id": plan.plan_id, "cycle_id": cycle_id, "record": plan_to_json(plan)}],
                key=("plan_id",),
            )
            insert_forecasts(connection, cycle_id, forecasts, group_forecasts)
            if workloads is not None:
                keep_workloads(connection, workloads, started_at)
            outlooks = {
                "memory_outlooks": memory,
                "serving_outlooks": serving or None,
                "slow_work": slow_work or None,
            }
            for table, rows in outlooks.items():
                if rows is not None:
                    row: dict[str, object] = {"cycle_id": cycle_id, "record": to_json(tuple(rows))}
                    insert_records(connection, table, [row], key=("cycle_id",))
            insert_records(
                connection,
                "recommendations",
                [
                    {
                        "digest": recommendation.digest,
                        "cycle_id": cycle_id,
                        "plan_id": recommendation.plan_id,
                        "record": to_json(recommendation),
                        "finding": numbers[recommendation.digest],
                    }
                    for recommendation in recommendations
                ],
                key=("digest",),
            )

    def append_decision(
        self,
        *,
        digest: str,
        decision: Decision,
        by: str,
        at: datetime,
        comment: str,
        change_digest: str = "",
        person: Person | None = None,
        about: FindingEvent | None = None,
    ) -> AuditEntry:
        """Append a decision and the entry that covers it, and what it says `about` the finding.

        Errors: NotKnownError for an unknown digest, StalePlanError when the recommendation's state
        does not allow the decision.
        """
        with self._transaction(Lock.RECORD) as connection:
            query = sa.select(sa.func.count()).where(tables.recommendations.c.digest == digest)
            if not connection.execute(query).scalar_one():
                raise NotKnownError(
                    f"no recommendation has the digest {digest[:80]!r}",
                    "`trimtab findings list` shows the ids.",
                )
            require_may_follow(connection, digest, LifecycleEvent(decision))
            if about is not None:
                append_event(connection, about)
            return append_row(
                connection,
                tables.decisions,
                {
                    "digest": digest,
                    "decision": str(decision),
                    "decided_by": by,
                    "decided_at": at,
                    "remark": comment,
                    "change_digest": change_digest,
                    "person": to_json(person or Person(name=by)),
                },
                at=at,
                actor=person.actor if person else by,
                event=str(decision),
                digest=digest,
                detail=comment,
            )

    def append_audit(
        self, *, at: datetime, actor: str, event: str, digest: str, detail: str
    ) -> AuditEntry:
        """Append an entry that is no decision, such as a refused change."""
        with self._transaction(Lock.RECORD) as connection:
            return append_entry(
                connection, at=at, actor=actor, event=event, digest=digest, detail=detail
            )

    def keep_submission(
        self,
        submission: Submission,
        *,
        at: datetime,
        actor: str,
        event: str,
        detail: str,
        new: bool = False,
    ) -> AuditEntry:
        """Keep a submission as it is now and append what happened to it, both or neither.

        Errors: StoreError for a `new` one that is known or whose very job has not ended yet.
        """
        with self._transaction(Lock.RECORD) as connection:
            write_submission(connection, submission, new=new)
            return append_entry(
                connection,
                at=at,
                actor=actor,
                event=event,
                digest=submission.digest,
                detail=detail,
            )

    def keep_measured_peak(self, peak: MeasuredPeak) -> bool:
        """Keep what a finished job measured; a job counts once. Says whether it is new."""
        with self._transaction(Lock.RECORD) as connection:
            return write_measured_peak(connection, peak)
