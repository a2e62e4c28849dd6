"""Statements, the report and estimates as one object each, and the table of all such resources."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from dashboard.accounting.cost.budgets import budget_rows
from dashboard.accounting.cost.export import (
    AllocationDocument,
    CostDocument,
    allocation_document,
)
from dashboard.accounting.cost.export import statement_document as cost_document
from dashboard.accounting.cost.focus import (
    FORECAST_BY,
    PERIODS,
    VERSION,
    FocusDocument,
    focus_rows,
    forecast_rows,
)
from dashboard.accounting.cost.groups import BOARD_GROUPS, GROUPS
from dashboard.accounting.cost.statement import asked_cost_statement
from dashboard.accounting.energy.build import asked_statement
from dashboard.accounting.energy.export import EnergyDocument, statement_document
from dashboard.accounting.energy.score import Score, asked_score
from dashboard.accounting.savings.daily_savings import (
    SavedSum,
    measured_until,
    saved_by_day,
    summed,
)
from dashboard.common.request_times import Moment
from dashboard.reports.render.html_report import WeeklyDocument, weekly_document
from dashboard.reports.week.weekly_report import asked_report
from dashboard.resources.memory_rows import MEMORY
from dashboard.resources.plan_documents import IDLE, PLAN, WHAT_IF
from dashboard.resources.queue_rows import WAIT
from dashboard.resources.resource import NoQuery, RangeQuery, Resource, View
from dashboard.resources.workload_rows import FORECASTS
from dashboard.submission.estimates.query import EstimateDocument, EstimateRequest, estimate_answer
from dashboard.submission.job.model_source import read_model


class EnergyQuery(RangeQuery):
    """The statement to give; without a range, of the 7 days before the newest sample."""

    by: Literal[
        "tenant", "namespace", "account", "owner", "job", "model", "node", "cluster", "fleet",
        "hour", "day", "week",
    ] = "tenant"  # fmt: skip
    every: Literal["total", "hour", "day", "week"] = "total"


def _energy(view: View, query: EnergyQuery) -> EnergyDocument:
    return statement_document(asked_statement(view.reader, view.settings, **query.model_dump()))


class StatementQuery(RangeQuery):
    """The statement of cost to give; without a range, of the month so far."""

    by: Annotated[str, Field(pattern=f"^({'|'.join(GROUPS)})(,({'|'.join(GROUPS)}))*$")] = "tenant"
    every: Literal["total", "hour", "day", "week", "month"] = "total"
    form: Annotated[Literal["json", "focus", "opencost"], Field(alias="format")] = "json"
    budgets: bool = False

    @model_validator(mode="after")
    def _can_be_charged(self) -> Self:
        periods = [str(period) for period in PERIODS]
        of_boards = set(BOARD_GROUPS).intersection(self.by.split(","))
        if self.form == "focus" and (self.every not in periods or of_boards):
            raise ValueError(
                "FOCUS charges are by hour or day: give `every`, and not by board or cluster"
            )
        return self


Statement = CostDocument | FocusDocument | AllocationDocument


def _statement(view: View, query: StatementQuery) -> Statement:
    statement = asked_cost_statement(
        view.reader,
        view.settings,
        by=list(dict.fromkeys(query.by.split(","))),
        every=query.every,
        start=query.start,
        end=query.end,
    )
    is_focus = query.form == "focus"
    by = FORECAST_BY if is_focus else statement.by
    budgets = (
        budget_rows(view.reader, view.settings, at=statement.end, by=by) if query.budgets else ()
    )
    if is_focus:
        rows = (
            forecast_rows(budgets, view.settings, at=statement.end)
            if query.budgets
            else focus_rows(statement, view.settings)
        )
        return FocusDocument(version=VERSION, rows=rows)
    if query.form == "opencost":
        return allocation_document(statement)
    return cost_document(statement, budgets)


class SavedQuery(NoQuery):
    """The kind of the rows."""

    by: Literal["finding", "day", "namespace"] = "finding"


def _saved(view: View, query: SavedQuery) -> list[SavedSum]:
    days = saved_by_day(view.reader, view.settings, now=view.clock())
    until = measured_until(view.reader, view.settings)
    return [*summed(days, query.by, at=until), *summed(days, "all", at=until)]


class ReportQuery(NoQuery):
    """The 168 hours of a report: before a time or the newest sample, or the last whole week."""

    end: Annotated[Moment | None, Field(alias="to")] = None
    last_week: bool = False


Count = Annotated[int | None, Field(ge=1, le=65_536)]
Word = Annotated[str, Field(max_length=100)]


class EstimateQuery(NoQuery):
    """A training job of a known model, and which plans of it, as `trimtab estimate` has them."""

    model: Annotated[str, Field(max_length=100, description="a known model: llama3-8b")]
    batch: Annotated[int, Field(ge=1, le=10**7, description="sequences of a whole step")]
    seq: Annotated[int, Field(ge=1, le=10**8, description="tokens of a sequence")]
    framework: Word = ""
    optimizer: Word = ""
    precision: Word = ""
    quantization: Word = ""
    method: Literal["full", "adapter"] = "full"
    adapter_rank: Annotated[Count, Field(alias="adapter-rank")] = None
    lengths: Literal["fixed", "vary"] | None = None
    recompute: Literal["none", "attention", "operators", "full"] | None = None
    micro_batch: Annotated[Count, Field(alias="micro-batch")] = None
    gpu: Annotated[str, Field(max_length=100, description="only this GPU type; '' for all")] = ""
    gpus: Annotated[int, Field(ge=1, le=1024, description="GPUs at most")] = 64
    data: Count = None
    tensor: Count = None
    pipeline: Count = None
    tokens: Annotated[float | None, Field(gt=0, le=1e17, description="of the whole run")] = None
    time_limit: Annotated[float | None, Field(gt=0, le=24 * 365, alias="time-limit")] = None
    top: Annotated[int, Field(ge=1, le=100, description="plans given at most")] = 10


def _estimate(view: View, query: EstimateQuery) -> EstimateDocument:
    fields = query.model_dump() | {"gpu": (query.gpu,) if query.gpu else ()}
    model = read_model(name=query.model, config="", folder=Path(), place="model")
    return estimate_answer(EstimateRequest.of(fields), model, view.reader).document()


ENERGY = Resource(
    name="energy",
    about="Energy, emissions and cost with their factors, and what was not measured",
    kind=EnergyDocument,
    query=EnergyQuery,
    read=_energy,
)
SCORE = Resource(
    name="score",
    about="The share of bought GPU-hours that did work, with its parts, interval and trend",
    kind=Score,
    query=RangeQuery,
    read=lambda view, query: asked_score(view.reader, view.settings, **query.model_dump()),
    anyone=False,
)
STATEMENT = Resource(
    name="statement",
    about="What the fleet costs, by whom: used, idle, shared, free; also as FOCUS or OpenCost",
    kind=Statement,
    query=StatementQuery,
    read=_statement,
    anyone=False,
)
SAVED = Resource(
    name="savings/to-date",
    about="What was saved so far; the last row is the total",
    kind=list[SavedSum],
    query=SavedQuery,
    read=_saved,
)
WEEKLY = Resource(
    name="reports/weekly",
    about="The weekly report, to an owner that of their own jobs",
    kind=WeeklyDocument,
    query=ReportQuery,
    read=lambda view, query: weekly_document(
        asked_report(view.reader, view.settings, edition=view.edition, **query.model_dump())
    ),
)
ESTIMATE = Resource(
    name="estimate",
    about="The peak GPU memory of a training job, and the plans that fit the fleet",
    kind=EstimateDocument,
    query=EstimateQuery,
    read=_estimate,
    anyone=False,
)
DOCUMENTS: tuple[Resource[Any, Any], ...] = (
    PLAN, WHAT_IF, IDLE, FORECASTS, MEMORY, SCORE, STATEMENT, ENERGY, SAVED, WEEKLY, ESTIMATE,
    WAIT,
)  # fmt: skip
