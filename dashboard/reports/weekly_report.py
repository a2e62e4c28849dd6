"""The facts of one week, read once from the store; rendering is `render_report`'s work."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pandas as pd

from dashboard.reports.editions import WHOLE, Edition
from dashboard.reports.energy_statement import EnergyStatement, factors_of, state_energy
from dashboard.reports.next_week import DayAhead, days_ahead
from dashboard.reports.waste import WasteRow, waste_rows
from dashboard.reports.week import HOURS, Week
from data.catalogue.carbon_table import GridCarbon
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.records.decisions import AuditEntry
from data.records.forecasts import ForecastSkipped
from data.records.jobs import Job
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
    edition: Edition
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
        if self.edition != WHOLE:
            return self._own_finding()
        if self.boards is None or self.allocated_gpus is None or self.used_gpus is None:
            return "No samples were kept for this week."
        return (
            f"Of {self.boards:.0f} GPUs, {self.allocated_gpus:.1f} were allocated and "
            f"{self.used_gpus:.1f} did work on average; {self._idle()}; {self._waiting()}."
        )

    def _own_finding(self) -> str:
        held = sum(row.gpu_hours or 0.0 for row in self.by_namespace)
        if not held:
            return f"No job of {self.edition.kind} {self.edition.name} held a GPU in this week."
        return (
            f"The jobs of {self.edition.kind} {self.edition.name} held {held:,.0f} GPU-hours; "
            f"{self._idle()}; {self._waiting()}."
        )

    def _idle(self) -> str:
        idle = sum(row.idle_gpu_hours for row in self.waste)
        rents = [row.rent for row in self.waste if row.rent is not None]
        rent = f" ({sum(rents):,.0f} {self.currency} of rent)" if rents else ""
        return f"{idle:,.0f} GPU-hours{rent} were held and idle"

    def _waiting(self) -> str:
        proposed = sum(one.state == "proposed" for one in self.recommendations)
        noun = "recommendation waits" if proposed == 1 else "recommendations wait"
        return f"{proposed} {noun} for a decision"


def make_weekly_report(
    reader: StoreReader,
    *,
    week: Week,
    settings: Settings,
    carbon: GridCarbon,
    catalogue: GpuCatalogue,
    edition: Edition = WHOLE,
) -> WeeklyReport:
    """Give the report of one week, or the edition of it that a namespace or an owner gets."""
    energy = settings.energy
    whole = edition == WHOLE
    jobs = edition.jobs(reader.jobs())
    by_job = reader.energy(start=week.start, end=week.end, by="job")

    def rows(frame: pd.DataFrame) -> tuple[EnergyRow, ...]:
        return tuple(
            EnergyRow(
                key=str(row["key"]),
                gpu_hours=_known(row["gpu_hours"]),
                idle_gpu_hours=_known(row["idle_gpu_hours"]),
                statement=state_energy(_known(row["energy_kwh"]), energy=energy, carbon=carbon),
            )
            for row in frame.to_dict("records")
        )

    def summed(by: str) -> pd.DataFrame:
        return reader.energy(start=week.start, end=week.end, by=by)

    if not whole:
        by_job = by_job[by_job["key"].isin(list(jobs))]
    namespaces = summed("namespace") if whole else _by_namespace(by_job, jobs)
    fleet = reader.fleet_history(start=week.start, end=week.end, slot_seconds=3600)
    totals = rows(summed("fleet") if whole else _total(by_job))
    recommendations = tuple(
        one
        for one in reader.recommendations(now=week.end)
        if whole or one.recommendation.job_id in jobs
    )
    ours = {one.recommendation.digest for one in recommendations}
    forecasts = [one for one in reader.forecasts() if whole or one.job_id in jobs]
    return WeeklyReport(
        week=week,
        edition=edition,
        as_of=reader.latest_sample_at(),
        fleet=fleet if whole else fleet.iloc[:0],
        boards=_mean(fleet, "boards") if whole else None,
        allocated_gpus=_mean(fleet, "allocated_gpus") if whole else None,
        used_gpus=_mean(fleet, "used_gpus") if whole else None,
        coverage_ratio=None if fleet.empty else min(1.0, len(fleet) / HOURS),
        total=totals[0].statement if totals else state_energy(None, energy=energy, carbon=carbon),
        by_namespace=rows(_largest(namespaces)),
        by_job=rows(_largest(by_job).head(_TOP)),
        by_day=rows(summed("day")) if whole else (),
        waste=waste_rows(by_job, jobs.values(), catalogue),
        decided=tuple(
            one
            for one in reader.audit()
            if week.start <= one.at < week.end and (whole or one.digest in ours)
        ),
        recommendations=recommendations,
        ahead=days_ahead(reader.group_forecasts(), week, edition),
        currency=energy.currency,
        plan=reader.latest_plan() if whole else None,
        forecasts=len(forecasts),
        forecasts_skipped=sum(isinstance(one, ForecastSkipped) for one in forecasts),
        factors=factors_of(energy, carbon),
    )


_SUMMED = ["energy_kwh", "gpu_hours", "idle_gpu_hours"]


def _by_namespace(by_job: pd.DataFrame, jobs: Mapping[str, Job]) -> pd.DataFrame:
    """Add jobs up by their namespace; a sum with an unknown part is that of the known ones."""
    names = by_job["key"].map(lambda key: jobs[key].namespace)
    return by_job[_SUMMED].groupby(names.rename("key")).sum(min_count=1).reset_index()


def _total(by_job: pd.DataFrame) -> pd.DataFrame:
    return by_job[_SUMMED].sum(min_count=1).to_frame().T.assign(key="all")


def _largest(frame: pd.DataFrame) -> pd.DataFrame:
    """Sort by energy, then by GPU-hours, largest first."""
    return frame.sort_values(["energy_kwh", "gpu_hours"], ascending=False, na_position="last")


def _known(value: Any) -> float | None:
    return None if value is None or value != value else float(value)


def _mean(frame: pd.DataFrame, column: str) -> float | None:
    return None if frame.empty else _known(frame[column].mean())
