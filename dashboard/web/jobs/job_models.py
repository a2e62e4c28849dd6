"""Models behind a job's forecast."""

import streamlit as st

from data.records.forecasts import DemandForecast, Quantity

TITLES = {
    Quantity.ALLOCATED_GPUS: "GPUs allocated",
    Quantity.EFFECTIVE_GPUS: "effective GPUs",
    Quantity.MEMORY: "memory per GPU",
    Quantity.POWER: "power",
}
"""What people call the quantities of a job's forecast."""


def show_models(forecast: DemandForecast) -> None:
    """Show the models behind the forecast and how their bands held."""
    st.caption(
        "Models: "
        + "; ".join(
            f"{TITLES[path.quantity]}: {path.model}"
            + (
                f" (covers {100 * path.backtest.coverage_ratio:.0f} % of "
                f"{path.backtest.held_out_slots} held-out slots)"
                if path.backtest
                else ""
            )
            for path in forecast.paths
        )
    )
