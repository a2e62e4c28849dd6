"""Which models made a job's forecast."""

import streamlit as st

from data.records.forecasts import DemandForecast


def show_models(known: DemandForecast) -> None:
    """Say which models made the forecast and how their bands held."""
    st.caption(
        "Models: "
        + "; ".join(
            f"{path.quantity}: {path.model}"
            + (
                f" (covers {100 * path.backtest.coverage_ratio:.0f} % of "
                f"{path.backtest.held_out_slots} held-out slots)"
                if path.backtest
                else ""
            )
            for path in known.paths
        )
    )
