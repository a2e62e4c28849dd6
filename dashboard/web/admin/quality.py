"""Quality of forecasts: how far ahead those of jobs can be trusted, and which jobs have none."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from dashboard.charts.forecast_accuracy import lead_accuracy
from dashboard.web.access.identity import current_world
from dashboard.web.frame.address_filters import choose_page
from dashboard.web.frame.page import chart, empty_state, finding, table
from dashboard.web.frame.scope import scoped_jobs
from data.base.counts import count_text
from data.records.forecasts import ForecastTest, Quantity

_SHOWN = 70
"""Jobs on a page, each with a row for each of its three quantities."""
_SKIPPED_SHOWN = 200
_TITLES = {
    Quantity.ALLOCATED_GPUS: "GPUs allocated",
    Quantity.EFFECTIVE_GPUS: "effective GPUs",
    Quantity.MEMORY: "memory per GPU",
    Quantity.POWER: "power",
}
"""Names of the quantities of a job's forecast, as people read them."""
_TO_JOB = {"job": "jobs?job="}

reader = current_world().reader


def tested_rows(tests: Sequence[ForecastTest]) -> pd.DataFrame:
    """Return a row per path of a job's forecast: its model and how that did."""
    return pd.DataFrame([tested_row(test) for test in tests])


def tested_row(tested: ForecastTest) -> dict[str, object]:
    """Return the row of one path."""
    losses = dict(tested.backtest.losses) if tested.backtest else {}
    naive = losses.get("naive", 0.0)
    return {
        "job": tested.job_id,
        "quantity": _TITLES[tested.quantity],
        "model": tested.model,
        "loss relative to naive": losses.get(tested.model, 0.0) / naive if naive else None,
        "inside q10–q90 (%)": 100 * tested.backtest.coverage_ratio if tested.backtest else None,
        "at its limit (slots)": tested.censored_slots,
        "outliers cut (slots)": tested.winsorised_slots,
        "borrowed from": tested.borrowed_from,
        "notes": "; ".join(tested.notes),
    }


def skipped_rows() -> pd.DataFrame:
    """Return the jobs without a forecast, and why."""
    return pd.DataFrame(
        [
            {"job": forecast.job_id, "reason": forecast.reason}
            for forecast in reader.skipped_forecasts()
        ]
    )


if not empty_state():
    jobs = scoped_jobs()
    tested_jobs = [
        job_id
        for job_id, is_skipped in reader.forecast_jobs()
        if not is_skipped and (jobs is None or job_id in jobs)
    ]
    count, skipped = reader.forecast_counts()
    finding(
        f"{count:,} of {count_text(count + skipped, 'job')} {'has' if count == 1 else 'have'} a "
        "forecast, tested on its own past."
        if tested_jobs
        else "No job has a forecast yet."
    )
    if not tested_jobs:
        st.info("Run `trimtab cycle` with some hours of history.")
    else:
        summary = reader.forecast_summary()
        chart(lead_accuracy(summary.leads), "jobs-accuracy")
        st.caption(
            f"Mean over {summary.series:,} series. Below the dashed line the forecast beats naive "
            "('it stays as it is')."
        )
        first = choose_page(len(tested_jobs), _SHOWN)
        table(
            tested_rows(reader.forecast_tests(tuple(tested_jobs[first : first + _SHOWN]))),
            "forecasts",
            links=_TO_JOB,
            every=lambda: tested_rows(
                [test for test in reader.forecast_tests() if jobs is None or test.job_id in jobs]
            ),
        )
    if skipped:
        with st.expander(f"{count_text(skipped, 'job has', 'jobs have')} no forecast"):
            reasons = skipped_rows()
            table(reasons.head(_SKIPPED_SHOWN), "skipped", every=lambda: reasons, links=_TO_JOB)
