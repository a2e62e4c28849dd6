"""The week and the month ahead of a service or a recurring job, on its page and in a table."""

from datetime import datetime, timedelta

import pandas as pd
import streamlit as st

from dashboard.accounting.cost.prices import PriceList, price_list
from dashboard.charts.forecast_accuracy import lead_accuracy
from dashboard.charts.forecast_band import forecast_band
from dashboard.common.escaping import markdown
from dashboard.resources.workload_rows import cost_ahead
from dashboard.web.access.identity import current_world
from dashboard.web.frame.address_filters import pick
from dashboard.web.frame.page import chart, figures
from data.base.units import SECONDS_PER_HOUR
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.jobs import Job
from data.records.forecasts import (
    GroupForecast,
    Quantity,
    WorkloadForecast,
    WorkloadTotal,
    lead_means,
)
from data.records.recommendations import Range
from forecasting.groups.workloads import workload_name

_HORIZON_DAYS = {"7 d": 7, "30 d": 30}
_TOO_SHORT = "it takes seven whole days of readings"


def has_workload_forecast(job: Job) -> bool:
    """Tell whether the job is a run of a service or recurring job with a forecast."""
    return current_world().reader.workload_forecast(workload_name(job)) is not None


def show_ahead(job: Job, end: datetime) -> None:
    """Show the week and the month of the service or recurring job that a job is a run of."""
    work = current_world().reader.workload_forecast(workload_name(job))
    if work is None:
        return
    st.caption(
        markdown(
            f"Of the service {work.name}"
            + (f", its {work.runs:,} jobs together." if work.runs > 1 else ".")
            if work.is_service
            else f"Of all runs of {work.name}, {work.runs:,} known so far, and of those to come."
        )
    )
    days = _HORIZON_DAYS[pick("Ahead", list(_HORIZON_DAYS), "ahead")]
    total = next(total for total in work.totals if total.days == days)
    _show_total(work, total)
    horizon = next((entry for entry in work.horizons if entry.by_hour == (days == 7)), None)
    quantity = Quantity.ALLOCATED_GPUS
    show_path(_history(work, end, days), horizon, quantity, "GPUs allocated", "workload")


def show_path(
    history: pd.DataFrame, forecast: GroupForecast | None, quantity: Quantity, title: str, name: str
) -> None:
    """Show a quantity's forecast behind its history, and how it was tested."""
    path = forecast.path(quantity) if forecast else None
    if path is None:
        st.info("Too little is known of it for this horizon: it takes four known slots.")
        return
    first, right = st.columns([3, 2])
    band = forecast_band(history, str(quantity), y_title=title, forecast=forecast, path=path)
    with first:
        chart(band, f"{name}-path")
    with right:
        if path.backtest is not None and path.backtest.by_lead:
            chart(lead_accuracy(lead_means(path.backtest.by_lead)), f"{name}-accuracy")
        else:
            st.info("Not tested yet: the history is too short.")
    st.caption(markdown("; ".join(path.notes)))


def _show_total(workload: WorkloadForecast, total: WorkloadTotal) -> None:
    sums, before = dict(total.sums), dict(total.before).get(Quantity.ALLOCATED_GPUS)
    gpu_hours = sums.get(Quantity.ALLOCATED_GPUS)
    small = _TOO_SHORT if gpu_hours is None else ""
    cost = _cost(workload, total, _prices())
    figures(
        {
            f"GPU-hours, next {total.days} d": gpu_hours or ("—", small),
            f"GPU-hours, last {total.days} d": (
                "—" if before is None else f"{before:,.0f} GPU-h",
                "" if before is not None else "not known for so long",
            ),
            "energy": sums.get(Quantity.POWER) or ("—", small or "power was never reported"),
            "cost": cost or ("—", small or "a price of its GPU models is unknown"),
        }
    )


def _history(workload: WorkloadForecast, end: datetime, days: int) -> pd.DataFrame:
    """Return the GPUs of its runs by the hour, 0 between runs; of a service a gap is unknown."""
    holdings = current_world().reader.job_holdings(
        workload.job_ids, start=end - timedelta(days=days), end=end
    )
    sums = holdings.groupby("slot_start")[str(Quantity.ALLOCATED_GPUS)].sum()
    if sums.empty:
        return sums.reset_index()
    between = None if workload.is_service else 0.0
    return sums.asfreq(f"{SECONDS_PER_HOUR}s", fill_value=between).reset_index()


def _prices() -> PriceList:
    return price_list(current_world().settings.settings, load_gpu_catalogue())


def _cost(workload: WorkloadForecast, total: WorkloadTotal, prices: PriceList) -> Range | None:
    currency = current_world().settings.settings.energy.currency
    return cost_ahead(workload, total, prices, currency)
