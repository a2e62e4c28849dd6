"""Writer of facts: whatever the order and however often they come, the same rows stay.

Two readings of one device, time and holder that differ are settled value by value: the larger
number, the later text, the utilization of the better signal. Larger-wins is commutative,
associative and idempotent, so no order of arrival can show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import sqlalchemy as sa

from data.facts.collected import Collected
from data.facts.columns import (
    ACTIVITY,
    ALLOCATIONS,
    CONTRADICTIONS,
    NUMBER,
    PROGRESS,
    SAMPLES,
    SERVING,
    FrameColumns,
    check_frame,
)
from data.facts.fleet import Node
from data.facts.jobs import ENDED_STATES, Job, JobWait, Platform, WorkloadKind
from data.store.engine import tables
from data.store.engine.bulk import incoming, put_rows
from data.store.engine.dialects import count_changed, make_temporary, next_sequence
from data.store.engine.partitions import make_partitions
from data.store.engine.record_json import from_json, to_json
from data.store.facts.board_activity import ACTIVITY_KEY
from data.store.facts.board_xids import keep_xids
from data.store.facts.quotas import keep_quotas
from data.store.facts.serving_slots import SERVING_KEY
from data.store.rollups.rollup import mark_hours, mark_spans, retained_since

if TYPE_CHECKING:
    import pandas as pd

_REPLACED_FRAMES: tuple[tuple[str, str, FrameColumns, tuple[str, ...]], ...] = (
    ("serving", "serving_slots", SERVING, SERVING_KEY),
    ("activity", "board_activity", ACTIVITY, ACTIVITY_KEY),
    ("contradictions", "contradictions", CONTRADICTIONS, (*ACTIVITY_KEY, "counter")),
    ("progress", "job_progress", PROGRESS, ("reported_at", "label_id")),
)
"""Frames of a batch, with the table, the columns and the key of each; a row told again replaces."""
_SAMPLE_KEY = ("sampled_at", "gpu_uuid", "mig_instance", "job_id")
_ALLOCATION_KEY = (
    "job_id",
    "label_id",
    "node",
    "gpu_index",
    "gpu_uuid",
    "mig_instance",
    "started_at",
    "source",
)
_INCOMING = "incoming_facts"
_WAIT_RETENTION = timedelta(days=60)
"""More than the eight weeks that the number of boards to keep rests on."""


@dataclass(frozen=True, slots=True)
class SampleCounts:
    """Samples that were new, and those older than the store's retention, which were refused."""

    new: int = 0
    late: int = 0
    kept_since: datetime | None = None


def late_samples(connection: sa.Connection, samples: pd.DataFrame) -> pd.Series:
    """Return a mask of samples that are older than the retention of samples."""
    return samples["sampled_at"] < retained_since(connection, "samples")


def keep_collected(
    connection: sa.Connection, collected: Collected, *, late_before: int
) -> tuple[int, int]:
    """Keep the facts of a source; return (new samples, samples too old to be kept).

    The report counts those too old together with `late_before`, of pieces before this one.
    """
    count = sa.select(sa.func.count()).where(tables.batches.c.batch_id == collected.batch_id)
    if connection.execute(count).scalar_one():
        return 0, int(late_samples(connection, collected.samples).sum())
    rows, late = keep_samples(connection, collected.samples, collected.batch_id)
    keep_allocations(connection, collected.allocations)
    keep_nodes(connection, collected.nodes)
    keep_xids(connection, collected.xids)
    for name, table, columns, key in _REPLACED_FRAMES:
        if (frame := getattr(collected, name)).empty:
            continue
        frame = check_frame(frame, columns)
        frame = frame[frame[key[0]] >= retained_since(connection, table)]
        put_rows(connection, table, frame.drop_duplicates(list(key), keep="last"), key=key)
    keep_jobs(connection, collected.jobs)
    if not collected.serving.empty:
        _keep_kinds(connection, sorted(set(collected.serving["label_id"]) - {""}))
    report = collected.report
    if collected.quotas is not None and report.window_end is not None:
        keep_quotas(connection, report.source, collected.quotas, report.window_end)
    if late + late_before:
        dropped = (*report.dropped, ("older-than-retention", late + late_before))
        report = replace(report, dropped=tuple(sorted(dropped)))
    connection.execute(
        tables.batches.insert().values(
            batch_id=collected.batch_id,
            sequence=next_sequence(connection, tables.batches),
            source=report.source,
            row_count=rows,
            report=to_json(report),
        )
    )
    return rows, late


def _score(row: str) -> str:
    """Return SQL that orders utilizations: by signal first, unknown when there is none."""
    return (
        f"({row}.utilization_ratio + CASE {row}.utilization_signal WHEN 'sm_active' THEN 30 "
        "WHEN 'gr_engine_active' THEN 20 WHEN 'gpu_util' THEN 10 ELSE 0 END)"
    )


def keep_samples(
    connection: sa.Connection, samples: pd.DataFrame, batch_id: str
) -> tuple[int, int]:
    """Merge samples (columns SAMPLES); give (new rows, rows too old to be kept).

    Non-finite numbers become unknown. What is older than the retention of samples can no longer
    be rolled up and is refused.
    """
    import numpy as np

    frame = check_frame(samples, SAMPLES)
    late = late_samples(connection, frame)
    frame = frame[~late] if late.any() else frame
    if frame.empty:
        return 0, int(late.sum())
    numbers = [name for name, (dtype, _unit) in SAMPLES.columns.items() if dtype == NUMBER]
    frame[numbers] = frame[numbers].where(np.isfinite(frame[numbers]))
    make_partitions(connection, "samples", frame["sampled_at"])
    with incoming(connection, frame.assign(batch_id=batch_id), _INCOMING):
        source = _without_repeats(connection)
        times = {"first": frame["sampled_at"].min(), "last": frame["sampled_at"].max()}
        match = connection.execute(
            sa.text("SELECT 1 FROM samples WHERE sampled_at BETWEEN :first AND :last LIMIT 1"),
            {name: at.to_pydatetime() for name, at in times.items()},
        ).first()
        changed = 0 if match is None else _enlarge(connection, source)
        new = _insert(connection, source, may_exist=match is not None)
        if new or changed:
            mark_hours(connection, source)
    return new, int(late.sum())


def _without_repeats(connection: sa.Connection) -> str:
    """Return the relation that holds the incoming samples once per key."""
    key = ", ".join(_SAMPLE_KEY)
    repeated = connection.exec_driver_sql(
        f"SELECT 1 FROM {_INCOMING} GROUP BY {key} HAVING count(*) > 1 LIMIT 1"  # noqa: S608
    ).first()
    if repeated is None:
        return _INCOMING
    plain = ", ".join(f"max({name}) AS {name}" for name in _PLAIN)
    make_temporary(
        connection,
        "merged_facts",
        f"""
        SELECT {key}, {plain}, max(batch_id) AS batch_id,
            arg_max(utilization_ratio, score) AS utilization_ratio,
            coalesce(arg_max(utilization_signal, score), '') AS utilization_signal
        FROM (SELECT *, {_score("i")} AS score FROM {_INCOMING} AS i) AS scored GROUP BY {key}
        """,  # noqa: S608
    )
    return "merged_facts"


_PLAIN = tuple(
    name
    for name in SAMPLES.names
    if name not in _SAMPLE_KEY and not name.startswith("utilization_")
)


def _enlarge(connection: sa.Connection, source: str) -> int:
    """Settle kept samples that `source` knows otherwise; give how many changed."""
    same_key = " AND ".join(f"s.{name} = i.{name}" for name in _SAMPLE_KEY)
    larger = " OR ".join(
        [f"coalesce(i.{name} > s.{name}, i.{name} IS NOT NULL AND s.{name} IS NULL)"
         for name in _PLAIN]
    )  # fmt: skip
    better = (
        f"coalesce({_score('i')} > {_score('s')}, "
        "i.utilization_ratio IS NOT NULL AND s.utilization_ratio IS NULL)"
    )
    sets = ", ".join(f"{name} = greatest(s.{name}, i.{name})" for name in _PLAIN)
    return count_changed(
        connection,
        f"""
        UPDATE samples AS s SET {sets},
            utilization_ratio =
                CASE WHEN {better} THEN i.utilization_ratio ELSE s.utilization_ratio END,
            utilization_signal =
                CASE WHEN {better} THEN i.utilization_signal ELSE s.utilization_signal END
        FROM {source} AS i WHERE {same_key} AND ({larger} OR {better})
        """,  # noqa: S608
    )


def _insert(connection: sa.Connection, source: str, *, may_exist: bool) -> int:
    columns = ", ".join((*SAMPLES.names, "batch_id"))
    same_key = " AND ".join(f"s.{name} = i.{name}" for name in _SAMPLE_KEY)
    exists = f"EXISTS (SELECT 1 FROM samples AS s WHERE {same_key})"  # noqa: S608
    return count_changed(
        connection,
        f"INSERT INTO samples ({columns}) SELECT {columns} FROM {source} AS i"  # noqa: S608
        + (f" WHERE NOT {exists}" if may_exist else ""),
    )


def keep_allocations(connection: sa.Connection, allocations: pd.DataFrame) -> None:
    """Merge allocations (columns ALLOCATIONS): the latest end and confirmation stay.

    Of the seconds to be ready the fewest: a pod that was not ready for a while tells more later.
    """
    frame = check_frame(allocations, ALLOCATIONS)
    if frame.empty:
        return
    key = ", ".join(_ALLOCATION_KEY)
    values = (
        "max(gpu_count) AS gpu_count, max(ended_at) AS ended_at, max(seen_at) AS seen_at, "
        "min(start_seconds) AS start_seconds, max(runs) AS runs"
    )
    columns = ", ".join(ALLOCATIONS.names)
    with incoming(connection, frame, _INCOMING):
        same_incoming = " AND ".join(f"a.{name} = i.{name}" for name in _ALLOCATION_KEY)
        make_temporary(
            connection,
            "merged_allocations",
            f"""
            SELECT {key}, {values} FROM (
                SELECT {columns} FROM {_INCOMING}
                UNION ALL SELECT {columns} FROM allocations AS a
                WHERE EXISTS (SELECT 1 FROM {_INCOMING} AS i WHERE {same_incoming})
            ) AS told GROUP BY {key}
            """,  # noqa: S608
        )
    # A job that runs on is confirmed at every collection, and accounting repeats at its end what
    # its devices told before: only the time gained is made anew. A new name for a holder counts
    # from then on, without an end.
    same_key = " AND ".join(f"a.{name} = m.{name}" for name in _ALLOCATION_KEY)
    make_temporary(
        connection,
        "changed_allocations",
        f"""
        WITH known AS (
            SELECT *, coalesce(ended_at, seen_at) AS until FROM allocations
        ), compared AS (
            SELECT m.*, coalesce(m.ended_at, m.seen_at) AS until,
                (SELECT max(a.until) FROM known AS a WHERE {same_key}
                    AND a.gpu_count IS NOT DISTINCT FROM m.gpu_count) AS same_until,
                (SELECT max(a.until) FROM known AS a
                    WHERE a.job_id = m.job_id AND a.started_at = m.started_at
                    AND m.gpu_index = '' AND m.gpu_uuid = '') AS told_until,
                m.label_id NOT IN ('', m.job_id) AND NOT EXISTS (
                    SELECT 1 FROM known AS a
                    WHERE a.job_id = m.job_id AND a.label_id = m.label_id) AS renames
            FROM merged_allocations AS m
        )
        SELECT CASE WHEN coalesce(same_until, told_until) IS NULL THEN started_at
                ELSE least(same_until, told_until, until) END AS started_at,
            CASE WHEN renames THEN '9000-01-01 00:00:00+00'::TIMESTAMPTZ
                ELSE greatest(same_until, told_until, until) END AS until
        FROM compared WHERE same_until IS NULL OR same_until <> until
        """,  # noqa: S608
    )
    connection.exec_driver_sql(
        "DELETE FROM allocations USING merged_allocations AS m WHERE "  # noqa: S608
        + " AND ".join(f"allocations.{name} = m.{name}" for name in _ALLOCATION_KEY)
    )
    connection.exec_driver_sql(
        f"INSERT INTO allocations ({columns}) SELECT {columns} FROM merged_allocations"  # noqa: S608
    )
    mark_spans(connection, "changed_allocations")


def keep_nodes(connection: sa.Connection, nodes: Sequence[Node]) -> None:
    """Keep the newest description of every node and source."""
    import pandas as pd

    rows = pd.DataFrame(
        [(node.name, node.source, node.seen_at, to_json(node)) for node in nodes],
        columns=["name", "source", "seen_at", "record"],
    )
    if rows.empty:
        return
    rows = rows.sort_values(["seen_at", "record"]).drop_duplicates(["name", "source"], keep="last")
    newer = "(i.seen_at, i.record) > (t.seen_at, t.record)"
    put_rows(connection, "nodes", rows, key=("name", "source"), only=newer)


def keep_jobs(connection: sa.Connection, jobs: Sequence[Job]) -> None:
    """Keep every job once, from all that its sources say (see `merged_job`)."""
    import pandas as pd

    if not jobs:
        return
    ids = [job.job_id for job in jobs]
    stored = connection.execute(
        sa.select(tables.jobs.c.record).where(tables.jobs.c.job_id.in_(ids))
    ).all()
    merged = {job.job_id: job for job in (from_json(Job, row.record) for row in stored)}
    for job in jobs:
        before = merged.get(job.job_id)
        merged[job.job_id] = job if before is None else merged_job(before, job)
    rows = pd.DataFrame(
        [(job.job_id, job.last_seen_at, to_json(job)) for job in merged.values()],
        columns=["job_id", "last_seen_at", "record"],
    )
    put_rows(connection, "jobs", rows, key=("job_id",))


def _keep_kinds(connection: sa.Connection, labels: Sequence[str]) -> None:
    """Keep as services the jobs of unknown kind on whose pods an engine was read.

    Of a Slurm job its scheduler tells what may be done to it.
    """
    if not labels:  # engines without a pod
        return
    query = sa.text("SELECT DISTINCT job_id FROM allocations WHERE label_id IN :labels")
    query = query.bindparams(sa.bindparam("labels", labels, expanding=True))
    ids = [*labels, *(row.job_id for row in connection.execute(query))]
    columns = tables.jobs.c  # Most are services already: only what may be of unknown kind is read.
    may_be = columns.record.like(f'%"kind":"{WorkloadKind.UNKNOWN}"%')
    records = sa.select(columns.record).where(columns.job_id.in_(ids), may_be)
    jobs = [from_json(Job, row.record) for row in connection.execute(records)]
    keep_jobs(
        connection,
        [
            replace(job, kind=WorkloadKind.INFERENCE)
            for job in jobs
            if job.kind is WorkloadKind.UNKNOWN and job.platform is not Platform.SLURM
        ],
    )


def _earlier_waits(job: Job, other: Job) -> tuple[JobWait, ...]:
    """Return the waits of both reports but the job's present one, those of the last 60 days."""
    facts = [report.scheduler for report in (job, other) if report.scheduler is not None]
    waits = {wait for entry in facts for wait in entry.earlier_waits}
    if other.wait is not None:
        waits.add(other.wait)
    since = max(job.last_seen_at, other.last_seen_at) - _WAIT_RETENTION
    by_submission = {
        wait.submitted_at: wait
        for wait in sorted(waits, key=to_json)
        if wait.submitted_at != facts[0].submitted_at and wait.started_at >= since
    }
    return tuple(wait for _submitted_at, wait in sorted(by_submission.items()))


def merged_job(one: Job, other: Job) -> Job:
    """Return the job that two reports give together, in either order the same.

    A scheduler's word beats telemetry's, the later the earlier; what the winner does not say is
    taken from the other. First and last time seen are those of both. That a run ended stands,
    though telemetry may have named it a little longer, and so do waits before a requeue.
    """
    both = [job.scheduler.started_at for job in (one, other) if job.scheduler is not None]
    of_one_run = len(both) == 2 and both[0] is not None and both[0] == both[1]

    def strength(job: Job) -> tuple[bool, bool, datetime]:
        ended = of_one_run and job.scheduling.state in ENDED_STATES
        return job.scheduler is not None, ended, job.last_seen_at

    # Writing a record as JSON costs most of a merge, so only a tie asks for it.
    tied = strength(one) == strength(other)
    weak, strong = sorted((one, other), key=to_json if tied else strength)
    filled = {
        name: getattr(weak, name)
        for name in ("name", "namespace", "owner", "gpu_model", "mig_profile", "gpu_memory_mib")
        if getattr(strong, name) in ("", None)
    }
    if strong.kind is WorkloadKind.UNKNOWN:
        filled["kind"] = weak.kind
    if strong.platform is Platform.UNKNOWN:
        filled["platform"] = weak.platform
    if strong.platform is Platform.SLURM and strong.scheduler is not None:
        waits = _earlier_waits(strong, weak)
        filled["scheduler"] = replace(strong.scheduler, earlier_waits=waits)
    return replace(
        strong,
        **filled,
        first_seen_at=min(one.first_seen_at, other.first_seen_at),
        last_seen_at=max(one.last_seen_at, other.last_seen_at),
    )
