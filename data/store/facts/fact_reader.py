"""Reading the facts: fleet, jobs, history and energy, from the roll-ups.

A slot in which readings contradict a counter may be a moment in which work began. Several of a day
are a counter that is stuck.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from data.base.clock import ceil_to_slot, floor_to_slot, utc_now
from data.base.units import SECONDS_PER_HOUR, SLOT_SECONDS
from data.boards.board_shares import board_shares
from data.boards.unplanned_jobs import occupied, required_nodes_on
from data.catalogue.gpu_catalogue import GpuCatalogue, load_gpu_catalogue
from data.facts.columns import SAMPLES, XIDS, check_frame
from data.facts.fleet import Cluster, Gpu, Node, Recording, SourceReport, SourceState
from data.facts.jobs import Job
from data.records.contradictions import ContradictedCounter
from data.store.engine import tables
from data.store.engine.dialects import EPOCH, as_utc, in_dialect
from data.store.engine.record_json import from_json
from data.store.engine.table_reader import TableReader
from data.store.facts import board_xids, job_progress, samples_sql, slot_tables
from data.store.facts.board_activity import PLACES
from data.store.facts.job_sql import TENANT_NAMES
from data.store.facts.planning_view import PlanningView, recently_read
from data.store.facts.quotas import QuotaReader
from data.store.facts.samples_sql import SIGNALS, WINDOW

MIN_SLOTS, _MIN_SHARE = 3, 0.03
"""With fewer slots, or a smaller share of those observed, a counter is not told: a reading may fall
on the moment in which work begins.
"""
_DAY = timedelta(days=1)
_BY_DEVICE = f"""
observed AS (
    SELECT gpu_uuid, mig_instance, count(DISTINCT slot_start) AS slots FROM five_minute
    WHERE {WINDOW} AND samples > 0 GROUP BY 1, 2
), told AS (
    SELECT c.gpu_uuid, c.mig_instance, counter, count(*) AS slots,
        min(slot_start) AS first_at, max(slot_start) AS last_at,
        avg(reading) AS reading, arg_max(others, slot_start) AS others
    FROM contradictions AS c LEFT JOIN observed
        ON observed.gpu_uuid = c.gpu_uuid AND observed.mig_instance = c.mig_instance
    WHERE {WINDOW} GROUP BY 1, 2, 3
    HAVING count(*) >= greatest({MIN_SLOTS}, {_MIN_SHARE} * max(coalesce(observed.slots, 0)))
)"""  # noqa: S608 - only constants of this package are put together

CONTRADICTED_BOARDS = f"""
WITH {_BY_DEVICE}, {PLACES}
SELECT coalesce(node, '') AS node, coalesce(gpu_index, '') AS gpu_index, told.*
FROM told LEFT JOIN places ON places.gpu_uuid = told.gpu_uuid
ORDER BY node, gpu_index, told.gpu_uuid, mig_instance, counter
"""  # noqa: S608

CONTRADICTED_JOBS = f"""
WITH {_BY_DEVICE}, held AS (
    SELECT job_id, gpu_uuid, mig_instance,
        arg_max(node, last_at) AS node, arg_max(gpu_index, last_at) AS gpu_index
    FROM five_minute WHERE {WINDOW} AND holder = 'job' AND samples > 0 GROUP BY 1, 2, 3
)
SELECT job_id, node, gpu_index, told.* FROM held JOIN told
    ON told.gpu_uuid = held.gpu_uuid AND told.mig_instance = held.mig_instance
ORDER BY job_id, counter, told.gpu_uuid
"""  # noqa: S608

HOURS = f"""
SELECT coalesce(sum(greatest(board_seconds - known_board_seconds, 0)), 0) / 3600 AS hours
FROM five_minute WHERE {WINDOW} AND holder = 'job' AND EXISTS (
    SELECT 1 FROM contradictions AS c WHERE c.slot_start = five_minute.slot_start
        AND c.gpu_uuid = five_minute.gpu_uuid AND c.mig_instance = five_minute.mig_instance)
"""  # noqa: S608


class ContradictionReader(TableReader):
    """Reads which signals and counters may be believed."""

    def signals(self, *, start: datetime, end: datetime, seen_since: datetime) -> dict[str, str]:
        """Return by job seen since then the signal that tells its utilization.

        `shared` where others mirror it.
        """
        frame = self._frame(SIGNALS, start=start, end=end, seen_since=seen_since)
        return dict(zip(frame["job_id"], frame["signal"], strict=True))

    def contradicted_counters(self, *, end: datetime) -> tuple[ContradictedCounter, ...]:
        """Return the counters that were contradicted in the day up to `end`, by board."""
        rows = self._frame(CONTRADICTED_BOARDS, start=end - _DAY, end=end).to_dict("records")
        return tuple(map(_counter_of, rows))

    def contradicted_jobs(self, *, end: datetime) -> Mapping[str, tuple[ContradictedCounter, ...]]:
        """Return the same by the jobs that held the boards in that day."""
        counters: dict[str, list[ContradictedCounter]] = {}
        for row in self._frame(CONTRADICTED_JOBS, start=end - _DAY, end=end).to_dict("records"):
            counters.setdefault(row.pop("job_id"), []).append(_counter_of(row))
        return {job_id: tuple(rows) for job_id, rows in counters.items()}

    def contradicted_hours(self, *, start: datetime, end: datetime) -> float:
        """Return the board-hours that jobs held and whose activity contradictions left unknown.

        As far back as slots of five minutes are kept.
        """
        return float(self._frame(HOURS, start=start, end=end)["hours"].iloc[0])


def _counter_of(row: Mapping[Any, Any]) -> ContradictedCounter:
    times = {name: row[name].to_pydatetime() for name in ("first_at", "last_at")}
    return ContradictedCounter(**dict(row) | times | {"slots": int(row["slots"])})


if TYPE_CHECKING:
    import pandas as pd

_DISTANT_FUTURE = datetime(9000, 1, 1, tzinfo=UTC)


def slots_of(start: datetime, end: datetime) -> dict[str, datetime]:
    """Return the window of slots that (start, end] touches, and the whole hours inside it."""
    first, last = floor_to_slot(start, SLOT_SECONDS), ceil_to_slot(end, SLOT_SECONDS)
    return {
        "start": first,
        "end": last,
        "first_hour": ceil_to_slot(first, SECONDS_PER_HOUR),
        "last_hour": floor_to_slot(last, SECONDS_PER_HOUR),
    }


_OF_GPU = ("gpu_uuid", "mig_instance", "mig_profile", "node", "gpu_model", "memory_total_mib")
NEWEST_REPORTS = 200
"""Reports of a source that are read to see where it was left: about two days of cycles."""
_SEEN_WITHIN = timedelta(days=1)
"""A job that nobody has seen for longer is none of a cycle: there is nothing to forecast of it."""
_KIN_DAYS = 14
"""So far back ended jobs say how long runs last and how long others waited."""
_READING_DAYS = 7
_MAX_READINGS = 20_000
"""Of each GPU model and signal: what power models are fitted on."""
_GROUP_DAYS = 90
"""Groups are forecast for a month, so they look further back than jobs."""


class FactReader(QuotaReader, ContradictionReader):
    """Facts of fleet and jobs; nothing here writes."""

    def clock(self) -> datetime:
        """Return the time now, by which a store of today lives."""
        return utc_now()

    def latest_sample_at(self, *, until: datetime | None = None) -> datetime | None:
        """Return the time of the newest sample, up to `until`; None when there is none."""
        instant = sa.bindparam("until", until or _DISTANT_FUTURE, type_=sa.DateTime(timezone=True))
        rows = self._rows(sa.text(samples_sql.NEWEST).bindparams(instant))
        return as_utc(rows[0][0]) if rows else None

    def observed_until(self, now: datetime) -> datetime | None:
        """Return the newest hour up to `now` that retention may count from; None: no hour yet.

        One with samples in a quarter of the two days up to it: a clock that ran ahead leaves fewer.
        """
        instant = sa.bindparam("now", now, type_=sa.DateTime(timezone=True))
        rows = self._rows(sa.text(samples_sql.OBSERVED_UNTIL).bindparams(instant))
        return as_utc(rows[0][0]) if rows else None

    def planning_view(self, now: datetime, *, slot_seconds: int, history_days: int) -> PlanningView:
        """Return fleet, jobs and history as known at `now`; later samples are not read.

        When there are later samples, only complete 5-minute slots are. The cost follows what runs,
        not what ever ran: `_SEEN_WITHIN` and `_KIN_DAYS` bound the jobs.
        """
        as_of = self.latest_sample_at(until=now) or now
        start = as_of - timedelta(days=history_days)
        newest = self.latest_sample_at() == as_of
        upto = as_of + timedelta(microseconds=1) if newest else floor_to_slot(as_of, SLOT_SECONDS)
        since = as_of - timedelta(days=_KIN_DAYS)
        week = job_progress.week_to(as_of)
        known_jobs = job_progress.with_checkpoints(
            self.jobs(seen_since=since),
            self._frame(
                job_progress.CHECKPOINTS_BY_JOB, **{key: week[key] for key in ("start", "end")}
            ),
        )
        history, ended = self._histories(known_jobs, since, start, upto, slot_seconds)
        with_history = set(history["job_id"].unique())
        read = recently_read(history, as_of=as_of, slot_seconds=slot_seconds)
        window = slots_of(start, upto)
        nodes = tuple(node for node in self.nodes() if node.seen_at <= now)
        gpus = self.gpus(start=start, end=upto)
        return PlanningView(
            as_of=as_of,
            cluster=Cluster(
                as_of=as_of,
                gpus=gpus,
                nodes=nodes,
                kept_on=required_nodes_on(known_jobs, read, nodes),
                occupied=occupied(known_jobs, read, nodes),
                shares=board_shares(gpus, known_jobs, load_gpu_catalogue()),
            ),
            jobs=tuple(job for job in known_jobs if job.job_id in with_history),
            known_jobs=known_jobs,
            read=read,
            quotas=self._quotas_of_day(now),
            progress=job_progress.by_job(self._frame(job_progress.BY_JOB, **week, job_id="")),
            history=history,
            readings=self.power_readings(
                start=as_of - timedelta(days=_READING_DAYS), end=as_of, most=_MAX_READINGS
            ),
            groups=self.group_history(
                start=as_of - timedelta(days=_GROUP_DAYS), end=upto, slot_seconds=SECONDS_PER_HOUR
            ),
            signals=self.signals(
                start=window["start"], end=window["end"], seen_since=upto - _SEEN_WITHIN
            ),
            contradicted=self.contradicted_jobs(end=upto),
            ended_history=ended,
        )

    def _histories(
        self,
        jobs: Sequence[Job],
        since: datetime,
        start: datetime,
        end: datetime,
        slot_seconds: int,
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the history of the jobs seen lately, and `ended_history` of the others."""
        day_ago = end - _SEEN_WITHIN
        live = self.job_history(
            "", start=start, end=end, slot_seconds=slot_seconds, seen_since=day_ago
        )
        live = live[live["job_id"].isin({job.job_id for job in jobs})]
        ended = self._rows_by_slot(
            slot_tables.ENDED_SLOTS,
            ceil_to_slot(since, slot_seconds),
            slots_of(start, end)["end"],
            slot_seconds=slot_seconds,
            job_id="",
            whenever=False,
            seen_since=since,
            seen_before=day_ago,
        )
        return (
            without_former_jobs(live, jobs, slot_seconds=slot_seconds),
            without_former_jobs(ended, jobs, slot_seconds=slot_seconds),
        )

    def jobs(self, *, seen_since: datetime = EPOCH) -> tuple[Job, ...]:
        """Return every job seen since then, by id; a pod whose workload is known is not its own.

        A large fleet has seen a hundred thousand, and few of them lately.
        """
        query = sa.text(samples_sql.JOBS).bindparams(seen_since=seen_since)
        return self._completed(self._records(Job, query))

    def jobs_lately(self) -> tuple[Job, ...]:
        """Return those seen in the 14 days before the newest: what tells of those that wait."""
        (row,) = self._rows(sa.select(sa.func.max(tables.jobs.c.last_seen_at).label("newest")))
        if row.newest is None:
            return ()
        return self.jobs(seen_since=as_utc(row.newest) - timedelta(days=_KIN_DAYS))

    def job(self, job_id: str) -> Job | None:
        """Return one job, None when it was never seen."""
        return self.jobs_of([job_id]).get(job_id)

    def jobs_of(self, job_ids: Collection[str]) -> dict[str, Job]:
        """Return those of these jobs that were ever seen, by id, in one question."""
        these = sa.select(tables.jobs.c.record).where(tables.jobs.c.job_id.in_(job_ids))
        return {job.job_id: job for job in self._completed(self._records(Job, these))}

    def job_names(self, by: str) -> dict[str, str]:
        """Return the tenant of each job by id, '' where there is none; `by` is what a tenant is."""
        query = f"SELECT job_id, {TENANT_NAMES[by]} AS name FROM jobs"  # noqa: S608 - our own
        return {row.job_id: row.name for row in self._rows(sa.text(query))}

    def _completed(self, jobs: Iterable[Job]) -> tuple[Job, ...]:
        """Return the jobs with the GPU model that telemetry reports where a scheduler has none.

        Schedulers know a gres type or nothing; the catalogue knows the boards that a job held in
        the last day. A job kept before the catalogue had its model is of that model now.
        """
        catalogue = load_gpu_catalogue()
        jobs = tuple(catalogued(job, catalogue) for job in jobs)
        if all(catalogue.find(job.gpu_model) is not None for job in jobs):
            return jobs
        latest = self.latest_sample_at()
        if latest is None:
            return jobs
        gpus = self.gpus(start=latest - timedelta(days=1), end=latest)
        return with_models_held(jobs, gpus, catalogue)

    def nodes(self) -> tuple[Node, ...]:
        """Return every node as its scheduler described it last, by name."""
        nodes = tables.nodes.c
        return self._records(Node, sa.select(nodes.record).order_by(nodes.name, nodes.source))

    def gpus(self, *, start: datetime = EPOCH, end: datetime = _DISTANT_FUTURE) -> tuple[Gpu, ...]:
        """Return the boards and MIG instances as last seen in the slots of (start, end]."""
        instants = [
            sa.bindparam(name, at, type_=sa.DateTime(timezone=True))
            for name, at in slots_of(start, end).items()
        ]
        query = sa.text(in_dialect(self._engine, samples_sql.GPUS)).bindparams(*instants)
        return tuple(
            Gpu(
                **{name: getattr(row, name) for name in _OF_GPU},
                job_id=job_id,
                co_holders=tuple(others),
                last_seen_at=as_utc(row.last_seen_at),
                unexplained_at=row.unexplained_at and as_utc(row.unexplained_at),
            )
            for row in self._rows(query)
            for job_id, *others in (row.holders.split("\n"),)
        )

    def boards(self, *, start: datetime, end: datetime) -> pd.DataFrame:
        """Return every board seen in (start, end]: its holders, activity and power.

        Columns node, gpu_index, gpu_uuid, gpu_model, mig_profiles and jobs (one a line),
        allocated_ratio, used_ratio (0..1 of the board), memory_used_mib (largest, summed over MIG
        instances), memory_total_mib, power_watts (mean), last_seen_at, health; NaN is unknown.
        """
        window = slots_of(start, end)
        return self._frame(samples_sql.BOARDS, start=window["start"], end=window["end"])

    def silent_boards(self, *, start: datetime, end: datetime, since: datetime) -> pd.DataFrame:
        """Return gpu_uuid, node, gpu_index and last_seen_at of boards not seen from `since` on."""
        window = slots_of(start, end)
        return self._frame(
            samples_sql.SILENT_BOARDS, **window, since=floor_to_slot(since, SLOT_SECONDS)
        )

    def board_history(
        self, gpu_uuid: str, *, start: datetime, end: datetime, slot_seconds: int
    ) -> pd.DataFrame:
        """Return one board's past per slot and MIG instance ('' for a whole board).

        Columns mig_instance, slot_start, mig_profile, jobs, utilization_ratio, memory_used_mib
        (largest), memory_total_mib, power_watts (mean; an instance's share of its board), health.
        """
        window = slots_of(start, end)
        return self._frame(
            samples_sql.BOARD_HISTORY,
            gpu_uuid=gpu_uuid,
            start=window["start"],
            end=window["end"],
            slot_seconds=slot_seconds,
        )

    def job_history(
        self,
        job_id: str,
        *,
        start: datetime,
        end: datetime,
        slot_seconds: int,
        seen_since: datetime = EPOCH,
    ) -> pd.DataFrame:
        """Return the history (columns HISTORY) in (start, end] of one job, or of all for ''.

        Of all, those that were seen since then.
        """
        window = slots_of(start, end)
        return self._rows_by_slot(
            slot_tables.JOB_SLOTS,
            window["start"],
            window["end"],
            slot_seconds=slot_seconds,
            job_id=job_id,
            whenever=seen_since == EPOCH,
            seen_since=seen_since,
            seen_before=_DISTANT_FUTURE,
        )

    def fleet_history(self, *, start: datetime, end: datetime, slot_seconds: int) -> pd.DataFrame:
        """Return per slot: boards, and how many are used, idle, unknown, unattributed and free.

        Allocated = used + idle + unknown; power in W, NaN where no board reported it.
        """
        window = slots_of(start, end)
        return self._frame(
            samples_sql.fleet_history(slot_seconds),
            start=window["start"],
            end=window["end"],
            slot_seconds=slot_seconds,
        )

    def group_history(self, *, start: datetime, end: datetime, slot_seconds: int) -> pd.DataFrame:
        """Return the history of fleet, namespaces and GPU models (columns GROUP_HISTORY).

        `slot_seconds` is a multiple of an hour; the hours of (start, end] are whole ones.
        """
        return self._rows_by_slot(
            slot_tables.GROUP_HOURS,
            ceil_to_slot(start, SECONDS_PER_HOUR),
            floor_to_slot(end, SECONDS_PER_HOUR),
            slot_seconds=slot_seconds,
        )

    def _rows_by_slot(
        self,
        table: slot_tables.SlotTable,
        start: datetime,
        end: datetime,
        *,
        slot_seconds: int,
        **parameters: Any,
    ) -> pd.DataFrame:
        """Return the rows of [start, end): those that are kept, the others made now."""
        parameters |= {"slot_seconds": slot_seconds, "end": end}
        edge = sa.text(slot_tables.KEPT_UNTIL).bindparams(
            name=table.name, slot_seconds=slot_seconds
        )
        until = [as_utc(row.until) for row in self._rows(edge)]
        since = min([floor_to_slot(end, slot_seconds), *until])
        if not until or since <= start:
            return check_frame(self._frame(table.query, start=start, **parameters), table.columns)
        span = {
            "kept_from": floor_to_slot(start, slot_seconds),
            "first": since,
            "start": since - table.reach,
        }
        return check_frame(self._frame(table.rows, **parameters | span), table.columns)

    def node_power(self, *, start: datetime, end: datetime) -> pd.DataFrame:
        """Return by node and whole hour of (start, end] the boards with power and their W."""
        return self._frame(
            samples_sql.NODE_POWER,
            start=ceil_to_slot(start, SECONDS_PER_HOUR),
            end=floor_to_slot(end, SECONDS_PER_HOUR),
            slot_seconds=SECONDS_PER_HOUR,
        )

    def power_readings(self, *, start: datetime, end: datetime, most: int) -> pd.DataFrame:
        """Return whole boards' samples (columns SAMPLES) of (start, end] that have power and use.

        At most `most` of each GPU model and utilization signal.
        """
        frame = self._frame(samples_sql.POWER_READINGS, start=start, end=end, most=most)
        return check_frame(frame, SAMPLES)

    def energy(self, *, start: datetime, end: datetime, by: str) -> pd.DataFrame:
        """Return key, energy_kwh with its low and high, gpu_hours, idle_gpu_hours, observed_hours.

        `by` is job, namespace, node, gpu_model, day, hour or fleet. Key '' is what no job held and
        stood idle, `(unattributed)` what worked for nobody known. Low and high span the rules by
        which a board cut by MIG can be shared; NaN where power was never reported. A slot of five
        minutes belongs to the range in which it begins.
        """
        if by not in samples_sql.ENERGY_KEYS:
            raise ValueError(f"energy by {by!r}; known: {', '.join(samples_sql.ENERGY_KEYS)}")
        query = samples_sql.ENERGY.replace("{key}", samples_sql.ENERGY_KEYS[by])
        return self._frame(query, **slots_of(ceil_to_slot(start, SLOT_SECONDS), end))

    def energy_disagreements(self, *, start: datetime, end: datetime) -> pd.DataFrame:
        """Return boards whose counter and power integral differ by more than a tenth, in kWh."""
        return self._frame(
            samples_sql.DISAGREEMENTS,
            start=floor_to_slot(start, SECONDS_PER_HOUR),
            end=ceil_to_slot(end, SECONDS_PER_HOUR),
        )

    def board_xids(self, *, since: datetime) -> pd.DataFrame:
        """Return XID codes that boards showed since then (columns XIDS), latest first per board.

        Code 0 says that a board had none; a board that is not in it, that nobody reports them.
        """
        return check_frame(self._frame(board_xids.LATEST, since=since), XIDS)

    def source_reports(self) -> tuple[SourceReport, ...]:
        """Return the latest report of every source."""
        return tuple(from_json(SourceReport, row.report) for row in self._newest_reports())

    def _newest_reports(self) -> list[Any]:
        batches = tables.batches
        newest = sa.select(sa.func.max(batches.c.sequence)).group_by(batches.c.source)
        return self._rows(
            sa.select(batches.c.source, batches.c.sequence, batches.c.report)
            .where(batches.c.sequence.in_(newest))
            .order_by(batches.c.source)
        )

    def recording(self) -> Recording | None:
        """Return the imported recording; None of an empty store and once a live source reported."""
        rows = self._newest_reports()
        if not rows or not all(json.loads(row.report).get("recorded") for row in rows):
            return None
        end = self.latest_sample_at()
        if end is None:
            return None
        return Recording(
            names=tuple(row.source for row in rows),
            end=end,
            sequence=max(row.sequence for row in rows),
        )

    def collected_until(self, now: datetime) -> dict[str, datetime]:
        """Return per source the time up to which everything was asked for and answered.

        A source that failed stays where it was, so that its next collection fills the gap. What
        reaches beyond `now` was asked by a clock that ran ahead, and does not count.
        """
        batches = tables.batches
        age = sa.func.row_number().over(
            partition_by=batches.c.source, order_by=batches.c.sequence.desc()
        )
        aged = sa.select(batches.c.source, batches.c.report, age.label("age")).subquery()
        newest = self._rows(sa.select(aged).where(aged.c.age <= NEWEST_REPORTS))
        until = _complete_until(newest, now)
        # Of one that has failed for days the older reports tell.
        silent = {row.source for row in newest} - until.keys()
        older = sa.select(batches.c.source, batches.c.report).where(batches.c.source.in_(silent))
        return until | _complete_until(self._rows(older) if silent else (), now)


def _complete_until(rows: Iterable[Any], now: datetime) -> dict[str, datetime]:
    """Return per source the end of what its reports say is complete."""
    until: dict[str, datetime] = {}
    for row in rows:
        report = from_json(SourceReport, row.report)
        reached = report.complete_until or report.window_end
        if report.state is SourceState.RAN and reached is not None and reached <= now:
            until[row.source] = max(reached, until.get(row.source, reached))
    return until


def without_former_jobs(
    history: pd.DataFrame, jobs: Iterable[Job], *, slot_seconds: int
) -> pd.DataFrame:
    """Return the rows of a history without those of other jobs that had the same id before."""
    since = {job.job_id: job.named_since for job in jobs}
    begins = {
        job_id: floor_to_slot(began, slot_seconds) for job_id, began in since.items() if began
    }
    import pandas as pd

    numbers, names = pd.factorize(history["job_id"])
    first = pd.to_datetime(pd.Index(names).map(begins), utc=True)
    rows: pd.DataFrame = history[~(history["slot_start"] < first[numbers])]
    return rows.reset_index(drop=True)


def catalogued(job: Job, catalogue: GpuCatalogue) -> Job:
    """Return the job with the catalogue's name of its model, where that was kept as reported."""
    name = catalogue.recognise(job.gpu_model)
    return job if name == job.gpu_model else replace(job, gpu_model=name)


def with_models_held(
    jobs: Iterable[Job], gpus: Iterable[Gpu], catalogue: GpuCatalogue
) -> tuple[Job, ...]:
    """Return the jobs, those of an unknown model with model and memory of the boards they held.

    What held boards of several models is of none.
    """
    boards: dict[str, dict[str, Gpu]] = defaultdict(dict)
    for gpu in gpus:
        if catalogue.find(gpu.gpu_model) is not None:
            for job_id in gpu.holders:
                boards[job_id][catalogue.recognise(gpu.gpu_model)] = gpu

    def completed(job: Job) -> Job:
        by_model = boards.get(job.job_id, {})
        if len(by_model) != 1 or catalogue.find(job.gpu_model) is not None:
            return job
        ((model, gpu),) = by_model.items()
        memory = job.gpu_memory_mib or gpu.memory_total_mib
        return replace(job, gpu_model=model, gpu_memory_mib=memory)

    return tuple(map(completed, jobs))
