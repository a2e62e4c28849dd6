"""Forecasts in the store: those of a cycle, and those of workloads, made every six hours."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import sqlalchemy as sa

from data.base.clock import ceil_to_slot, floor_to_slot, parts_of
from data.base.units import SECONDS_PER_HOUR
from data.records.forecasts import DemandForecast, ForecastSkipped, GroupForecast, WorkloadForecast
from data.store.engine import tables
from data.store.engine.bulk import insert_records, put_rows
from data.store.engine.dialects import as_utc
from data.store.engine.record_json import to_json
from data.store.facts import samples_sql
from data.store.facts.fact_reader import FactReader
from data.store.facts.slot_tables import STATEMENT_SPAN

if TYPE_CHECKING:
    import pandas as pd

_WORKLOADS = tables.workload_forecasts


class WorkloadReader(FactReader):
    """Forecasts of services and recurring jobs."""

    def job_holdings(
        self, job_ids: tuple[str, ...], *, start: datetime, end: datetime
    ) -> "pd.DataFrame":
        """Return per job and whole hour of (start, end] the boards it held and used, and their W.

        Columns job_id, slot_start, allocated_gpus, effective_gpus, power_watts, as GROUP_HISTORY.
        Days are read in parts, which bounds the memory of weeks.
        """
        import pandas as pd

        first, last = ceil_to_slot(start, SECONDS_PER_HOUR), floor_to_slot(end, SECONDS_PER_HOUR)
        parts = [
            self._frame(
                samples_sql.JOB_HOLDINGS,
                start=begin,
                end=until,
                slot_seconds=SECONDS_PER_HOUR,
                job_ids=list(job_ids),
            )
            for begin, until in parts_of(first, last, STATEMENT_SPAN)
        ]
        if len(parts) == 1:
            return parts[0]
        holdings = pd.concat([part for part in parts if len(part)] or parts[:1])
        return holdings.sort_values(["job_id", "slot_start"], ignore_index=True)

    def workload_forecasts(self) -> tuple[WorkloadForecast, ...]:
        """Return the forecasts of services and recurring jobs as last made, the largest first."""
        every = sa.select(_WORKLOADS.c.record).order_by(_WORKLOADS.c.position)
        return self._records(WorkloadForecast, every)

    def workload_forecast(self, name: str) -> WorkloadForecast | None:
        """Return the forecast of one service or recurring job by its name, None without one."""
        query = sa.select(_WORKLOADS.c.record).where(_WORKLOADS.c.name == name)
        return next(iter(self._records(WorkloadForecast, query)), None)

    def workloads_made_at(self) -> datetime | None:
        """Return the time of these forecasts, None where there is none."""
        rows = self._rows(sa.select(sa.func.max(_WORKLOADS.c.made_at)))
        return as_utc(rows[0][0]) if rows and rows[0][0] else None


def insert_forecasts(
    connection: sa.Connection,
    cycle_id: str,
    forecasts: Sequence[DemandForecast | ForecastSkipped],
    group_forecasts: Sequence[GroupForecast],
) -> None:
    """Insert the forecasts of jobs and of groups of one cycle."""
    insert_records(
        connection,
        "forecasts",
        [
            {
                "cycle_id": cycle_id,
                "job_id": forecast.job_id,
                "position": position,
                "skipped": isinstance(forecast, ForecastSkipped),
                "record": to_json(forecast),
            }
            for position, forecast in enumerate(forecasts)
        ],
        key=("cycle_id", "position"),
    )
    insert_records(
        connection,
        "group_forecasts",
        [
            {"cycle_id": cycle_id, "position": position, "record": to_json(forecast)}
            for position, forecast in enumerate(group_forecasts)
        ],
        key=("cycle_id", "position"),
    )


def keep_workloads(
    connection: sa.Connection, workloads: Sequence[WorkloadForecast], made_at: datetime
) -> None:
    """Keep these forecasts of workloads in place of those before."""
    import pandas as pd

    names = [workload.name for workload in workloads]
    connection.execute(_WORKLOADS.delete().where(_WORKLOADS.c.name.not_in(names)))
    rows = [
        {
            "name": workload.name,
            "position": position,
            "job_id": workload.job_id,
            "made_at": made_at,
            "record": to_json(workload),
        }
        for position, workload in enumerate(workloads)
    ]
    put_rows(connection, "workload_forecasts", pd.DataFrame(rows), key=("name",))
