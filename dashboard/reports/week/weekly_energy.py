"""The week's energy: the statement by tenant, its largest jobs, and its days."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import pandas as pd

from dashboard.accounting.energy.build import energy_of_jobs, make_statement
from dashboard.accounting.energy.periods import Calendar, PeriodLength
from dashboard.accounting.energy.statement import EsgStatement, GroupBy, StatementRow
from dashboard.reports.week.week import Week
from data.catalogue.carbon_table import load_carbon_table
from data.facts.jobs import Job
from data.settings.all_settings import Settings
from data.store import StoreReader

_TOP = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyLine:
    """A row as a report shows it, with the share of its board-time whose energy is known."""

    name: str
    row: StatementRow
    measured_ratio: float | None

    @classmethod
    def of(cls, row: StatementRow) -> "EnergyLine":
        """Return a row under its own name."""
        return cls(name=row.name, row=row, measured_ratio=row.measured_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeeklyEnergy:
    """`statement` is by tenant over the whole week; `top_jobs` are the ten that used most.

    `allocated` has the GPU-hours allocated but idle of all jobs, as `waste_rows` reads them.
    """

    statement: EsgStatement
    top_jobs: tuple[StatementRow, ...]
    allocated: pd.DataFrame
    days: EsgStatement

    @property
    def tables(self) -> tuple[tuple[str, tuple[EnergyLine, ...]], ...]:
        """The tables of a report: what their rows are, and the rows."""
        total = self.statement
        tenants = [EnergyLine.of(row) for row in total.rows]
        if tenants:
            tenants.append(
                EnergyLine(name="total", row=total.total, measured_ratio=total.completeness_ratio)
            )
        parts = (
            (total.tenant_is.replace("-", " "), tuple(tenants)),
            ("job (largest ten)", tuple(EnergyLine.of(row) for row in self.top_jobs)),
            ("day", tuple(self._days())),
        )
        return tuple((title, rows) for title, rows in parts if rows)

    def _days(self) -> Iterator[EnergyLine]:
        """Yield a line per day; what was not observed of it lowers its measured share."""
        for _start, group in groupby(self.days.rows, key=attrgetter("start")):
            rows = list(group)
            expected = sum(row.board_hours for row in rows)
            yield EnergyLine(
                name=self.days.calendar.name_of(rows[0].start),
                row=rows[0],
                measured_ratio=sum(row.measured_hours for row in rows) / expected,
            )


def weekly_energy(
    reader: StoreReader, *, week: Week, settings: Settings, jobs: Mapping[str, Job] | None
) -> WeeklyEnergy:
    """Return the energy of a week, of the whole fleet or of some jobs alone."""

    def stated(by: GroupBy, every: PeriodLength) -> EsgStatement:
        return make_statement(
            reader,
            start=week.start,
            end=week.end,
            settings=settings,
            by=by,
            calendar=Calendar(every=every, zone=week.zone),
            jobs=jobs,
        )

    top_jobs, holdings = energy_of_jobs(
        reader,
        start=week.start,
        end=week.end,
        settings=settings,
        carbon=load_carbon_table().get(settings.energy.region),
        jobs=jobs,
        most=_TOP,
    )
    return WeeklyEnergy(
        statement=stated(GroupBy.TENANT, PeriodLength.TOTAL),
        top_jobs=top_jobs,
        allocated=holdings,
        days=stated(GroupBy.FLEET, PeriodLength.DAY),
    )
