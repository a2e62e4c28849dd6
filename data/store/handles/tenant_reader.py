"""The store for an owner: the rows of their own jobs, and rows that name no person.

Every question goes through one gate, which puts in place of each table the rows of it that the
owner may see. A table that is not listed here is empty to them, so a new one is closed until
somebody opens it. What is kept as one document for everybody (plan, memory outlook) is cut down.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from data.facts.fleet import Gpu, SourceReport
from data.facts.jobs import OwnNames
from data.facts.quotas import Quota, quotas_of_jobs
from data.records.plans import Configuration, JobPlan, Plan
from data.records.submissions import Submission
from data.store.engine import tables
from data.store.facts.job_sql import FIELDS
from data.store.handles.cached_reader import CachedReader

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from data.store.facts.energy_parts import Floats

_IDS = "owned_jobs"
_NOBODY = "FALSE"
_OF_JOBS = f"job_id IN (SELECT job_id FROM {_IDS})"  # noqa: S608 - our own names
_OF_LABELS = (
    f"label_id IN (SELECT job_id FROM {_IDS}) "  # noqa: S608
    "OR label_id IN (SELECT label_id FROM allocations)"
)
_OF_FINDINGS = "number IN (SELECT number FROM findings)"
_OF_ADVICE = "digest IN (SELECT digest FROM recommendations)"
_OWNER_CONDITIONS: dict[str, str] = {
    **dict.fromkeys(("samples", "allocations", "five_minute", "hourly"), _OF_JOBS),
    # A replica without a pod is nobody's; the holders that are named before are the owner's alone.
    "serving_slots": f"label_id <> '' AND ({_OF_LABELS})",
    "job_progress": _OF_LABELS,
    **dict.fromkeys(("jobs", "forecasts", "workload_forecasts"), _OF_JOBS),
    "findings": f"target IN (SELECT job_id FROM {_IDS})",  # noqa: S608
    "recommendations": "finding IN (SELECT number FROM findings)",
    "finding_events": _OF_FINDINGS,
    **dict.fromkeys(("decisions", "commands", "journal", "audit"), _OF_ADVICE),
    "leases": "command_id IN (SELECT command_id FROM commands)",
}
"""Conditions for the owner's rows of a table; one may name the tables before it, cut down."""
OPEN = frozenset({"batches", "cycles", "retained"})
"""Tables that are counted and dated, and name no job. What a batch's report says is cut down."""
CLOSED = frozenset(tables.metadata.tables) - OPEN - set(_OWNER_CONDITIONS) | {
    "dirty_hours",
    "schema_version",
}
"""Tables of which an owner sees nothing."""
_LIMITS = tuple((_OWNER_CONDITIONS | dict.fromkeys(sorted(CLOSED), _NOBODY)).items())
_LIST = f"SELECT unnest(CAST(:{_IDS} AS VARCHAR[])) AS job_id"
_OWNED_TABLES = ", ".join(
    f"{name} AS (SELECT * FROM {name} WHERE {which})"  # noqa: S608
    for name, which in _LIMITS
)
_GATE = f"WITH {_IDS} AS ({_LIST}), {_OWNED_TABLES}"
_WITH_CLAUSE = re.compile(r"\s*WITH\b")
_OWNED = f"""
SELECT job_id FROM jobs
WHERE {FIELDS["owner"]} IN (SELECT unnest(CAST(:owners AS VARCHAR[])))
    OR {FIELDS["user"]} IN (SELECT unnest(CAST(:users AS VARCHAR[])))
"""  # noqa: S608
_OTHER_JOB = "another job"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unlisted:
    """The substitute for a job of others where a configuration names it."""

    job_ids: frozenset[str]

    def of(self, configuration: Configuration) -> Configuration:
        visible = not configuration.shared_with or configuration.shared_with in self.job_ids
        return configuration if visible else replace(configuration, shared_with=_OTHER_JOB)

    def names(self, jobs: Iterable[str]) -> tuple[str, ...]:
        return tuple(job if job in self.job_ids else _OTHER_JOB for job in jobs)

    def text(self, text: str, jobs: Iterable[str]) -> str:
        """Return a text without the names of those of the jobs that are of others."""
        for job in sorted({*jobs} - self.job_ids, key=len, reverse=True):
            text = text.replace(job, _OTHER_JOB)
        return text


class OwnedReader(CachedReader):
    """Reads as `fleet` does, of the jobs that go by these names alone."""

    def __init__(self, fleet: CachedReader, names: OwnNames) -> None:
        super().__init__(fleet._engine, fleet._commits)  # noqa: SLF001 - of the same class
        self._fleet = fleet
        self._names = names

    def owned_jobs(self) -> frozenset[str]:
        """Return the ids of the owner's jobs."""

        def ask() -> frozenset[str]:
            values = {
                "owners": sorted(self._names.owners),
                "users": sorted(self._names.users),
            }
            rows = self._fleet._rows(sa.text(_OWNED).bindparams(**values))  # noqa: SLF001
            return frozenset(row.job_id for row in rows)

        return self._fleet.remember(("owned jobs", self._names), ask)

    def _table(self, query: str, **parameters: Any) -> pa.Table:
        values = parameters | {_IDS: sorted(self.owned_jobs())}
        return super()._table(_through_gate(query), **values)

    def _rows(self, statement: sa.Executable) -> list[Any]:
        ids = sorted(self.owned_jobs())
        if isinstance(statement, sa.TextClause):
            values = statement._bindparams.values()  # noqa: SLF001 - it has no public name
            cut: Any = sa.text(_through_gate(statement.text)).bindparams(*values, **{_IDS: ids})
        elif isinstance(statement, sa.SelectBase):
            listed = sa.text(_LIST).bindparams(**{_IDS: ids}).columns(sa.column("job_id"))
            parts = [
                sa.text(f"SELECT * FROM {name} WHERE {which}").columns().cte(name)  # noqa: S608
                for name, which in _LIMITS
            ]
            cut = statement.add_cte(listed.cte(_IDS), *parts)
        else:
            raise TypeError(f"cannot cut {type(statement).__name__} down to an owner's rows")
        return super()._rows(cut)

    def version(self, *, decisions: bool = False, record: bool = False) -> tuple[int | None, ...]:
        """Return the version of the whole store."""
        return self._fleet.version(decisions=decisions, record=record)

    def latest_sample_at(self, *, until: datetime | None = None) -> datetime | None:
        """Return the time of the newest sample of the fleet: what is shown counts from there."""
        return self._fleet.latest_sample_at(until=until)

    def job_holdings(
        self, job_ids: tuple[str, ...], *, start: datetime, end: datetime
    ) -> pd.DataFrame:
        """Return the holdings of the owner's jobs on boards that others may have held as well."""
        mine = tuple(sorted(self.owned_jobs().intersection(job_ids)))
        return self._fleet.job_holdings(mine, start=start, end=end)

    def service(
        self, job_id: str, nameless: str, *, start: datetime, end: datetime
    ) -> pd.DataFrame:
        """Return the traffic of an owner's service, by pods that no scheduler told of as well."""
        if job_id not in self.owned_jobs():
            return super().service(job_id, nameless, start=start, end=end)
        return self._fleet.service(job_id, nameless, start=start, end=end)

    def served_tokens(self, *, start: datetime, end: datetime) -> pd.DataFrame:
        """Return the tokens of the owner's services, of those pods as well."""
        tokens = self._fleet.served_tokens(start=start, end=end)
        return tokens[tokens["job_id"].isin(self.owned_jobs())].reset_index(drop=True)

    def gpus(self, **window: datetime) -> tuple[Gpu, ...]:
        """Return the last GPUs of the owner's jobs; a board that went to others is left out."""
        ids = self.owned_jobs()
        return tuple(
            replace(gpu, job_id=first, co_holders=tuple(others))
            for gpu in self._fleet.gpus(**window)
            if ids.intersection(gpu.holders)
            for first, *others in (
                sorted(
                    (name if name in ids else _OTHER_JOB for name in gpu.holders),
                    key=lambda name: (name == _OTHER_JOB, name),
                ),
            )
        )

    def quotas(self) -> tuple[Quota, ...]:
        """Return the limits of the queues that the owner's jobs were sent to."""
        return quotas_of_jobs(self._fleet.quotas(), self.jobs())

    def board_xids(self, *, since: datetime) -> pd.DataFrame:
        """Return the XID codes of the boards that the owner's jobs hold."""
        boards = {gpu.gpu_uuid for gpu in self.gpus()}
        frame = self._fleet.board_xids(since=since)
        return frame[frame["gpu_uuid"].isin(boards)].reset_index(drop=True)

    def source_reports(self) -> tuple[SourceReport, ...]:
        """Return the outcome of the sources, without the texts, which may name any job."""
        return tuple(
            replace(report, reason="", warnings=(), dropped=())
            for report in self._fleet.source_reports()
        )

    def boards_since(self, *, start: datetime, end: datetime) -> Floats:
        """Return none: when no job of the owner holds a board, nothing of theirs is unobserved."""
        import numpy as np

        return np.zeros(0)

    def submissions(self) -> tuple[Submission, ...]:
        """Return the submissions of the owner's jobs, the latest first."""
        ids = self.owned_jobs()
        return tuple(
            submission
            for submission in self._fleet.submissions()
            if submission.attempts and all(attempt.job_id in ids for attempt in submission.attempts)
        )

    def _outlook(self, table: sa.Table, kind: Any) -> Any:
        """Return the part of a cycle's document that is about the owner's jobs."""
        outlook, ids = self._fleet._outlook(table, kind), self.owned_jobs()  # noqa: SLF001
        return None if outlook is None else tuple(entry for entry in outlook if entry.job_id in ids)

    def plan(self, plan_id: str, *, job_id: str = "") -> Plan | None:
        """Return the owner's jobs in a plan; its cost and bounds stay the fleet's."""
        plan, ids = self._fleet.plan(plan_id, job_id=job_id), self.owned_jobs()
        if plan is None:
            return None
        visible = _Unlisted(job_ids=ids)
        return replace(
            plan,
            jobs=tuple(_visible(job, visible) for job in plan.jobs if job.job_id in ids),
            nodes=(),
            tenants=(),
            violations=(),
            prices=(),
            unread_jobs=0,
            unread_gpus=0,
        )


def _visible(job: JobPlan, visible: _Unlisted) -> JobPlan:
    return replace(
        job,
        now=visible.of(job.now),
        steps=tuple(map(visible.of, job.steps)),
        shares_with=visible.names(job.shares_with),
        idle=job.idle and replace(job.idle, reason=visible.text(job.idle.reason, job.shares_with)),
    )


def _through_gate(query: str) -> str:
    """Return a query that sees the owner's rows in place of the tables."""
    match = _WITH_CLAUSE.match(query)
    return f"{_GATE}, {query[match.end() :]}" if match else f"{_GATE} {query}"
