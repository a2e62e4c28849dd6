"""Makes the energy and ESG statement from the store: the one place that does."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dashboard.accounting.energy.amounts import NOTHING, priced, row_of, sums_of
from dashboard.accounting.energy.factors import Factors, factors_from
from dashboard.accounting.energy.periods import (
    WHOLE_RANGE,
    Calendar,
    PeriodLength,
    require_whole_slots,
)
from dashboard.accounting.energy.statement import EsgStatement, GroupBy, Holder, StatementRow
from dashboard.accounting.energy.work_units import UnitScore, finished_runs, unit_scores
from data.base.clock import ceil_to_slot, stretches_of_offset, utc_now
from data.base.errors import BadRangeError
from data.base.units import SECONDS_PER_HOUR, SLOT_SECONDS
from data.catalogue.carbon_table import GridCarbon, load_carbon_table
from data.facts.cluster_names import MAIN_CLUSTER, cluster_in
from data.facts.jobs import Job
from data.records.recommendations import Range
from data.settings.all_settings import Settings
from data.settings.reports import WEEKDAYS
from data.store import StoreReader
from data.store.facts.energy_parts import NO_NAME, EnergyKey

Floats = npt.NDArray[np.float64]
_JOBS_NAMES = (GroupBy.TENANT, GroupBy.NAMESPACE, GroupBy.ACCOUNT, GroupBy.OWNER)
_ROUNDING_TOLERANCE = 1e-6
_RANGE = timedelta(days=7)
_PERIODS = frozenset(PeriodLength) - {PeriodLength.TOTAL}


def asked_statement(
    reader: StoreReader,
    settings: Settings,
    *,
    by: str,
    every: str,
    start: datetime | None,
    end: datetime | None,
) -> EsgStatement:
    """Return the statement by a group, or by a period of the whole fleet.

    It begins 7 days before its end, and ends with the newest sample, unless told otherwise. Errors:
    BadRangeError, also for times within five minutes.
    """
    require_whole_slots(start, end)
    end = end or min(utc_now(), reader.latest_sample_at() or utc_now())
    start = start or ceil_to_slot(end - _RANGE, SLOT_SECONDS)
    if start >= end:
        raise BadRangeError(
            f"from {start:%Y-%m-%dT%H:%MZ} is not before to {end:%Y-%m-%dT%H:%MZ}",
            "Give an earlier `from`; `to` is the newest sample unless it is given.",
        )
    group = GroupBy.FLEET if by in _PERIODS else GroupBy(by)
    return make_statement(
        reader,
        start=start,
        end=end,
        settings=settings,
        by=group,
        calendar=calendar_of(settings, PeriodLength(by if by in _PERIODS else every)),
    )


def make_statement(
    reader: StoreReader,
    *,
    start: datetime,
    end: datetime,
    settings: Settings,
    by: GroupBy = GroupBy.FLEET,
    calendar: Calendar = WHOLE_RANGE,
    carbon: GridCarbon | None = None,
    jobs: Mapping[str, Job] | None = None,
) -> EsgStatement:
    """Return the statement of [start, end), in rows by group and period of the calendar.

    With `jobs`, of those alone: nothing of what others or nobody held enters it. A range that ends
    within a 5-minute slot takes the whole slot. Without `carbon` it is that of the settings'
    region. Errors: SettingsError for a region that is not in the table.
    """
    grid = carbon or load_carbon_table().get(settings.energy.region)
    factors = factors_from(settings.energy, grid)
    tenant_is = tenant_key(settings)
    parts = read_parts(
        reader, start, end, key=_key_of(by, tenant_is, jobs), calendar=calendar, factors=factors
    )
    if jobs is not None:
        parts = _only(parts, jobs, by=by, tenant_is=tenant_is)
    elif by is GroupBy.CLUSTER:
        parts = parts.assign(holder=Holder.ANY.value)
    amounts = priced(parts, factors)
    since = None if jobs is not None else reader.boards_since(start=start, end=end)
    rows = _all_rows(amounts, since, dict(calendar.spans(start, end)), factors)
    groups = (
        rows
        if calendar.every is PeriodLength.TOTAL
        else _all_rows(amounts.assign(start=start), since, {start: end}, factors)
    )
    total = _total(amounts, start, end, factors)
    expected = None if since is None else expected_hours(since, start, end)
    hours_by_model = amounts.groupby("gpu_model", sort=True)["board_hours"].sum()
    models = {str(model): float(hours) for model, hours in hours_by_model.items()}
    return EsgStatement(
        start=start,
        end=end,
        as_of=reader.latest_sample_at(),
        by=by,
        tenant_is=tenant_is,
        calendar=calendar,
        total=total,
        rows=rows,
        groups=groups,
        expected_hours=None if expected is None else max(expected, total.board_hours),
        models=models,
        factors=factors,
        unit_scores=_unit_scores(reader, start, end, factors=factors, jobs=jobs),
    )


def energy_of_jobs(
    reader: StoreReader,
    *,
    start: datetime,
    end: datetime,
    settings: Settings,
    carbon: GridCarbon,
    jobs: Mapping[str, Job] | None,
    most: int,
) -> tuple[tuple[StatementRow, ...], pd.DataFrame]:
    """Return the `most` rows of largest energy of the statement by job, and what all jobs held.

    The frame has key, gpu_model, gpu_hours and idle_gpu_hours (NaN: unknown). A large fleet has
    tens of thousands of jobs in a week, and a report shows ten: a record is made of these alone.
    """
    factors = factors_from(settings.energy, carbon)
    parts = read_parts(reader, start, end, key=EnergyKey.JOB, calendar=WHOLE_RANGE, factors=factors)
    if jobs is not None:
        parts = _only(parts, jobs, by=GroupBy.JOB, tenant_is="")
    amounts = priced(parts[parts["holder"] == Holder.JOB.value], factors)
    sums = sums_of(amounts, ["key"]).reset_index()
    sums = sums.sort_values(
        "kwh_joules", ascending=False, kind="stable", key=lambda kwh: kwh.fillna(0.0)
    )
    boards = sums_of(amounts, ["key", "gpu_model"]).reset_index()
    hours = boards["held_hours"].fillna(0.0)
    holdings = boards[["key", "gpu_model"]].assign(
        gpu_hours=hours, idle_gpu_hours=boards["idle_hours"].where(hours != 0, 0.0)
    )
    largest = amounts[amounts["key"].isin(sums["key"].iloc[:most])]
    rows = _rows(largest, dict(WHOLE_RANGE.spans(start, end)), factors)
    return tuple(sorted(rows, key=_place)), holdings


def calendar_of(settings: Settings, every: PeriodLength) -> Calendar:
    """Return the calendar of the weekly report: its zone, and weeks that begin where its ends."""
    return Calendar(
        every=every,
        zone=settings.report.timezone,
        week_begins=WEEKDAYS.index(settings.report.week_ends),
    )


def tenant_key(settings: Settings) -> str:
    """Return what a tenant is in statements, which always have some."""
    by = settings.tenants.by
    return EnergyKey.ACCOUNT_OR_NAMESPACE.value if by == "none" else by


def _key_of(by: GroupBy, tenant_is: str, jobs: Mapping[str, Job] | None) -> EnergyKey:
    if jobs is not None:
        if by is GroupBy.NODE:
            raise ValueError("the statement of single jobs is not told apart by node")
        return EnergyKey.JOB
    return EnergyKey(tenant_is if by is GroupBy.TENANT else by.value)


def read_parts(
    reader: StoreReader,
    start: datetime,
    end: datetime,
    *,
    key: EnergyKey,
    calendar: Calendar,
    factors: Factors,
    since: datetime | None = None,
) -> pd.DataFrame:
    """Read the parts piece by piece, with the start of the period of each, from `since` on."""
    frames = []
    stretches = (
        (piece, *stretch)
        for piece in calendar.pieces(start, end)
        for stretch in (
            stretches_of_offset(piece.start, piece.end, factors.zone)
            if factors.zone
            else [(piece.start, piece.end, None)]
        )
    )
    for piece, from_, until, hour_shift in stretches:
        frame = reader.energy_parts(
            start=from_, end=until, key=key, periods=piece.grid, hour_shift=hour_shift
        )
        starts = {
            number: calendar.start_of(int(number), since or start)
            for number in frame["period"].unique()
        }
        frame["start"] = frame["period"].map(starts)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]


def _only(
    parts: pd.DataFrame, jobs: Mapping[str, Job], *, by: GroupBy, tenant_is: str
) -> pd.DataFrame:
    """Keep the parts of some jobs, and name them by what is asked for."""
    rows = parts[(parts["holder"] == Holder.JOB.value) & parts["key"].isin(list(jobs))].copy()
    if by in _JOBS_NAMES:
        field = tenant_is if by is GroupBy.TENANT else by.value
        rows["key"] = [jobs[key].tenant(field) or NO_NAME for key in rows["key"]]
    elif by is GroupBy.CLUSTER:
        rows["key"] = [cluster_in(key) or MAIN_CLUSTER for key in rows["key"]]
        rows["holder"] = Holder.ANY.value
    elif by is not GroupBy.JOB:
        rows["key"] = rows["gpu_model"] if by is GroupBy.MODEL else GroupBy.FLEET.value
        rows["holder"] = Holder.ANY.value
    return rows


def _all_rows(
    amounts: pd.DataFrame,
    since: Floats | None,
    spans: Mapping[datetime, datetime],
    factors: Factors,
) -> tuple[StatementRow, ...]:
    """Return rows of all periods in order, with what was not observed of boards `since` when."""
    rows = list(_rows(amounts, spans, factors))
    if since is not None:
        rows += _missing(rows, since, spans, factors)
    return tuple(sorted(rows, key=_place))


def _rows(
    amounts: pd.DataFrame, spans: Mapping[datetime, datetime], factors: Factors
) -> Iterator[StatementRow]:
    for record in sums_of(amounts, ["start", "holder", "key"]).reset_index().to_dict("records"):
        sums: dict[Any, Any] = record
        start = sums["start"].to_pydatetime()
        yield row_of(
            sums,
            start=start,
            end=spans[start],
            holder=Holder(sums["holder"]),
            key=str(sums["key"]),
            factors=factors,
        )


def _total(amounts: pd.DataFrame, start: datetime, end: datetime, factors: Factors) -> StatementRow:
    everything = sums_of(amounts.assign(all="all"), ["all"])
    sums: Any = everything.iloc[0] if len(everything) else NOTHING
    return row_of(sums, start=start, end=end, holder=Holder.ANY, key="total", factors=factors)


def expected_hours(since: Floats, start: datetime, end: datetime) -> float:
    """Return the board-hours of [start, end) of boards that are to be accounted for since.

    As in what was observed, a 5-minute slot that `start` cuts belongs to the time before.
    """
    begin, until = ceil_to_slot(start, SLOT_SECONDS).timestamp(), end.timestamp()
    return float(np.clip(until - np.maximum(since, begin), 0, None).sum() / SECONDS_PER_HOUR)


def _missing(
    rows: list[StatementRow],
    since: Floats,
    spans: Mapping[datetime, datetime],
    factors: Factors,
) -> list[StatementRow]:
    """Return a row per period for the board-time that nobody observed: all of it unknown."""
    observed = dict.fromkeys(spans, 0.0)
    for row in rows:
        observed[row.start] += row.board_hours
    gaps = []
    for start, end in spans.items():
        hours = expected_hours(since, start, end) - observed[start]
        if hours > _ROUNDING_TOLERANCE:
            gaps.append(
                row_of(
                    NOTHING | {"board_hours": hours},
                    start=start,
                    end=end,
                    holder=Holder.MISSING,
                    key="",
                    factors=factors,
                )
            )
    return gaps


_HOLDERS = (Holder.JOB, Holder.ANY, Holder.UNATTRIBUTED, Holder.FREE, Holder.MISSING)


def _place(row: StatementRow) -> tuple[datetime, bool, float, int, str]:
    """Order by time; jobs' rows by energy, then what is nobody's, then what was not observed."""
    energy = row.gpu_energy_kwh.central if row.gpu_energy_kwh else 0.0
    nobodys = row.holder not in (Holder.JOB, Holder.ANY)
    return (row.start, nobodys, 0.0 if nobodys else -energy, _HOLDERS.index(row.holder), row.key)


def _unit_scores(
    reader: StoreReader,
    start: datetime,
    end: datetime,
    *,
    factors: Factors,
    jobs: Mapping[str, Job] | None,
) -> tuple[UnitScore, ...]:
    """Score the runs that began and finished in the range and say how many tokens they did."""
    runs = finished_runs(reader.submissions(), start=start, end=end)
    runs = {job: tokens for job, tokens in runs.items() if jobs is None or job in jobs}
    if not runs:
        return ()
    parts = read_parts(reader, start, end, key=EnergyKey.JOB, calendar=WHOLE_RANGE, factors=factors)
    amounts = priced(parts[parts["key"].isin(list(runs))], factors)
    rows = _rows(amounts, dict(WHOLE_RANGE.spans(start, end)), factors)
    return unit_scores(runs, {row.key: _whole_emissions(row) for row in rows})


def _whole_emissions(row: StatementRow) -> Range | None:
    """Return location-based and embodied emissions of a row whose whole time is known."""
    is_complete = min(row.measured_hours, row.embodied_hours) >= 0.99 * row.board_hours
    if not is_complete or row.location_kgco2e is None or row.embodied_kgco2e is None:
        return None
    one, other = row.location_kgco2e, row.embodied_kgco2e
    return Range(
        low=one.low + other.low,
        central=one.central + other.central,
        high=one.high + other.high,
        unit=one.unit,
    )
