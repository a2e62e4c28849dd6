"""Reader of the store: the facts, and the plans and decisions about them."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import sqlalchemy as sa

from data.base.errors import NotKnownError
from data.base.rows import row_of
from data.facts.identifiers import digest_of_text
from data.records.findings import number_of, reference
from data.records.forecasts import DemandForecast, ForecastSkipped, GroupForecast
from data.records.lifecycle import ACTIVE_STATES, State, shown_state
from data.records.memory import MemoryFinding
from data.records.plans import Plan
from data.records.recommendations import Recommendation
from data.records.serving import ServiceOutlook
from data.records.slow_work import SlowWork
from data.store.engine import tables
from data.store.engine.dialects import as_utc
from data.store.engine.disk_space import free_mib
from data.store.engine.record_json import from_json
from data.store.facts.energy_parts import EnergyReader
from data.store.facts.page_reader import PageReader, forecast_of, newest_cycle
from data.store.facts.traced_reader import TracedReader
from data.store.record.finding_log import MIN_PREFIX, FindingReader
from data.store.record.record_reader import RecordReader
from data.store.record.submissions import SubmissionReader
from data.store.record.tokens import TokenReader
from data.store.results.forecasts import WorkloadReader
from data.store.results.plan_json import plan_from_json
from data.store.serving.service_reader import ServiceReader

Foreseen = TypeVar("Foreseen")
_FRAMES = ("samples", "allocations", "five_minute", "hourly")


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

    `state` is a word of `lifecycle.State`; the rest is of the last decision that a person took.
    `finding` is the number of what it is a revision of.
    """

    recommendation: Recommendation
    state: str
    decided_by: str
    decided_at: datetime | None
    comment: str
    finding: int

    @property
    def reference(self) -> str:
        """The name of its finding for people: TT-12."""
        return reference(self.finding)

    def meant(self) -> tuple[bool, datetime]:
        """Order the revisions of a finding; people mean the last: one under way, or the newest."""
        return self.state in ACTIVE_STATES, self.recommendation.created_at


def _recommendation(text: str) -> Recommendation:
    return from_json(Recommendation, text).as_kept(digest_of_text(text))


def unknown_recommendation(id_or_digest: str, count: int = 0) -> NotKnownError:
    """Return the answer to an id that names none, or `count` of them."""
    what = f"{count} recommendations" if count else "no recommendation"
    return NotKnownError(
        f"{what} with the id {id_or_digest!r}", "`trimtab findings list` shows the ids."
    )


class StoreReader(
    RecordReader,
    FindingReader,
    TokenReader,
    SubmissionReader,
    EnergyReader,
    PageReader,
    ServiceReader,
    WorkloadReader,
    TracedReader,
):
    """Everything that can be read; nothing here writes."""

    def _latest_plan_id(self) -> str | None:
        rows = self._rows(
            sa.select(tables.cycles.c.plan_id).order_by(tables.cycles.c.sequence.desc()).limit(1)
        )
        return rows[0].plan_id if rows else None

    def latest_plan(self, *, job_id: str = "") -> Plan | None:
        """Return the plan of the latest cycle, of one job alone where that is named."""
        plan_id = self._latest_plan_id()
        return None if plan_id is None else self.plan(plan_id, job_id=job_id)

    def plan(self, plan_id: str, *, job_id: str = "") -> Plan | None:
        """Return one plan, of one job alone where that is named; None when it is not kept."""
        rows = self._rows(sa.select(tables.plans.c.record).where(tables.plans.c.plan_id == plan_id))
        return plan_from_json(rows[0].record, job_id=job_id) if rows else None

    def forecasts(self, plan_id: str | None = None) -> tuple[DemandForecast | ForecastSkipped, ...]:
        """Return the forecasts behind a plan, by default the latest."""
        selected = plan_id or self._latest_plan_id()
        rows = self._rows(
            sa.select(tables.forecasts.c.skipped, tables.forecasts.c.record)
            .join(tables.cycles, tables.cycles.c.cycle_id == tables.forecasts.c.cycle_id)
            .where(tables.cycles.c.plan_id == (selected or ""))
            .order_by(tables.forecasts.c.position)
        )
        return tuple(map(forecast_of, rows))

    def group_forecasts(self) -> tuple[GroupForecast, ...]:
        """Return the latest cycle's forecasts of fleet, namespaces, GPU models and racks."""
        groups = tables.group_forecasts.c
        newest = sa.select(groups.record).where(groups.cycle_id == newest_cycle())
        return self._records(GroupForecast, newest.order_by(groups.position))

    def memory_outlook(self) -> tuple[MemoryFinding, ...] | None:
        """Return the latest cycle's forecast of the running jobs' memory, None if it did none.

        As `watch_memory` orders it: the likeliest to run out first, then the largest room.
        """
        return self._outlook(tables.memory_outlooks, tuple[MemoryFinding, ...])

    def serving_outlook(self) -> tuple[ServiceOutlook, ...]:
        """Return the latest cycle's forecasts of inference services, () where there are none."""
        return self._outlook(tables.serving_outlooks, tuple[ServiceOutlook, ...]) or ()

    def slow_work(self) -> tuple[SlowWork, ...]:
        """Return the causes by which jobs are slow, or are not, in the latest cycle, by job."""
        return self._outlook(tables.slow_work, tuple[SlowWork, ...]) or ()

    def _outlook(self, table: sa.Table, kind: type[Foreseen]) -> Foreseen | None:
        newest = sa.select(table.c.record).where(table.c.cycle_id == newest_cycle())
        return next(iter(self._records(kind, newest)), None)

    def recommendations(self, *, now: datetime) -> tuple[StoredRecommendation, ...]:
        """Return all, the newest plan first, then by central cost saving, largest first.

        In each plan what keeps jobs from running out of memory comes before, the soonest first.
        """
        newest = self._latest_plan_id()
        rows = self._stored(sa.select(tables.recommendations), now)
        return tuple(
            sorted(
                rows,
                key=lambda recommendation: (
                    recommendation.recommendation.plan_id != newest,
                    -recommendation.recommendation.created_at.timestamp(),
                    *recommendation.recommendation.urgency,
                    -recommendation.recommendation.savings.money,
                    recommendation.recommendation.job_id,
                ),
            )
        )

    def recommendation(self, id_or_digest: str, *, now: datetime) -> StoredRecommendation:
        """Return the one whose digest starts so, or the revision of a finding that counts (TT-12).

        Errors: NotKnownError when none or several do.
        """
        number = number_of(id_or_digest)
        if number:
            of_it = sa.select(tables.recommendations).where(
                tables.recommendations.c.finding == number
            )
            revisions = self._stored(of_it, now)
            if not revisions:
                raise unknown_recommendation(reference(number))
            # The one under way, else the newest.
            return max(revisions, key=StoredRecommendation.meant)
        prefix = id_or_digest.strip().lower()
        if len(prefix) < MIN_PREFIX:
            raise NotKnownError(
                f"{id_or_digest!r} is too short to name a recommendation",
                f"Give at least {MIN_PREFIX} characters of its id.",
            )
        column = tables.recommendations.c.digest
        matches = self._stored(
            sa.select(tables.recommendations).where(column.startswith(prefix, autoescape=True)), now
        )
        if len(matches) != 1:
            raise unknown_recommendation(id_or_digest, len(matches))
        return matches[0]

    def kept_recommendation(self, digest: str) -> Recommendation:
        """Return the one of a whole digest alone. Errors: NotKnownError when it is not kept."""
        advice = tables.recommendations.c
        rows = self._rows(sa.select(advice.record).where(advice.digest == digest))
        if not rows:
            raise unknown_recommendation(digest)
        return _recommendation(rows[0].record)

    def recommendations_of(
        self, digests: Collection[str], *, now: datetime
    ) -> dict[str, StoredRecommendation]:
        """Return those of these digests, by digest, all by one query of the store.

        Errors: NotKnownError when one is not kept.
        """
        advice = tables.recommendations
        stored = self._stored(sa.select(advice).where(advice.c.digest.in_(digests)), now)
        by_digest = {entry.recommendation.digest: entry for entry in stored}
        for digest in digests:
            if digest not in by_digest:
                raise unknown_recommendation(digest)
        return by_digest

    def current_recommendations(self, *, now: datetime) -> tuple[StoredRecommendation, ...]:
        """Return those of the newest plan, and all with a decision or an event."""
        of_one = (table for table in tables.COVERED if "digest" in table.c)
        mentions = sa.union(*(sa.select(table.c.digest) for table in of_one))
        advice = tables.recommendations
        query = sa.select(advice).where(
            (advice.c.plan_id == self._latest_plan_id()) | advice.c.digest.in_(mentions)
        )
        return tuple(self._stored(query, now))

    def spoken_of_since(self, at: datetime, *, now: datetime) -> tuple[StoredRecommendation, ...]:
        """Return the recommendations decided on, or worked on, after a time."""
        decisions = tables.accounted(tables.decisions).c
        journal = tables.accounted(tables.journal).c
        digests = sa.union(
            sa.select(decisions.digest).where(decisions.decided_at > at),
            sa.select(journal.digest).where(journal.written_at > at),
        )
        advice = tables.recommendations
        return tuple(self._stored(sa.select(advice).where(advice.c.digest.in_(digests)), now))

    def proposed_again(
        self, old: StoredRecommendation, *, now: datetime
    ) -> tuple[StoredRecommendation, ...]:
        """Return the recommendations of the newest plan that propose the same change."""
        advice = tables.recommendations
        newest = sa.select(advice).where(
            advice.c.plan_id == self._latest_plan_id(), advice.c.finding == old.finding
        )
        rows = self._stored(newest, now)
        return tuple(
            recommendation
            for recommendation in rows
            if recommendation.recommendation.is_like(old.recommendation)
        )

    def _stored(self, statement: sa.Select[Any], now: datetime) -> list[StoredRecommendation]:
        advice, decisions = tables.recommendations.c, tables.accounted(tables.decisions)
        digests = statement.with_only_columns(advice.digest)
        of_these = sa.select(decisions).where(decisions.c.digest.in_(digests))
        decided = {row.digest: row for row in self._rows(of_these.order_by(decisions.c.sequence))}
        states, newest = self.states(digests), self._latest_plan_id()
        numbers = statement.with_only_columns(advice.finding)
        last = {event.number: event for event in self.finding_events(among=numbers)}
        snoozed = {number: event.digest for number, event in last.items() if event.snoozes(now)}
        stored = []
        for row in self._rows(statement):
            recommendation = _recommendation(row.record)
            decision = decided.get(row.digest)
            stored.append(
                StoredRecommendation(
                    recommendation=recommendation,
                    state=str(
                        shown_state(
                            states.get(row.digest, State.PROPOSED),
                            expired=now >= recommendation.expires_at,
                            superseded=recommendation.plan_id != newest,
                            snoozed=row.finding in snoozed
                            and (row.plan_id == newest or row.digest == snoozed[row.finding]),
                        )
                    ),
                    decided_by=decision.decided_by if decision else "",
                    decided_at=as_utc(decision.decided_at) if decision else None,
                    comment=decision.remark if decision else "",
                    finding=row.finding,
                )
            )
        return stored

    def last_cycle(self) -> CycleRow | None:
        """Return the latest cycle, None before the first."""
        rows = self._rows(
            sa.select(tables.cycles).order_by(tables.cycles.c.sequence.desc()).limit(1)
        )
        if not rows:
            return None
        times = {name: as_utc(getattr(rows[0], name)) for name in ("started_at", "finished_at")}
        return row_of(CycleRow, rows[0], **times)

    def free_mib(self) -> float | None:
        """Return the free space of the store's disk, MiB; None where a database server keeps it."""
        return free_mib(self._engine)

    def counts(self) -> dict[str, int]:
        """Return the number of rows per table."""
        names = (*_FRAMES, *sorted(tables.metadata.tables))
        query = " UNION ALL ".join(
            f"SELECT '{name}' AS name, count(*) AS rows FROM {name}"  # noqa: S608 - our own names
            for name in names
        )
        return {row.name: int(row.rows) for row in self._rows(sa.text(query))}
