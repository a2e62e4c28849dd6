"""What the fleet will need, how far ahead that can be trusted, and why."""

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.charts.forecast_band import forecast_band
from dashboard.charts.lead_accuracy import lead_accuracy
from dashboard.charts.member_weights import member_weights
from dashboard.web.page import chart, empty_state, figures, finding, plain, table
from dashboard.web.session import current_world
from data.clock import utc_now
from data.records.forecasts import (
    UNIT_OF,
    DemandForecast,
    ForecastSkipped,
    GroupForecast,
    GroupKind,
    Quantity,
)
from data.units import SECONDS_PER_HOUR

_TITLES = {
    Quantity.ALLOCATED_GPUS: "GPUs allocated",
    Quantity.EFFECTIVE_GPUS: "GPUs doing work",
    Quantity.POWER: "GPU power",
}
_HISTORY = pd.Timedelta(days=14)
_SHOWN = 500

world = current_world()
reader = world.store.reader


def by_hour(group: GroupForecast) -> bool:
    """Say whether this is the week by the hour, not the month by the day."""
    step = group.slot_starts[1] - group.slot_starts[0]
    return step.total_seconds() == SECONDS_PER_HOUR


def day_ahead(group: GroupForecast, quantity: Quantity) -> tuple[str, str]:
    """Give the mean of the next 24 h with its peak hour, as a figure and its small print."""
    path = group.path(quantity)
    if path is None:
        return "—", "never reported"
    peak = int(np.argmax(path.q90[:24]))
    unit = UNIT_OF[quantity]
    return (
        f"{np.mean(path.q50[:24]):,.0f} {unit}",
        f"q90 peaks at {path.q90[peak]:,.0f} {unit}, {group.slot_starts[peak]:%H:%M} UTC",
    )


groups = [] if empty_state() else list(reader.group_forecasts())
weeks = {(one.kind, one.name): one for one in groups if by_hour(one)}
if weeks:
    fleet = weeks[GroupKind.FLEET, "fleet"]
    allocated = fleet.path(Quantity.ALLOCATED_GPUS)
    if allocated is not None:
        finding(
            f"In the next 24 h jobs will hold {np.mean(allocated.q50[:24]):.0f} GPUs on average, "
            f"an hour of it {np.mean(allocated.q10[:24]):.0f}–{np.mean(allocated.q90[:24]):.0f} "
            "with 80 %, jobs yet to come included."
        )
    figures({_TITLES[one]: day_ahead(fleet, one) for one in _TITLES})
    names = {
        f"{kind}: {name}" if name != "fleet" else "fleet": (kind, name) for kind, name in weeks
    }
    with st.container(horizontal=True):
        wanted = st.query_params.get("group", "fleet")
        options = list(names)
        chosen = st.selectbox(
            "Group", options, index=options.index(wanted) if wanted in options else 0
        )
        quantity = (
            st.segmented_control(
                "Quantity",
                list(_TITLES),
                format_func=lambda one: _TITLES[one],
                default=Quantity.ALLOCATED_GPUS,
            )
            or Quantity.ALLOCATED_GPUS
        )
        ahead = st.segmented_control("Ahead", ["7 d", "30 d"], default="7 d") or "7 d"
    st.query_params["group"] = chosen
    kind, name = names[chosen]
    mine = [one for one in groups if (one.kind, one.name) == (kind, name)]
    shown = next((one for one in mine if by_hour(one) == (ahead == "7 d")), None)
    end = reader.latest_sample_at() or utc_now()
    history = reader.group_history(
        start=end - (_HISTORY if ahead == "7 d" else 6 * _HISTORY),
        end=end,
        slot_seconds=SECONDS_PER_HOUR,
    )
    rows = history[(history["kind"] == str(kind)) & (history["name"] == name)]
    path = shown.path(quantity) if shown else None
    if path is None:
        st.info("Too little is known of it for this horizon: it takes four known slots.")
    else:
        chart(
            forecast_band(
                rows,
                str(quantity),
                y_title=f"{_TITLES[quantity]} ({UNIT_OF[quantity]})",
                forecast=shown,
                path=path,
            ),
            "group",
        )
        st.caption(plain("; ".join(path.notes)))
        left, right = st.columns([3, 2])
        with left:
            st.subheader("Accuracy by lead time")
            if path.backtest is not None and path.backtest.by_lead:
                chart(lead_accuracy([path.backtest]), "group-accuracy")
                st.caption(
                    "Replayed at past moments, each from its own past only. Below the dashed line "
                    "the forecast beats 'it stays as it is'; the band is to hold 80 %."
                )
            else:
                st.info("Not tested yet: the history is too short.")
        with right:
            st.subheader("What it rests on")
            chart(member_weights(path.weights), "group-weights")
            st.caption(
                "Members are weighted by their recent losses at that lead time; a tenth always "
                "stays with naive."
            )
if not empty_state():
    forecasts = reader.forecasts()
    known = [one for one in forecasts if isinstance(one, DemandForecast)]
    st.subheader("Jobs")
    tests = [path.backtest for one in known for path in one.paths if path.backtest is not None]
    if tests:
        chart(lead_accuracy(tests), "jobs-accuracy")
        st.caption(f"Mean over {len(tests)} series of {len(known)} jobs.")
    table(
        pd.DataFrame(
            [
                {
                    "job": one.job_id,
                    "quantity": str(path.quantity),
                    "model": path.model,
                    "loss / naive's": loss / naive if naive else None,
                    "inside q10–q90 (%)": 100 * path.backtest.coverage_ratio
                    if path.backtest
                    else None,
                    "at its limit (slots)": path.censored_slots,
                    "outliers cut (slots)": path.winsorised_slots,
                    "borrowed from": one.borrowed_from,
                    "notes": "; ".join(path.notes),
                }
                for one in known
                for path in one.paths
                for losses in (dict(path.backtest.losses) if path.backtest else {},)
                for loss, naive in ((losses.get(path.model, 0.0), losses.get("naive", 0.0)),)
            ][:_SHOWN]
        ),
        "forecasts",
    )
    skipped = [one for one in forecasts if isinstance(one, ForecastSkipped)]
    if skipped:
        with st.expander(f"{len(skipped)} jobs have no forecast"):
            table(
                pd.DataFrame([{"job": one.job_id, "reason": one.reason} for one in skipped]),
                "skipped",
            )
