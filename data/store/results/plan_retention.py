"""Deletion of cycles' results that can no longer be asked for.

Facts say what happened and are kept for long; a forecast is made anew every cycle and is large.
What a person decided on stays whole: its recommendation and the plan behind it.
"""

from datetime import datetime, timedelta

import sqlalchemy as sa

from data.store.engine import tables

FORECAST_HOURS = 6
"""Superseded forecasts are some 11 kB a job and cycle: of a thousand jobs a gigabyte a day."""
PLAN_HOURS = 24
_UNDECIDED_HOURS = 7 * 24
"""A week, so that whoever was away on holiday still finds by what a finding was supported."""
_DECIDED = sa.union(sa.select(tables.decisions.c.digest), sa.select(tables.finding_events.c.digest))


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
    kept_plans = sa.select(advice.c.plan_id).where(advice.c.digest.in_(_DECIDED))
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
            advice.c.cycle_id.in_(old(_UNDECIDED_HOURS)) & advice.c.digest.not_in(_DECIDED),
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
