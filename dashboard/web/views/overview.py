"""What is wasted now, and what should be approved today."""

from datetime import timedelta

import streamlit as st

from dashboard.charts.fleet_timeline import fleet_timeline
from dashboard.reports.energy_statement import state_energy
from dashboard.web.cards import card
from dashboard.web.page import chart, empty_state, figures, finding, number, range_text
from dashboard.web.session import current_world
from data.catalogue.carbon_table import load_carbon_table
from data.clock import utc_now

_TOP = 5
world = current_world()
reader = world.store.reader
settings = world.settings.settings
if not empty_state():
    end = reader.latest_sample_at() or utc_now()
    fleet = reader.fleet_history(start=end - timedelta(days=7), end=end, slot_seconds=3600)
    now = fleet.iloc[-1]
    stored = [one for one in reader.recommendations(now=utc_now()) if one.state == "proposed"]
    freed = sum(
        one.recommendation.savings.gpu_hours.central / one.recommendation.savings.horizon_hours
        for one in stored
        if one.recommendation.savings.gpu_hours
    )
    verb = "recommendation would" if len(stored) == 1 else "recommendations would"
    finding(
        f"{now['allocated_gpus']:.0f} of {now['boards']:.0f} GPUs are allocated, "
        f"{now['used_gpus']:.1f} do work; {len(stored)} {verb} free {freed:.1f}."
    )
    day = reader.energy(start=end - timedelta(days=1), end=end, by="fleet")
    energy = None if day.empty else float(day["energy_kwh"].iloc[0])
    statement = state_energy(
        energy,
        energy=settings.energy,
        carbon=load_carbon_table().get(settings.energy.region),
    )
    power = now["power_watts"]
    figures(
        {
            "used / idle / free": f"{now['used_gpus']:.1f} / {now['idle_allocated_gpus']:.1f} / "
            f"{now['free_gpus']:.1f} GPUs",
            "GPU power, last hour": number(power / 1000, "kW"),
            "site energy, last 24 h": range_text(statement.site_energy_kwh),
            "emissions, last 24 h": range_text(statement.emissions_kgco2e),
        }
    )
    chart(fleet_timeline(fleet), "fleet")
    st.subheader("What to approve")
    if not stored:
        st.write("No recommendation waits. The plan keeps every job as it is, or no cycle ran yet.")
    for one in stored[:_TOP]:
        card(one, "overview")
