"""Rows of past slots that are kept, so that a cycle makes those of the last hours alone.

Kept are all slots of one length from the first roll-up on, up to a lag behind the newest; the table
`kept_slots` says how far. The oracle is the query that makes them: what is kept equals its answer
for any longer window. Samples that come late take back what they can change, and the next cycle
makes it anew.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import lcm

import sqlalchemy as sa

from data.base.clock import floor_to_slot, parts_of
from data.base.units import SECONDS_PER_HOUR
from data.facts.columns import ENDED_HISTORY, GROUP_HISTORY, HISTORY, FrameColumns
from data.store.engine.dialects import EPOCH, as_utc, in_dialect
from data.store.facts import samples_sql
from data.store.rollups.rollup import roll_up

STATEMENT_SPAN = timedelta(days=4)
"""Made in one statement, which bounds its memory."""
_HOUR = timedelta(seconds=SECONDS_PER_HOUR)
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotTable:
    """A table of rows by slot, and the query that makes them.

    A row may depend on samples up to `reach` before and after it. Rows are kept up to `lag` behind
    the newest roll-up, once there are `least` of them. `which` is a condition for reading them,
    `all_of_them` are the parameters of the query that leave none out.
    """

    name: str
    columns: FrameColumns
    query: str
    lag: timedelta
    least: timedelta
    reach: timedelta = timedelta(0)
    which: str = "TRUE"
    all_of_them: Mapping[str, object] = field(default_factory=dict)

    @property
    def _made(self) -> str:
        """The query of the rows from :first on, made of samples from :start on."""
        names = ", ".join(self.columns.names)
        return f"SELECT {names} FROM ({self.query}) AS made WHERE slot_start >= :first"  # noqa: S608

    @property
    def rows(self) -> str:
        """The query of the rows in [:kept_from, :end), those up to :first of what is kept."""
        names = self.columns.names
        order = [name for name in ("kind", "name", "job_id", "slot_start") if name in names]
        return (
            f"SELECT {', '.join(names)} FROM {self.name} "  # noqa: S608 - our own names
            f"WHERE slot_start >= :kept_from AND slot_start < :first AND {self.which} "
            f"UNION ALL {self._made} ORDER BY {', '.join(order)}"
        )

    @property
    def insertion(self) -> str:
        """The statement that keeps the rows in [:first, :until)."""
        names = ", ".join(self.columns.names)
        return f"INSERT INTO {self.name} ({names}) {self._made} AND slot_start < :until"


GROUP_HOURS = SlotTable(
    name="group_hours",
    columns=GROUP_HISTORY,
    query=samples_sql.GROUP_HISTORY,
    # A board that is away for longer counts as unseen in none of the hours between.
    reach=timedelta(days=3),
    lag=timedelta(days=3),
    least=timedelta(days=1),
)
JOB_SLOTS = SlotTable(
    name="job_slots",
    columns=HISTORY,
    query=samples_sql.JOB_HISTORY,
    lag=_HOUR,
    least=_HOUR,
    which=samples_sql.JOB_FILTER,
    all_of_them={"job_id": "", "whenever": True, "seen_since": EPOCH, "seen_before": EPOCH},
)
ENDED_SLOTS = replace(
    JOB_SLOTS,
    columns=ENDED_HISTORY,
    query=f"SELECT {', '.join(ENDED_HISTORY.names)} FROM ({samples_sql.JOB_HISTORY}) AS made",  # noqa: S608
)
"""Of the same rows the part that tells when jobs had no work."""
_ALL = (GROUP_HOURS, JOB_SLOTS)


KEPT_UNTIL = """
SELECT until FROM kept_slots WHERE table_name = :name AND slot_seconds = :slot_seconds
"""
"""Up to where the slots of that length are kept; no row where none are."""


def roll_up_boards(connection: sa.Connection, *, progress: Progress | None = None) -> None:
    """Make every marked hour of boards anew, and take back the kept rows that they can change."""
    first_hour = connection.exec_driver_sql("SELECT min(hour_start) FROM dirty_hours").scalar_one()
    rows = connection.exec_driver_sql("SELECT table_name, slot_seconds, until FROM kept_slots")
    for name, slot_seconds, until in () if first_hour is None else rows.all():
        table = next(table for table in _ALL if table.name == name)
        since = floor_to_slot(as_utc(first_hour) - table.reach, slot_seconds)
        if since < as_utc(until):
            _keep_until(connection, table, slot_seconds, since)
    roll_up(connection, progress=progress)


def _keep_until(
    connection: sa.Connection, table: SlotTable, slot_seconds: int, until: datetime
) -> None:
    """Drop what is kept from then on, and note that the slots before it are kept."""
    values = {"name": table.name, "slot_seconds": slot_seconds, "until": until}
    for statement in (
        f"DELETE FROM {table.name} WHERE slot_start >= :until",  # noqa: S608
        "DELETE FROM kept_slots WHERE table_name = :name",
        "INSERT INTO kept_slots VALUES (:name, :slot_seconds, :until)",
    ):
        connection.execute(sa.text(statement), values)


def keep_rows(
    connection: sa.Connection, *, slot_seconds: int, progress: Progress | None = None
) -> None:
    """Keep the rows of past slots that are not kept yet: of groups by the hour, of jobs by slot."""
    first, newest = connection.exec_driver_sql(
        "SELECT min(slot_start), max(slot_start) FROM hourly"
    ).one()
    if first is not None:
        _keep(connection, GROUP_HOURS, (first, newest), SECONDS_PER_HOUR, progress)
        _keep(connection, JOB_SLOTS, (first, newest), slot_seconds, progress)


def _keep(
    connection: sa.Connection,
    table: SlotTable,
    edges: tuple[datetime, datetime],
    slot_seconds: int,
    progress: Progress | None,
) -> None:
    slots = {"slot_seconds": slot_seconds}
    row = connection.execute(sa.text(KEPT_UNTIL), slots | {"name": table.name}).first()
    if row is None:
        _keep_until(connection, table, slot_seconds, EPOCH)
    first = floor_to_slot(edges[0], slot_seconds)
    if row is not None:
        first = max(first, as_utc(row.until))
    until = floor_to_slot(edges[1] - table.lag, lcm(slot_seconds, SECONDS_PER_HOUR))
    if until - first < table.least:
        return
    statement = sa.text(in_dialect(connection, table.insertion))
    parts = _parts_with_samples(connection, first, until)
    for number, (begin, end) in enumerate(parts, start=1):
        span = {
            "first": begin,
            "until": end,
            "start": begin - table.reach,
            "end": end + table.reach,
        }
        connection.execute(statement, slots | span | dict(table.all_of_them))
        if progress is not None:
            progress(number, len(parts))
    _keep_until(connection, table, slot_seconds, until)


def _parts_with_samples(
    connection: sa.Connection, first: datetime, until: datetime
) -> list[tuple[datetime, datetime]]:
    """The parts of [first, until) that can have rows: a clock ahead by years leaves 900 without."""
    hours = connection.execute(
        sa.text("SELECT DISTINCT slot_start FROM hourly WHERE slot_start > :since"),
        {"since": first - _HOUR},
    ).scalars()
    numbers = {
        (at - first) // STATEMENT_SPAN for hour in map(as_utc, hours) for at in (hour, hour + _HOUR)
    }
    parts = parts_of(first, until, STATEMENT_SPAN)
    return [part for number, part in enumerate(parts) if number in numbers]
