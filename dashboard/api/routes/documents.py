"""Resources that are one object each, as the commands of their names print them with --format json.

Their fields are those of the commands.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Literal, Self

from fastapi import FastAPI, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import to_json

from dashboard.accounting.cost.budgets import budget_rows
from dashboard.accounting.cost.export import (
    AllocationDocument,
    CostDocument,
    allocation_document,
)
from dashboard.accounting.cost.export import statement_document as cost_document
from dashboard.accounting.cost.focus import PERIODS, VERSION, FocusDocument, focus_rows
from dashboard.accounting.cost.groups import GROUPS, OF_BOARDS
from dashboard.accounting.cost.statement import asked_cost_statement
from dashboard.accounting.energy.export import EnergyDocument, statement_document
from dashboard.accounting.energy.query import asked_statement
from dashboard.accounting.savings.daily_savings import (
    SavedSum,
    measured_until,
    saved_by_day,
    summed,
)
from dashboard.accounting.savings.idle_bridge import IdleRow, idle_rows
from dashboard.api.http.cached_responses import Document, document, response
from dashboard.api.http.context import ApiWorld
from dashboard.common.request_times import Moment
from dashboard.reports.render.html_report import WeeklyDocument, render_json
from dashboard.reports.week.editions import WHOLE, own_edition
from dashboard.reports.week.query import asked_report
from dashboard.resources.forecast_rows import (
    GroupForecastRow,
    JobForecastRow,
    SkippedRow,
    forecast_row,
    group_row,
)
from dashboard.resources.memory_rows import MemoryRow, memory_rows
from dashboard.resources.plan_documents import PlanDocument, plan_document
from dashboard.resources.workload_rows import WorkloadRow, workload_rows
from data.settings.all_settings import Settings

ForecastDocument = list[JobForecastRow | SkippedRow] | list[GroupForecastRow] | list[WorkloadRow]
_MAX_RANGE = timedelta(days=400)


class ForecastQuery(BaseModel):
    """Whose forecasts are asked for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    by: Literal["job", "group", "workload"] = "group"
    points: bool = False


class RangeQuery(BaseModel):
    """A range that is bounded; without one, the resource says which is meant."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    start: Annotated[Moment | None, Field(alias="from")] = None
    end: Annotated[Moment | None, Field(alias="to")] = None

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        if self.end is not None and self.start is None:
            return self
        if self.start is not None and self.end is None:
            raise ValueError("give `to` with `from`")
        if (
            self.start is not None
            and self.end is not None
            and not (self.start < self.end <= self.start + _MAX_RANGE)
        ):
            raise ValueError(f"give `from` before `to`, at most {_MAX_RANGE.days} days apart")
        return self


class EnergyQuery(RangeQuery):
    """Which statement is asked for; without a range, of the 7 days before the newest sample."""

    by: Literal[
        "tenant", "namespace", "account", "owner", "job", "model", "node", "cluster", "fleet",
        "hour", "day", "week",
    ] = "tenant"  # fmt: skip
    every: Literal["total", "hour", "day", "week"] = "total"


class StatementQuery(RangeQuery):
    """Which statement of cost is asked for; without a range, of the month so far."""

    by: Annotated[str, Field(pattern=f"^({'|'.join(GROUPS)})(,({'|'.join(GROUPS)}))*$")] = "tenant"
    every: Literal["total", "hour", "day", "week", "month"] = "total"
    form: Annotated[Literal["json", "focus", "opencost"], Field(alias="format")] = "json"
    budgets: bool = False

    @model_validator(mode="after")
    def _can_be_charged(self) -> Self:
        periods = [str(period) for period in PERIODS]
        of_boards = set(OF_BOARDS).intersection(self.by.split(","))
        if self.form == "focus" and (self.every not in periods or of_boards):
            raise ValueError(
                "FOCUS charges are by hour or day: give `every`, and not by board or cluster"
            )
        return self


class SavedQuery(BaseModel):
    """What the rows are of."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    by: Literal["finding", "day", "namespace"] = "finding"


class ReportQuery(BaseModel):
    """Which 168 hours: before a time or the newest sample, or the last whole week before it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    end: Annotated[Moment | None, Field(alias="to")] = None
    last_week: bool = False


def add_documents(api: FastAPI, world: ApiWorld, *, anyone: Any, viewer: Any) -> None:
    """Add the resources: to `anyone` what they may see of each, to `viewer` what is the fleet's."""

    @api.get("/plan", response_model=PlanDocument)
    def plan(request: Request, _who: viewer) -> Response:
        """Return the plan of the latest cycle."""
        return _answer(world, request, ("plan",), lambda: plan_document(world.latest_plan()))

    @api.get("/idle", response_model=list[IdleRow])
    def idle(request: Request, who: anyone) -> Response:
        """Return what jobs hold and do not use, what becomes of it, and why it stays."""
        mine = world.of(who)
        return _answer(mine, request, ("idle",), lambda: idle_rows(mine.latest_plan()))

    @api.get("/forecasts", response_model=ForecastDocument)
    def forecasts(
        request: Request, who: anyone, query: Annotated[ForecastQuery, Query()]
    ) -> Response:
        """Return the forecasts of the latest cycle with what they were worth in the past."""
        mine = world.of(who)
        return _answer(mine, request, ("forecasts", query), partial(_forecasts, mine, query))

    @api.get("/memory", response_model=list[MemoryRow])
    def memory(request: Request, who: anyone) -> Response:
        """Return every running job's GPU memory against its limit."""
        mine = world.of(who)
        seconds = 60 * mine.service.settings().planning.slot_minutes
        rows = partial(memory_rows, mine.reader, slot_seconds=seconds)
        return _answer(mine, request, ("memory", seconds), rows)

    @api.get("/statement", response_model=CostDocument | FocusDocument | AllocationDocument)
    def statement(
        request: Request, _who: viewer, query: Annotated[StatementQuery, Query()]
    ) -> Response:
        """Return what the fleet costs, by whom; also as FOCUS or OpenCost have it."""
        settings = world.service.settings()
        compute = partial(_statement, world, settings, query)
        return _answer(world, request, ("statement", query, settings), compute)

    _add_accounts(api, world, anyone)


def _answer(
    world: ApiWorld, request: Request, key: tuple[Any, ...], make: Callable[[], object]
) -> Response:
    def compute() -> Document:
        return document(to_json(make(), inf_nan_mode="null"))

    return response(request, world.cache.get(("document", *key), compute))


def _add_accounts(api: FastAPI, world: ApiWorld, anyone: Any) -> None:
    @api.get("/energy", response_model=EnergyDocument)
    def energy(request: Request, who: anyone, query: Annotated[EnergyQuery, Query()]) -> Response:
        """Return energy, emissions and cost with their factors, and what was not measured."""
        mine, settings = world.of(who), world.service.settings()
        compute = partial(_energy, mine, settings, query)
        return _answer(mine, request, ("energy", query, settings), compute)

    @api.get("/savings/to-date", response_model=list[SavedSum])
    def savings(request: Request, who: anyone, query: Annotated[SavedQuery, Query()]) -> Response:
        """Return what was saved so far; the last row is the total."""
        mine, settings = world.of(who), world.service.settings()

        def sums() -> object:
            days = saved_by_day(mine.reader, settings, now=mine.clock())
            until = measured_until(mine.reader, settings)
            return (*summed(days, query.by, at=until), *summed(days, "all", at=until))

        return _answer(mine, request, ("savings", query, settings), sums)

    @api.get("/reports/weekly", response_model=WeeklyDocument)
    def weekly(request: Request, who: anyone, query: Annotated[ReportQuery, Query()]) -> Response:
        """Return the weekly report, to an owner that of their own jobs."""
        mine, settings = world.of(who), world.service.settings()
        edition = own_edition(who.person.name) if who.role == "owner" else WHOLE

        def compute() -> Document:
            report = asked_report(
                mine.reader, settings, end=query.end, last_week=query.last_week, edition=edition
            )
            return document(render_json(report).encode())

        return response(request, mine.cache.get(("report", query, settings), compute))


def _forecasts(world: ApiWorld, query: ForecastQuery) -> ForecastDocument:
    if query.by == "job":
        forecasts = world.reader.forecasts()
        return [forecast_row(forecast, points=query.points) for forecast in forecasts]
    if query.by == "workload":
        settings = world.service.settings()
        return workload_rows(world.reader, settings, points=query.points)
    return [group_row(group, points=query.points) for group in world.reader.group_forecasts()]


def _energy(world: ApiWorld, settings: Settings, query: EnergyQuery) -> EnergyDocument:
    statement = asked_statement(
        world.reader, settings, by=query.by, every=query.every, start=query.start, end=query.end
    )
    return statement_document(statement)


def _statement(
    world: ApiWorld, settings: Settings, query: StatementQuery
) -> CostDocument | FocusDocument | AllocationDocument:
    statement = asked_cost_statement(
        world.reader,
        settings,
        by=list(dict.fromkeys(query.by.split(","))),
        every=query.every,
        start=query.start,
        end=query.end,
    )
    if query.form == "focus":
        return FocusDocument(version=VERSION, rows=focus_rows(statement, settings))
    if query.form == "opencost":
        return allocation_document(statement)
    budgets = budget_rows(world.reader, settings, at=statement.end) if query.budgets else ()
    return cost_document(statement, budgets)
