"""The facts of one week, read once from the store; rendering is `render_report`'s work."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pandas as pd

from dashboard.reports.energy_statement import EnergyStatement, factors_of, state_energy
from dashboard.reports.next_week import DayAhead, days_ahead
from dashboard.reports.waste import WasteRow, waste_rows
from dashboard.reports.week import HOURS, Week
from data.catalogue.carbon_table import GridCarbon
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.records.decisions import AuditEntry
from data.records.forecasts import ForecastSkipped
from data.records.plans import Plan
from data.settings import Settings
from data.store import StoredRecommendation, StoreReader

_TOP = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyRow:
    """One namespace, job or day: its GPU-hours, idle GPU-hours and energy."""

    key: str
    gpu_hours: float | None
    idle_gpu_hours: float | None
    statement: EnergyStatement


@dataclass(frozen=True, slots=True, kw_only=True)
class WeeklyReport:
    """Everything the report says; `fleet` is the hourly frame behind its picture.

    `waste` is what was held and idle, by namespace and owner; `decided` what people and Trimtab did
    in the week; `ahead` the forecast of the coming days.
    """

    week: Week
    as_of: datetime | None
    fleet: pd.DataFrame
    boards: float | None
    allocated_gpus: float | None
    used_gpus: float | None
    coverage_ratio: float | None
    total: EnergyStatement
    by_namespace: tuple[EnergyRow, ...]
    by_job: tuple[EnergyRow, ...]
    by_day: tuple[EnergyRow, ...]
    waste: tuple[WasteRow, ...]
    decided: tuple[AuditEntry, ...]
    recommendations: tuple[StoredRecommendation, ...]
    ahead: tuple[DayAhead, ...]
    currency: str
    plan: Plan | None
    forecasts: int
    forecasts_skipped: int
    factors: tuple[tuple[str, str], ...]

    @property
    def finding(self) -> str:
        """The week in one sentence."""
        if self.boards is None or self.allocated_gpus is None or self.used_gpus is None:
            return "No samples were kept for this week."
        proposed = sum(one.state == "proposed" for one in self.recommendations)
        noun = "recommendation waits" if proposed == 1 else "recommendations wait"
        idle = sum(row.idle_gpu_hours for row in self.waste)
        rents = [row.rent for row in self.waste if row.rent is not None]
        rent = f" ({sum(rents):,.0f} {self.currency} of rent)" if rents else ""
        return (
            f"Of {self.boards:.0f} GPUs, {self.allocated_gpus:.1f} were allocated and "
            f"{self.used_gpus:.1f} did work on average; {idle:,.0f} GPU-hours{rent} were held "
            f"and idle; {proposed} {noun} for a decision."
        )


def make_weekly_report(
    reader: StoreReader,
    *,
    week: Week,
    settings: Settings,
    carbon: GridCarbon,
    catalogue: GpuCatalogue,
) -> WeeklyReport:
    """Give the report of one week."""
    start, end = week.start, week.end
    energy = settings.energy

    def rows(by: str, top: int | None = None) -> tuple[EnergyRow, ...]:
        frame = reader.energy(start=start, end=end, by=by)
        ordered = (
            frame
            if by == "day"
            else frame.sort_values(["energy_kwh", "gpu_hours"], ascending=False, na_position="last")
        )
        return tuple(
            EnergyRow(
                key=str(row["key"]),
                gpu_hours=_known(row["gpu_hours"]),
                idle_gpu_hours=_known(row["idle_gpu_hours"]),
                statement=state_energy(_known(row["energy_kwh"]), energy=energy, carbon=carbon),
            )
            for row in ordered.head(top or len(ordered)).to_dict("records")
        )

    fleet = reader.fleet_history(start=start, end=end, slot_seconds=3600)
    totals = rows("fleet")
    forecasts = reader.forecasts()
    return WeeklyReport(
        week=week,
        as_of=reader.latest_sample_at(),
        fleet=fleet,
        boards=_mean(fleet, "boards"),
        allocated_gpus=_mean(fleet, "allocated_gpus"),
        used_gpus=_mean(fleet, "used_gpus"),
        coverage_ratio=None if fleet.empty else min(1.0, len(fleet) / HOURS),
        total=totals[0].statement if totals else state_energy(None, energy=energy, carbon=carbon),
        by_namespace=rows("namespace"),
        by_job=rows("job", _TOP),
        by_day=rows("day"),
        waste=waste_rows(reader.energy(start=start, end=end, by="job"), reader.jobs(), catalogue),
        decided=tuple(one for one in reader.audit() if start <= one.at < end),
        recommendations=reader.recommendations(now=end),
        ahead=days_ahead(reader.group_forecasts(), week),
        currency=energy.currency,
        plan=reader.latest_plan(),
        forecasts=len(forecasts),
        forecasts_skipped=sum(isinstance(one, ForecastSkipped) for one in forecasts),
        factors=factors_of(energy, carbon),
    )


def _known(value: Any) -> float | None:
    return None if value is None or value != value else float(value)


def _mean(frame: pd.DataFrame, column: str) -> float | None:
    return None if frame.empty else _known(frame[column].mean())
