"""`trimtab forecast`: what the latest cycle foresees, or how every model would have done."""

import argparse
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from dashboard.cli.terminal.ask import answer_of
from dashboard.cli.terminal.context import (
    asks_a_server,
    open_for_reading,
    progress_on_stderr,
    settings_of,
)
from dashboard.cli.terminal.output import print_json, print_rows
from dashboard.cli.terminal.remote_server import refuse_with_server
from dashboard.resources.forecast_rows import summary_lines
from dashboard.resources.workload_rows import FORECASTS, SUMMARY, total_lines
from data.base.clock import utc_now
from data.base.errors import SettingsError
from data.settings.all_settings import PlanningSettings
from data.store import Store

_NO_CYCLE = "No cycle has run yet: run `trimtab cycle`."
_NO_WORKLOAD = (
    "No service and no recurring job (five runs or more) is known, or no cycle has run: "
    "run `trimtab cycle`."
)
_TOO_SHORT = "No series is long enough for a backtest: it takes a day of history or more."
_SUMMARY = ("unit", "model", "slots", "q10_mean", "q50_mean", "q90_mean")
_SCORES = ("model", "series", "origins", "mase", "pinball_to_naive", "coverage_ratio", "failures")
_BACKTEST_ORIGINS = 8


def forecast(options: argparse.Namespace) -> int:
    """Print the forecasts by job, group or workload, or with --backtest a table of models."""
    if options.backtest and options.by == "workload":
        raise SettingsError(
            "--backtest has no --by workload", "Take --by job or --by group, or leave --backtest."
        )
    if options.backtest:
        if asks_a_server(options):
            refuse_with_server(options, "backtest")
        return _backtest(options)
    if options.points and options.format != "json":
        raise SettingsError("--points has no table", "Give --format json.")
    rows: Any = answer_of(options, FORECASTS, by=options.by, points=options.points)
    if options.format == "json":
        print_json(rows)
        return 0
    if options.by == "workload":
        columns: Sequence[str] = ("name", "kind", "runs", *SUMMARY)
        print_rows(total_lines(rows), options.format, columns=columns, empty=_NO_WORKLOAD)
        return 0
    keys = ("job_id",) if options.by == "job" else ("kind", "name")
    last = "skipped" if options.by == "job" else "first_slot"
    columns = (*keys, "quantity", *_SUMMARY, last)
    print_rows(summary_lines(rows, keys), options.format, columns=columns, empty=_NO_CYCLE)
    return 0


def _backtest(options: argparse.Namespace) -> int:
    loaded = settings_of(options)
    planning = loaded.settings.planning
    with open_for_reading(loaded) as store:
        as_of = store.reader.latest_sample_at() or utc_now()
        rows = _scores(options, store, planning, as_of)
    print_rows(rows, options.format, columns=_SCORES, empty=_TOO_SHORT)
    return 0


def _scores(
    options: argparse.Namespace, store: Store, planning: PlanningSettings, as_of: datetime
) -> list[dict[str, Any]]:
    from forecasting.jobs.forecast_path import MODELS
    from forecasting.jobs.job_tasks import JobTask, first_slot_after, job_tasks
    from forecasting.models.model_comparison import compare_models
    from forecasting.models.naive_model import NaiveModel
    from forecasting.series.group_series import group_series

    slot_seconds = planning.slot_minutes * 60
    view = store.reader.planning_view(
        as_of, slot_seconds=slot_seconds, history_days=planning.history_days
    )
    if options.by == "job":
        first = first_slot_after(view.as_of, slot_seconds)
        tasks = job_tasks(view.history, jobs=view.jobs, first_slot=first, settings=planning)
        series = [entry for task in tasks if isinstance(task, JobTask) for entry in task.series]
        horizon = planning.horizon_slots
    else:
        series = [entry for group in group_series(view.groups, 3600) for entry in group.series]
        horizon = 24
    with progress_on_stderr(options) as show:
        scores = compare_models(
            series,
            (NaiveModel(), *MODELS),
            horizon=horizon,
            origins=_BACKTEST_ORIGINS,
            progress=lambda done, total: show("backtest", done, total),
        )
    return [
        {column: _unknown_as_none(getattr(score, column)) for column in _SCORES}
        for score in scores
        if score.origins or score.failures
    ]


def _unknown_as_none(value: Any) -> Any:
    return None if value != value else value
