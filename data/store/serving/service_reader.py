"""Reading what inference engines served, what kept devices at work, and how far jobs are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from data.facts.progress import ProgressReport
from data.store.facts import board_activity, job_progress, serving_slots
from data.store.facts.fact_reader import FactReader

if TYPE_CHECKING:
    import pandas as pd

    from data.store.serving.service_history import ServedHistory

_OWNERS = """
SELECT unnest(CAST(:labels AS VARCHAR[])) AS label_id,
    unnest(CAST(:jobs AS VARCHAR[])) AS job_id
"""
_BOARDS = f"""
WITH owners AS ({_OWNERS}), holders AS (
    SELECT label_id AS held_by, job_id FROM owners UNION SELECT job_id, job_id FROM owners
), served AS (
    SELECT job_id, slot_start, count(DISTINCT label_id) AS replicas
    FROM serving_slots JOIN owners USING (label_id)
    WHERE slot_start >= :start AND slot_start < :end GROUP BY 1, 2
), held AS (
    SELECT held_by, holders.job_id, slot_start,
        count(DISTINCT gpu_uuid || '/' || mig_instance) AS boards
    FROM five_minute JOIN holders ON five_minute.job_id = held_by
    WHERE holder = 'job' AND board_seconds > 0 AND slot_start >= :start AND slot_start < :end
    GROUP BY 1, 2, 3
), slots AS (
    SELECT served.job_id, served.slot_start, replicas, coalesce(sum(boards), 0) AS boards
    FROM served LEFT JOIN held
        ON held.job_id = served.job_id AND held.slot_start = served.slot_start
    GROUP BY 1, 2, 3
), usual AS (
    SELECT job_id, percentile_cont(0.9) WITHIN GROUP (ORDER BY CAST(boards AS FLOAT8) / replicas)
        AS boards_each
    FROM slots GROUP BY 1
), hours AS (
    SELECT job_id, to_timestamp(floor(epoch(slot_start) / 3600) * 3600) AS hour_start,
        bool_and(boards >= replicas * boards_each - 0.5) AS all_read
    FROM slots JOIN usual USING (job_id) GROUP BY 1, 2
)
SELECT held_by, hours.job_id, hour_start, all_read
FROM hours JOIN (SELECT DISTINCT held_by, job_id FROM held) AS names
    ON names.job_id = hours.job_id
ORDER BY 1, 3
"""  # noqa: S608 - only constants of this module are put together
"""Replicas of a service hold as many boards each; fewer are read while their exporter is silent."""


class ServiceReader(FactReader):
    """Services and jobs by slots of five minutes, tokens by hour; nothing here writes."""

    def services(
        self, *, start: datetime, end: datetime, within: timedelta
    ) -> Iterator[ServedHistory]:
        """Yield each service that was read in [start, end), by `job_id` and `nameless`.

        Those of which nothing was read `within` that of the newest reading are no more, unless
        their autoscaler has stopped the last replica, as their scheduler tells. Some
        thousands are read at once: their arrays take no more memory where there are more of them.
        """
        from data.store.serving.service_history import served_histories
        from data.store.serving.zero_replica_spans import stopped_spans

        engines = self._frame(serving_slots.ENGINES, start=start, end=end)
        labels = sorted(set(engines["label_id"]) - {""})
        runs = self._frame(serving_slots.RUNS, labels=labels, start=start, end=end)
        jobs = sorted(set(engines["job_id"]) - {""})
        pods = self._frame(serving_slots.PODS, jobs=jobs, start=start)
        stopped = stopped_spans(pods, self.collected_until(end)) if len(pods) else {}
        yield from served_histories(engines, runs, stopped, self._table, start, end, within)

    def service(
        self, job_id: str, nameless: str, *, start: datetime, end: datetime
    ) -> pd.DataFrame:
        """Return the traffic of one service per slot of five minutes in [start, end).

        Sums over replicas, columns of SERVING; `replicas`; `fullest_requests`, of the replica that
        had most at work, and `full_requests`, of those that let requests wait. `nameless` is the
        model of replicas without a pod, with their cluster, '' for others.
        """
        return self._frame(
            serving_slots.SERVICE, job_id=job_id, nameless=nameless, start=start, end=end
        )

    def replica_starts(self, *, start: datetime, end: datetime) -> pd.DataFrame:
        """Return the `seconds` that the newest replicas of services took to start, newest first.

        By `job_id` and `source`: 'pods' as their scheduler told; 'boards' where none told, from
        the first reading of a new pod's boards to the end of the slot of its first tokens.
        """
        return self._frame(serving_slots.STARTS, start=start, end=end)

    def silent_replicas(self, *, start: datetime, end: datetime) -> dict[str, int]:
        """Return the pods that ran since `start` and told nothing up to `end`, by job.

        Of those whose scheduler told of them since, beside pods of their name that told.
        """
        counts = self._frame(serving_slots.SILENT, start=start, end=end)
        return dict(zip(counts["job_id"], map(int, counts["replicas"]), strict=True))

    def served_tokens(self, *, start: datetime, end: datetime) -> pd.DataFrame:
        """Return `generation_tokens` by `job_id` and `hour_start` of [start, end), whole hours.

        NaN where the engines of the job were not read in each slot of the hour.
        """
        return self._frame(serving_slots.TOKENS, start=start, end=end)

    def served_boards(self, *, start: datetime, end: datetime) -> pd.DataFrame:
        """Return the holders of services' boards, by `held_by`, `job_id` and `hour_start`.

        `held_by` is what samples call the holder, `job_id` the service that `served_tokens` names.
        `all_read`: whether the boards of all its replicas were read in each slot of the hour in
        which their engines were.
        """
        engines = self._frame(serving_slots.ENGINES, start=start, end=end)
        owners = engines.loc[engines["job_id"] != "", ["label_id", "job_id"]].drop_duplicates()
        return self._frame(
            _BOARDS,
            labels=owners["label_id"].tolist(),
            jobs=owners["job_id"].tolist(),
            start=start,
            end=end,
        )

    def job_activity(self, *, start: datetime, end: datetime) -> pd.DataFrame:
        """Return the activity of jobs' devices per `job_id` and `slot_start` in [start, end).

        Means over `boards` devices of the columns of ACTIVITY, NaN where one does not tell;
        Of their work (SM activity, else power) `behind` is 1 less mean over largest, `spread` 1
        less smallest over largest.
        """
        return self._frame(board_activity.BY_JOB, start=start, end=end)

    def unwell_boards(
        self, *, start: datetime, end: datetime, throttled: float, hot: float, hot_memory: float
    ) -> pd.DataFrame:
        """Return the boards that are hot or slowed, or whose memory has errors, in [start, end).

        Slowed in a share of at least `throttled`; at `hot` or `hot_memory` °C at least: gpu_uuid,
        node, gpu_index, and health as `boards` has it. `unwell_at` is the first such slot of the
        day before `end`. `peers_celsius` is the mean of the other boards of its model that were
        in use for a quarter of the time, unknown for a board that was not.
        """
        return self._frame(
            board_activity.UNHEALTHY_BOARDS,
            start=start,
            end=end,
            day_before=end - timedelta(days=1),
            throttled=throttled,
            hot=hot,
            hot_memory=hot_memory,
        )

    def job_progress(self, job_id: str, *, end: datetime) -> tuple[ProgressReport, ...]:
        """Return the progress reports of a job in the week up to `end`, by time."""
        frame = self._frame(job_progress.BY_JOB, **job_progress.week_to(end), job_id=job_id)
        return job_progress.by_job(frame).get(job_id, ())
