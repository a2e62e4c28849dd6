"""Reading what inference engines served, what kept devices at work, and how far jobs are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from data.facts.progress import ProgressReport
from data.store.facts import board_activity, job_progress, serving_slots
from data.store.facts.fact_reader import FactReader
from data.store.serving import served_boards

if TYPE_CHECKING:
    import pandas as pd

    from data.store.serving.service_history import ServedHistory


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
            served_boards.BOARDS,
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

    def unwell_boards(self, *, start: datetime, end: datetime, throttled: float) -> pd.DataFrame:
        """Return the boards that heat or a power brake slows, or whose memory fails.

        Those slowed in a share of at least `throttled` of [start, end), or with a row of memory
        that could not be replaced: gpu_uuid, node, gpu_index, and health as `boards` has it.
        """
        return self._frame(board_activity.UNWELL, start=start, end=end, throttled=throttled)

    def job_progress(self, job_id: str, *, end: datetime) -> tuple[ProgressReport, ...]:
        """Return the progress reports of a job in the week up to `end`, by time."""
        frame = self._frame(job_progress.BY_JOB, **job_progress.week_to(end), job_id=job_id)
        return job_progress.by_job(frame).get(job_id, ())
