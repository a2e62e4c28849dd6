"""The week and the month ahead of a service or a recurring job, on its page and in a table."""

from datetime import datetime, timedelta

import pandas as pd
import streamlit as st

from dashboard.accounting.cost.prices import PriceList, price_list
from dashboard.charts.forecast_accuracy import lead_accuracy
from dashboard.charts.forecast_band import forecast_band
from dashboard.common.figures import bare_range_text, range_text
from dashboard.resources.workload_rows import cost_ahead
from dashboard.web.access.session import current_world
from dashboard.web.frame.address_filters import pick
from dashboard.web.frame.page import chart, figures, plain
from data.base.units import SECONDS_PER_HOUR
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.jobs import Job
from data.records.forecasts import Quantity, WorkloadForecast, WorkloadTotal, lead_means
from data.records.recommendations import Range
from forecasting.groups.workloads import workload_name

_AHEAD = {"7 d": 7, "30 d": 30}
_TOO_SHORT = "it takes seven whole days of readings"


def show_ahead(job: Job, end: datetime) -> None:
    """Show the week and the month of the service or recurring job that a job is a run of."""
    found = current_world().reader.workload_forecast(workload_name(job))
    if found is None:
        return
    st.subheader("Week and month ahead")
    st.caption(
        plain(
            f"Of the service {found.name}"
            + (f", its {found.runs:,} jobs together." if found.runs > 1 else ".")
            if found.is_service
            else f"Of all runs of {found.name}, {found.runs:,} known so far, and of those to come."
        )
    )
    days = _AHEAD[pick("Ahead", list(_AHEAD), "ahead")]
    total = next(total for total in found.totals if total.days == days)
    _show_total(found, total)
    horizon = next((entry for entry in found.horizons if entry.by_hour == (days == 7)), None)
    path = horizon.path(Quantity.ALLOCATED_GPUS) if horizon else None
    if horizon is None or path is None:
        st.info("Too little is known of it for this horizon: it takes four known slots.")
        return
    left, right = st.columns([3, 2])
    with left:
        chart(
            forecast_band(
                _history(found, end, days),
                str(Quantity.ALLOCATED_GPUS),
                y_title="GPUs allocated",
                forecast=horizon,
                path=path,
            ),
            "workload-path",
        )
    with right:
        if path.backtest is not None and path.backtest.by_lead:
            chart(lead_accuracy(lead_means(path.backtest.by_lead)), "workload-accuracy")
        else:
            st.info("Not tested yet: the history is too short.")
    st.caption(plain("; ".join(path.notes)))


def _show_total(found: WorkloadForecast, total: WorkloadTotal) -> None:
    sums, before = dict(total.sums), dict(total.before).get(Quantity.ALLOCATED_GPUS)
    held = sums.get(Quantity.ALLOCATED_GPUS)
    small = _TOO_SHORT if held is None else ""
    cost = _cost(found, total, _prices())
    figures(
        {
            f"GPU-hours, next {total.days} d": held or ("—", small),
            f"GPU-hours, last {total.days} d": (
                "—" if before is None else f"{before:,.0f} GPU-h",
                "" if before is not None else "not known for so long",
            ),
            "energy": sums.get(Quantity.POWER) or ("—", small or "power was never reported"),
            "cost": cost or ("—", small or "a price of its GPU models is unknown"),
        }
    )


def _history(found: WorkloadForecast, end: datetime, days: int) -> pd.DataFrame:
    """Return what its runs held by the hour, 0 between runs; of a service a gap is unknown."""
    held = current_world().reader.job_holdings(
        found.job_ids, start=end - timedelta(days=days), end=end
    )
    sums = held.groupby("slot_start")[str(Quantity.ALLOCATED_GPUS)].sum()
    if sums.empty:
        return sums.reset_index()
    between = None if found.is_service else 0.0
    return sums.asfreq(f"{SECONDS_PER_HOUR}s", fill_value=between).reset_index()


def ahead_table() -> pd.DataFrame:
    """Return a row for each service and recurring job: what it will hold in a week and a month."""
    prices = _prices()
    return pd.DataFrame(
        [_row(found, prices) for found in current_world().reader.workload_forecasts()]
    )


def _row(found: WorkloadForecast, prices: PriceList) -> dict[str, object]:
    week, month = found.totals
    held = [dict(total.sums).get(Quantity.ALLOCATED_GPUS) for total in (week, month)]
    before = dict(month.before).get(Quantity.ALLOCATED_GPUS)
    return {
        "workload": found.name,
        "job": found.job_id,
        "kind": "service" if found.is_service else "recurring job",
        "runs": found.runs,
        "GPU-hours, next 7 d": "—" if held[0] is None else bare_range_text(held[0]),
        "GPU-hours, next 30 d": "—" if held[1] is None else bare_range_text(held[1]),
        "GPU-hours, last 30 d": before,
        "cost, next 30 d": range_text(_cost(found, month, prices)),
    }


def _prices() -> PriceList:
    return price_list(current_world().settings.settings, load_gpu_catalogue())


def _cost(found: WorkloadForecast, total: WorkloadTotal, prices: PriceList) -> Range | None:
    currency = current_world().settings.settings.energy.currency
    return cost_ahead(found, total, prices, currency)
