"""What is wasted now, and what should be approved today."""

from datetime import timedelta

import streamlit as st

from dashboard.charts.fleet_timeline import fleet_timeline
from dashboard.reports.energy_statement import state_energy
from dashboard.web.cards import card
from dashboard.web.page import chart, empty_state, figures, finding, number
from dashboard.web.session import current_world
from data.catalogue.carbon_table import load_carbon_table
from data.records.forecasts import DemandForecast

_TOP = 5
world = current_world()
reader = world.store.reader
settings = world.settings.settings
if not empty_state():
    end = reader.latest_sample_at() or world.clock()
    fleet = reader.fleet_history(start=end - timedelta(days=7), end=end, slot_seconds=3600)
    now = fleet.iloc[-1]
    stored = [one for one in reader.recommendations(now=world.clock()) if one.state == "proposed"]
    freed = sum(
        one.recommendation.savings.gpu_hours.central / one.recommendation.savings.horizon_hours
        for one in stored
        if one.recommendation.savings.gpu_hours
    )
    unseen = now["unknown_gpus"]
    unknown = f", of {unseen:.1f} nobody reported utilization" if unseen > 0 else ""
    if now["unattributed_gpus"] > 0.05:
        unknown += f"; {now['unattributed_gpus']:.1f} more are busy for nobody known"
    verb = "recommendation would" if len(stored) == 1 else "recommendations would"
    finding(
        f"{now['allocated_gpus']:.0f} of {now['boards']:.0f} GPUs are allocated, "
        f"{now['used_gpus']:.1f} do work{unknown}; {len(stored)} {verb} free {freed:.1f}."
    )
    day = reader.energy(start=end - timedelta(days=1), end=end, by="fleet")
    before = reader.energy(start=end - timedelta(days=2), end=end - timedelta(days=1), by="fleet")
    energy = None if day.empty else float(day["energy_kwh"].iloc[0])
    statement = state_energy(
        energy,
        energy=settings.energy,
        carbon=load_carbon_table().get(settings.energy.region),
    )
    idle = number(None if day.empty else float(day["idle_gpu_hours"].iloc[0]), "GPU-h")
    idle_before = number(None if before.empty else float(before["idle_gpu_hours"].iloc[0]), "GPU-h")
    figures(
        {
            "GPUs doing work": (
                f"{now['used_gpus']:.1f} of {now['boards']:.0f}",
                f"{now['idle_allocated_gpus']:.1f} allocated but idle, {now['free_gpus']:.1f} free",
            ),
            "idle while allocated, last 24 h": (idle, f"{idle_before} the day before"),
            "site energy, last 24 h": statement.site_energy_kwh,
            "emissions, last 24 h": statement.emissions_kgco2e,
        }
    )
    forecasts = reader.forecasts()
    chart(fleet_timeline(fleet, forecasts), "fleet")
    forecast_jobs = sum(isinstance(one, DemandForecast) for one in forecasts)
    st.caption(
        f"Per hour, last seven days. The forecast adds up {forecast_jobs} of {len(forecasts)} "
        "jobs, their q10 and q90 as if all peaked together; the others have none, and jobs yet to "
        "come are not foreseen."
    )
    st.subheader("What to approve")
    if not stored:
        st.write("No recommendation waits. The plan keeps every job as it is, or no cycle ran yet.")
    for one in stored[:_TOP]:
        card(one, "overview")
    if len(stored) > _TOP:
        st.page_link("views/recommendations.py", label=f"All {len(stored)} recommendations")
