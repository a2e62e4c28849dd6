"""Reading for pages: some of many jobs, and forecasts added up instead of handed over."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from data.base.units import known
from data.facts.job_pages import JobFilter, JobPage, JobUse
from data.facts.jobs import Job
from data.records.forecasts import (
    Backtest,
    DemandForecast,
    ForecastSkipped,
    ForecastSummary,
    ForecastTest,
    LeadAccuracy,
    QuantilePath,
    Quantity,
    lead_means,
)
from data.store.engine import tables
from data.store.engine.record_json import build, from_json
from data.store.facts import job_sql
from data.store.facts.fact_reader import FactReader, slots_of

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

_LEVELS = ("q10", "q50", "q90")
_OF_USE = tuple(field.name for field in fields(JobUse) if field.name != "job")


class PageReader(FactReader):
    """Queries for pages of a large fleet; nothing here writes."""

    def job_page(
        self,
        job_filter: JobFilter,
        *,
        start: datetime,
        end: datetime,
        running_since: datetime,
        order: str,
        most: int,
        skipped: int = 0,
    ) -> JobPage:
        """Return `most` jobs from the `skipped`-th on, with their use in (start, end].

        `order` is a name of `job_sql.ORDERS`, the largest first; unknown use comes last.
        """
        filters = {name: value for name, value in job_filter.fields if value}
        flags = {"searched": bool(job_filter.search), "running": job_filter.running}
        values = {**filters, **slots_of(start, end), "running_since": running_since}
        if job_filter.search:
            values["search"] = job_filter.search.lower()
        names = tuple(sorted(filters))
        sums = self._frame(job_sql.job_totals(names, **flags), **values)
        query = job_sql.job_page(names, order, **flags)
        if not job_filter.running:
            del values["running_since"]
        rows = self._frame(query, **values, most=most, skipped=skipped)
        jobs = self._completed(from_json(Job, record) for record in rows["record"])
        total = sums.iloc[0]
        return JobPage(
            rows=tuple(
                JobUse(job=job, **{name: known(getattr(row, name)) for name in _OF_USE})
                for job, row in zip(jobs, rows.itertuples(), strict=True)
            ),
            found=int(total["found"]),
            running=int(total["running"]),
            gpu_hours=known(total["gpu_hours"]),
            idle_gpu_hours=known(total["idle_gpu_hours"]),
            energy_kwh=known(total["energy_kwh"]),
        )

    def job_choices(self) -> dict[str, tuple[str, ...]]:
        """Return the values of each filter of jobs (see `JobFilter`), without the empty one."""
        rows = self._rows(sa.text(job_sql.CHOICES))
        return {
            name: tuple(sorted({value for row in rows if (value := getattr(row, name))}))
            for name in job_sql.FIELDS
        }

    def job_holders(self, *, seen_since: datetime) -> pd.DataFrame:
        """Return the holders of the jobs seen since then, as `holders_of` says."""
        query = sa.text(job_sql.HOLDERS).bindparams(seen_since=seen_since)
        return holders_of(self._rows(query))

    def similar_jobs(self, job: Job, *, most: int) -> tuple[Job, ...]:
        """Return the latest jobs of the same kind, owner, namespace and GPU model."""
        names = ("namespace", "owner", "gpu_model", "kind", "job_id")
        values = {name: str(getattr(job, name)) for name in names}
        return self._records(Job, sa.text(job_sql.SIMILAR).bindparams(**values, most=most))

    def job_hours(self, job_ids: tuple[str, ...], *, start: datetime) -> pd.DataFrame:
        """Return per job and hour from `start` on what it held and did.

        Columns job_id, slot_start, gpu_hours, used_gpu_hours, idle_gpu_hours, energy_kwh.
        """
        return self._frame(job_sql.RUNS, job_ids=list(job_ids), start=start)

    def forecast(
        self, job_id: str, *, plan_id: str = ""
    ) -> DemandForecast | ForecastSkipped | None:
        """Return the forecast of one job behind a plan, by default the latest; None without one."""
        cycle = sa.select(tables.cycles.c.cycle_id).where(tables.cycles.c.plan_id == plan_id)
        rows = self._rows(
            sa.select(tables.forecasts.c.skipped, tables.forecasts.c.record).where(
                tables.forecasts.c.cycle_id.in_(cycle)
                if plan_id
                else tables.forecasts.c.cycle_id == newest_cycle(),
                tables.forecasts.c.job_id == job_id,
            )
        )
        return forecast_of(rows[0]) if rows else None

    def forecasts_of(self, quantity: Quantity) -> tuple[DemandForecast, ...]:
        """Return the latest cycle's forecasts with the path and peaks of one quantity alone.

        All quantities of a large fleet are ten times as long to make records of, and of one
        path the weights of the mix are a third: they are left out.
        """
        forecasts = []
        for forecast in self._known_forecasts():
            parts = {
                name: [part for part in forecast.get(name, ()) if part["quantity"] == quantity]
                for name in ("paths", "peaks")
            }
            parts["paths"] = [{**part, "weights": []} for part in parts["paths"]]
            if parts["paths"]:
                forecasts.append(build(DemandForecast, {**forecast, **parts}))
        return tuple(forecasts)

    def forecast_counts(self) -> tuple[int, int]:
        """Return the numbers of jobs that the latest cycle forecast, and could not forecast."""
        rows = self._rows(
            sa.select(tables.forecasts.c.skipped, sa.func.count().label("jobs"))
            .where(tables.forecasts.c.cycle_id == newest_cycle())
            .group_by(tables.forecasts.c.skipped)
        )
        counts = {bool(row.skipped): int(row.jobs) for row in rows}
        return counts.get(False, 0), counts.get(True, 0)

    def forecast_jobs(self) -> tuple[tuple[str, bool], ...]:
        """Return the jobs of the latest cycle, and of each whether it could not be forecast."""
        forecasts = tables.forecasts.c
        rows = self._rows(
            sa.select(forecasts.job_id, forecasts.skipped)
            .where(forecasts.cycle_id == newest_cycle())
            .order_by(forecasts.position)
        )
        return tuple((row.job_id, bool(row.skipped)) for row in rows)

    def skipped_forecasts(self) -> tuple[ForecastSkipped, ...]:
        """Return the jobs that the latest cycle could not forecast, and why."""
        forecasts = tables.forecasts.c
        skipped = sa.select(forecasts.record).where(
            forecasts.cycle_id == newest_cycle(), forecasts.skipped
        )
        return self._records(ForecastSkipped, skipped.order_by(forecasts.position))

    def forecast_tests(self, job_ids: tuple[str, ...] | None = None) -> tuple[ForecastTest, ...]:
        """Return the tests of every path of the latest cycle's forecasts, of all jobs or some."""
        return tuple(
            ForecastTest(
                job_id=forecast["job_id"],
                borrowed_from=forecast.get("borrowed_from", ""),
                quantity=Quantity(path["quantity"]),
                model=path["model"],
                backtest=path["backtest"] and build(Backtest, path["backtest"]),
                notes=tuple(path.get("notes", ())),
                winsorised_slots=path.get("winsorised_slots", 0),
                censored_slots=path.get("censored_slots", 0),
            )
            for forecast in self._known_forecasts(job_ids)
            for path in forecast["paths"]
        )

    def demand_total(self) -> tuple[tuple[datetime, ...], QuantilePath] | None:
        """Add up the GPUs that the latest cycle's jobs will use, as if all peaked together.

        Jobs count whose forecasts share the first one's slots; None when there are none.
        """
        return self.forecast_summary().demand

    def forecast_summary(self) -> ForecastSummary:
        """Return the sum of the latest cycle's forecasts, and the results of their tests.

        Every forecast is read for it.
        """
        demand, tested, series = _Demand(), list[LeadAccuracy](), 0
        for forecast in self._known_forecasts():
            demand.add(forecast)
            backtests = [path["backtest"] for path in forecast["paths"] if path["backtest"]]
            series += len(backtests)
            tested += [
                LeadAccuracy(**lead) for test in backtests for lead in test.get("by_lead", ())
            ]
        return ForecastSummary(demand=demand.total(), series=series, leads=lead_means(tested))

    def _known_forecasts(self, job_ids: tuple[str, ...] | None = None) -> Iterator[dict[str, Any]]:
        """Return the documents of the latest cycle's forecasts, without making records of them."""
        forecasts = tables.forecasts.c
        condition = sa.true() if job_ids is None else forecasts.job_id.in_(job_ids)
        rows = self._rows(
            sa.select(forecasts.record)
            .where(forecasts.cycle_id == newest_cycle(), sa.not_(forecasts.skipped), condition)
            .order_by(forecasts.position)
        )
        return (json.loads(row.record) for row in rows)


def forecast_of(row: Any) -> DemandForecast | ForecastSkipped:
    """Return what a row of the forecasts holds."""
    if row.skipped:
        return from_json(ForecastSkipped, row.record)
    return from_json(DemandForecast, row.record)


def holders_of(jobs: Iterable[Job | sa.Row[Any]]) -> pd.DataFrame:
    """Return job_id, namespace and owner of jobs, or of rows with these."""
    import pandas as pd

    names = ["job_id", "namespace", "owner"]
    rows = [[getattr(job, name) for name in names] for job in jobs]
    return pd.DataFrame(rows, columns=names, dtype="str")


class _Demand:
    """Adds up the GPUs in use that jobs' forecasts foresee, of those that share slots."""

    def __init__(self) -> None:
        self._slots: list[str] | None = None
        self._sums: np.ndarray[tuple[int, ...], np.dtype[np.float64]] | None = None

    def add(self, forecast: dict[str, Any]) -> None:
        """Add the document of one job's forecast."""
        import numpy as np

        self._slots = self._slots or forecast["slot_starts"]
        paths = [path for path in forecast["paths"] if path["quantity"] == Quantity.EFFECTIVE_GPUS]
        if forecast["slot_starts"] == self._slots and paths:
            values = np.array([paths[0][level] for level in _LEVELS], dtype=np.float64)
            self._sums = values if self._sums is None else self._sums + values

    def total(self) -> tuple[tuple[datetime, ...], QuantilePath] | None:
        """Return the slots and the sum, None when nothing was added."""
        if self._slots is None or self._sums is None:
            return None
        low, middle, high = (tuple(row) for row in self._sums.tolist())
        return tuple(datetime.fromisoformat(at) for at in self._slots), QuantilePath(
            quantity=Quantity.EFFECTIVE_GPUS,
            model="sum of jobs",
            q10=low,
            q50=middle,
            q90=high,
            backtest=None,
        )


def newest_cycle() -> sa.ScalarSelect[str]:
    """Return the id of the latest cycle, as part of a question."""
    return (
        sa.select(tables.cycles.c.cycle_id).order_by(tables.cycles.c.sequence.desc()).limit(1)
    ).scalar_subquery()
