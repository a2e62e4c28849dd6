"""Parts of the energy statement: joules, board-time and work of the roll-ups.

Plain SQLAlchemy Core over the roll-ups. A slot of five minutes belongs to the range and to the
period in which it begins, so that the parts of any split and grouping are the whole. Hours that lie
in one of each come from `hourly`, others (ends of a range, midnights of zones at half hours)
from `five_minute`. Where that is forgotten already, the hour is spread evenly over its slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from data.base.clock import ceil_to_slot, floor_to_slot
from data.base.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, SLOT_SECONDS
from data.facts.cluster_names import MAIN_CLUSTER
from data.store.engine import tables
from data.store.facts.fact_reader import FactReader
from data.store.facts.job_sql import TENANT_NAMES

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

    Floats = npt.NDArray[np.float64]

NO_NAME = "(unknown)"
"""Key of what a job held of which the asked name is not known."""

_LOOK_BACK = timedelta(days=7)
"""A board seen so long before a range was there when it began; if seen after it too, all along."""


class EnergyKey(StrEnum):
    """The key that tells the parts apart."""

    FLEET = "fleet"
    ACCOUNT_OR_NAMESPACE = "account-or-namespace"
    NAMESPACE = "namespace"
    ACCOUNT = "account"
    OWNER = "owner"
    JOB = "job"
    MODEL = "model"
    NODE = "node"
    BOARD = "board"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Periods:
    """A grid of equal periods: `seconds` long, the first begins `shift_seconds` before the epoch.

    `seconds` 0: the whole range is one period, numbered 0.
    """

    seconds: int = 0
    shift_seconds: int = 0


_NUMBERS = (
    "board_seconds",
    "used_board_seconds",
    "known_board_seconds",
    "joules",
    "joules_by_slices",
    "joules_by_activity",
    "sample_weight",
    "power_weight",
    "samples",
    "shared_samples",
)
_WORDS = ("job_id", "holder", "node", "gpu_model")


_COLUMNS: Sequence[str] = (
    "period",
    "hour_of_day",
    "holder",
    "key",
    "gpu_model",
    "board_seconds",
    "measured_seconds",
    "held_seconds",
    "idle_seconds",
    "used_seconds",
    "joules",
    "joules_by_slices",
    "joules_by_activity",
    "scored_seconds",
    "scored_joules",
    "scored_work_seconds",
    "shared_seconds",
    "alone_used_seconds",
    "alone_idle_seconds",
    "shared_joules",
)
_NUMBER_TYPES = dict.fromkeys(
    [name for name in _COLUMNS if name.endswith("seconds") or "joules" in name], "float64"
)
_KEY_COLUMNS = {
    EnergyKey.JOB: "job_id",
    EnergyKey.NODE: "node",
    EnergyKey.MODEL: "gpu_model",
    EnergyKey.BOARD: "gpu_uuid",
}


def _rollup(name: str) -> sa.TableClause:
    return sa.table(
        name,
        sa.column("slot_start", sa.DateTime(timezone=True)),
        sa.column("gpu_uuid", sa.String),
        sa.column("mig_instance", sa.String),
        *(sa.column(word, sa.String) for word in _WORDS),
        *(sa.column(number, sa.Float) for number in _NUMBERS),
    )


_HOURLY, _FIVE_MINUTE = _rollup("hourly"), _rollup("five_minute")


_SLOTS_AN_HOUR = SECONDS_PER_HOUR // SLOT_SECONDS
_RETAINED_SINCE = (
    "(SELECT coalesce(max(since), to_timestamp(0)) FROM retained WHERE resolution = 'five_minute')"
)


def _slots_of(
    start: datetime, end: datetime, periods: Periods, *, is_hour_cut: bool
) -> sa.Subquery:
    """Return the roll-up rows of the slots that begin in [start, end), each once; `at` is when.

    `is_hour_cut`: no row of an hour may stand for its slots.
    """
    first, last = ceil_to_slot(start, SLOT_SECONDS), ceil_to_slot(end, SLOT_SECONDS)
    first_hour, last_hour = (
        ceil_to_slot(first, SECONDS_PER_HOUR),
        floor_to_slot(last, SECONDS_PER_HOUR),
    )
    known_since: sa.ColumnElement[datetime] = sa.literal_column(_RETAINED_SINCE)

    def columns(rollup: sa.TableClause, share: float = 1.0) -> list[sa.ColumnElement[Any]]:
        numbers = (rollup.c[number] for number in _NUMBERS)
        return [
            rollup.c.gpu_uuid,
            rollup.c.mig_instance,
            *(rollup.c[word] for word in _WORDS),
            *(number if share == 1 else (number * share).label(number.name) for number in numbers),
        ]

    def is_whole(rollup: sa.TableClause) -> sa.ColumnElement[bool]:
        """Return whether the hour of a row lies in the range and in one period."""
        if is_hour_cut:
            return sa.false()
        hour = _floor(_seconds(rollup) / SECONDS_PER_HOUR) * SECONDS_PER_HOUR
        inside = sa.and_(
            rollup.c.slot_start >= first_hour,
            rollup.c.slot_start < sa.literal(max(last_hour, first_hour)),
        )
        if not periods.shift_seconds % SECONDS_PER_HOUR:
            return inside
        last_slot = hour + SECONDS_PER_HOUR - SLOT_SECONDS
        return sa.and_(inside, _number(hour, periods) == _number(last_slot, periods))

    hours = sa.select(*columns(_HOURLY), _seconds(_HOURLY).label("at")).where(is_whole(_HOURLY))
    slots = sa.select(*columns(_FIVE_MINUTE), _seconds(_FIVE_MINUTE).label("at")).where(
        _FIVE_MINUTE.c.slot_start >= first,
        _FIVE_MINUTE.c.slot_start < last,
        _FIVE_MINUTE.c.slot_start >= known_since,
        sa.not_(is_whole(_FIVE_MINUTE)),
    )
    places = sa.values(sa.column("place", sa.Integer), name="places").data(
        [(place,) for place in range(_SLOTS_AN_HOUR)]
    )
    at = _seconds(_HOURLY) + places.c.place * SLOT_SECONDS
    spread = (
        sa.select(*columns(_HOURLY, 1 / _SLOTS_AN_HOUR), at.label("at"))
        .select_from(_HOURLY.join(places, sa.true()))
        .where(
            _HOURLY.c.slot_start >= floor_to_slot(first, SECONDS_PER_HOUR),
            _HOURLY.c.slot_start < last,
            _HOURLY.c.slot_start < known_since,
            sa.not_(is_whole(_HOURLY)),
            at >= first.timestamp(),
            at < last.timestamp(),
        )
    )
    return sa.union_all(hours, slots, spread).subquery("slots")


def _seconds(rollup: sa.TableClause) -> sa.ColumnElement[Any]:
    return sa.extract("epoch", rollup.c.slot_start)


def _number(at: sa.ColumnElement[Any], periods: Periods) -> sa.ColumnElement[int]:
    """Return SQL for the number of the period that a time (s of the epoch) lies in."""
    if not periods.seconds:
        return sa.literal_column("0")
    return _floor((at + periods.shift_seconds) / periods.seconds)


def _names(field: EnergyKey) -> sa.Subquery:
    """Return every job's namespace, owner or account, NULL when it has none (`TENANT_NAMES`).

    Apart from the sums, so that each job's record is read once and not once a slot.
    """
    name = sa.func.nullif(sa.literal_column(TENANT_NAMES[field.value], sa.String), "")
    return sa.select(tables.jobs.c.job_id, name.label("name")).subquery("names")


def _parts(
    start: datetime, end: datetime, *, key: EnergyKey, periods: Periods, hour_shift: int | None
) -> sa.Select[tuple[object]]:
    slots = _slots_of(start, end, periods, is_hour_cut=bool((hour_shift or 0) % SECONDS_PER_HOUR))
    period = _number(slots.c.at, periods)
    local = slots.c.at + (hour_shift or 0)
    hour = (
        sa.literal_column("0")
        if hour_shift is None
        else _floor(local / SECONDS_PER_HOUR) - 24 * _floor(local / SECONDS_PER_DAY)
    )
    energy_known = slots.c.joules.is_not(None)
    # How much of a row's time had power: its samples tell; a counter alone needs none.
    measured = sa.case(
        (~energy_known, 0.0),
        (
            sa.and_(slots.c.sample_weight > 0, slots.c.power_weight > 0),
            sa.func.least(slots.c.power_weight / slots.c.sample_weight, 1.0),
        ),
        else_=1.0,
    )
    both = sa.and_(energy_known, slots.c.known_board_seconds > 0)

    def total(
        value: sa.ColumnElement[Any], when: sa.ColumnElement[bool] | None = None
    ) -> sa.ColumnElement[Any]:
        return sa.func.sum(value if when is None else sa.case((when, value)))

    shared = _shared_part(slots)
    of_jobs = key in (EnergyKey.JOB, EnergyKey.BOARD, EnergyKey.CLUSTER, *TENANT_NAMES)
    name, source = _keyed(key, slots)
    groups = {
        "period": period,
        "hour_of_day": hour,
        "holder": slots.c.holder if of_jobs else sa.literal_column("'any'"),
        "key": name,
        "gpu_model": slots.c.gpu_model,
    }
    by_job = slots.c.holder == "job"
    sums = {
        "board_seconds": total(slots.c.board_seconds),
        "measured_seconds": total(slots.c.board_seconds * measured),
        "held_seconds": total(slots.c.board_seconds, by_job),
        "idle_seconds": total(slots.c.known_board_seconds - slots.c.used_board_seconds, by_job),
        "used_seconds": total(slots.c.used_board_seconds, by_job),
        "joules": total(slots.c.joules),
        "joules_by_slices": total(slots.c.joules_by_slices),
        "joules_by_activity": total(slots.c.joules_by_activity),
        "scored_seconds": total(slots.c.board_seconds, both),
        "scored_joules": total(slots.c.joules, both),
        "scored_work_seconds": total(slots.c.used_board_seconds, sa.and_(both, by_job)),
        "shared_seconds": total(slots.c.board_seconds * shared, by_job),
        "alone_used_seconds": total(slots.c.used_board_seconds * (1 - shared), by_job),
        "alone_idle_seconds": total(
            (slots.c.known_board_seconds - slots.c.used_board_seconds) * (1 - shared), by_job
        ),
        "shared_joules": total(slots.c.joules * shared, by_job),
    }
    return (
        sa.select(
            *(expression.label(name) for name, expression in groups.items()),
            *(expression.label(name) for name, expression in sums.items()),
        )
        .select_from(source)
        .group_by(*(sa.text(str(place)) for place in range(1, len(groups) + 1)))
        .having(sa.func.sum(slots.c.board_seconds) > 0)
    )


def _shared_part(slots: sa.Subquery) -> sa.ColumnElement[Any]:
    """Return the part of a row's time beside others on its device: its activity is nobody's."""
    return sa.case((slots.c.samples > 0, slots.c.shared_samples * 1.0 / slots.c.samples), else_=0.0)


def _keyed(key: EnergyKey, slots: sa.Subquery) -> tuple[sa.ColumnElement[str], sa.FromClause]:
    """Return SQL for the key of a slot's row, and what to read it from."""
    if key is EnergyKey.FLEET:
        return sa.literal_column(f"'{key.value}'"), slots
    if key is EnergyKey.CLUSTER:
        cluster = sa.func.nullif(sa.func.split_part(slots.c.node, "@", 2), "")
        return sa.func.coalesce(cluster, MAIN_CLUSTER), slots
    if key in _KEY_COLUMNS:
        return slots.c[_KEY_COLUMNS[key]], slots
    names = _names(key)
    name = sa.case((slots.c.holder != "job", ""), else_=sa.func.coalesce(names.c.name, NO_NAME))
    return name, slots.outerjoin(names, names.c.job_id == slots.c.job_id)


def _floor(value: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
    return sa.cast(sa.func.floor(value), sa.BigInteger)


class EnergyReader(FactReader):
    """Energy, board-time and work, by whom and when; nothing here writes."""

    def energy_parts(
        self,
        *,
        start: datetime,
        end: datetime,
        key: EnergyKey,
        periods: Periods,
        hour_shift: int | None,
    ) -> pd.DataFrame:
        """Return the parts of the statement, a row per period, hour of day, holder, key, model.

        Columns period (its number on the grid), hour_of_day (`hour_shift` s ahead of UTC; 0 where
        that is None), holder (job,
        free, unattributed; any where the key is no job's), key, gpu_model; sums in s and J:
        board_seconds observed, measured_seconds of them with power, held_seconds by jobs,
        idle_seconds and used_seconds, joules by the store's rule and the two pure ones (NaN: never
        measured), and scored_*, the same over devices and hours of which energy and activity are
        both known. What jobs held beside others is shared_*; alone_used and alone_idle are the rest
        of known activity.
        """
        rows = self._rows(_parts(start, end, key=key, periods=periods, hour_shift=hour_shift))
        import pandas as pd

        return pd.DataFrame(rows, columns=list(_COLUMNS)).astype(_NUMBER_TYPES)

    def sharing_hours(self, *, start: datetime, end: datetime, periods: Periods) -> pd.DataFrame:
        """Return the board-time of jobs that share a device in [start, end), by hour and device.

        Columns period (its number on the grid), hour (s of the epoch), gpu_uuid, mig_instance,
        job_id, gpu_model; board_seconds, of them shared_seconds beside others, and used_seconds of
        work, which mirrors all holders where there are several. Hours alone are there too.
        """
        slots = _slots_of(start, end, periods, is_hour_cut=False)
        others = slots.alias("others")
        sharers = sa.select(others.c.job_id).where(others.c.shared_samples > 0)
        groups = {
            "period": _number(slots.c.at, periods),
            "hour": _floor(slots.c.at / SECONDS_PER_HOUR) * SECONDS_PER_HOUR,
            **{name: slots.c[name] for name in ("gpu_uuid", "mig_instance", "job_id", "gpu_model")},
        }
        sums = {
            "board_seconds": slots.c.board_seconds,
            "shared_seconds": slots.c.board_seconds * _shared_part(slots),
            "used_seconds": slots.c.used_board_seconds,
        }
        query = (
            sa.select(
                *(value.label(name) for name, value in groups.items()),
                *(sa.func.sum(value).label(name) for name, value in sums.items()),
            )
            .where(slots.c.holder == "job", slots.c.job_id.in_(sharers))
            .group_by(*(sa.text(str(place)) for place in range(1, len(groups) + 1)))
        )
        import pandas as pd

        return pd.DataFrame(self._rows(query), columns=[*groups, *sums])

    def boards_since(self, *, start: datetime, end: datetime) -> Floats:
        """Return since when each board of [start, end) is to be accounted for, s of the epoch.

        Those are the boards seen in it, or both in the week before it and in the week after it.
        They count since `start`, or later where a board first appeared while others were watched:
        as long before the end of that hour as it was seen in it.
        """
        import numpy as np

        at = _HOURLY.c.slot_start
        hours = (
            sa.select(_HOURLY.c.gpu_uuid, at, sa.func.sum(_HOURLY.c.board_seconds).label("seen"))
            .where(at >= start - _LOOK_BACK, at < end + _LOOK_BACK, _HOURLY.c.board_seconds > 0)
            .group_by(_HOURLY.c.gpu_uuid, at)
            .subquery()
        )
        begun = sa.func.min(sa.extract("epoch", hours.c.slot_start) - hours.c.seen)
        boards = (
            sa.select((begun + SECONDS_PER_HOUR).label("first"))
            .group_by(hours.c.gpu_uuid)
            .having(
                sa.func.min(hours.c.slot_start) < end,
                sa.func.max(hours.c.slot_start) >= floor_to_slot(start, SECONDS_PER_HOUR),
            )
        )
        first = np.array([row.first for row in self._rows(boards)], dtype=np.float64)
        if not len(first):
            return first
        began = first.min() + SECONDS_PER_HOUR
        return np.sort(
            np.where(first <= began, start.timestamp(), np.maximum(first, start.timestamp()))
        )
