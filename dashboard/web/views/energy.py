"""Energy and emissions: how much, by whom, by which method and factors."""

from datetime import timedelta

import pandas as pd
import streamlit as st

from dashboard.charts.energy_bars import energy_bars
from dashboard.reports.energy_statement import factors_of, state_energy
from dashboard.web.page import chart, empty_state, figures, finding, plain, range_text, table
from dashboard.web.session import current_world
from data.catalogue.carbon_table import load_carbon_table
from data.clock import utc_now
from data.units import GRAMS_PER_KILOGRAM

_KEYS = ["day", "namespace", "job", "node", "gpu_model"]

world = current_world()
reader = world.reader
settings = world.settings.settings.energy
if not empty_state():
    carbon = load_carbon_table().get(settings.region)
    end = reader.latest_sample_at() or utc_now()
    answer = st.container()
    with st.container(horizontal=True):
        days = st.segmented_control("Days", [1, 7, 14, 30], default=7) or 7
        by = st.segmented_control("By", _KEYS, default="day") or "day"
        unit = st.segmented_control("Show", ["kWh", "kgCO2e"], default="kWh") or "kWh"
    window = {"start": end - timedelta(days=days), "end": end}
    fleet = reader.energy(**window, by="fleet")
    total = None if fleet.empty else float(fleet["energy_kwh"].iloc[0])
    statement = state_energy(total, energy=settings, carbon=carbon)
    with answer:
        if statement.gpu_energy_kwh is None:
            finding("Power was never reported in this time, so energy and emissions are unknown.")
        else:
            finding(
                f"The GPUs used {range_text(statement.gpu_energy_kwh)} in {days} d; with the "
                f"site's overhead that is {range_text(statement.emissions_kgco2e)}."
            )
        figures(
            {
                "GPU boards": statement.gpu_energy_kwh,
                "site": statement.site_energy_kwh,
                "emissions, location-based": statement.emissions_kgco2e,
                "electricity": statement.electricity_cost,
            }
        )
    energy = reader.energy(**window, by=by)
    factor = settings.pue * carbon.gco2e_per_kwh / GRAMS_PER_KILOGRAM
    chart(energy_bars(energy, by=by, kgco2e_per_kwh=factor if unit == "kgCO2e" else None), "energy")
    unknown = int(energy["energy_kwh"].isna().sum())
    if unknown:
        st.caption(f"— : for {unknown} of {len(energy)} rows no source reported power.")
    stated = [state_energy(value, energy=settings, carbon=carbon) for value in energy["energy_kwh"]]
    table(
        pd.DataFrame(
            {
                by: energy["key"].replace("", "(not allocated)"),
                "GPU-hours": energy["gpu_hours"],
                "idle GPU-hours": energy["idle_gpu_hours"],
                "GPU energy (kWh)": energy["energy_kwh"],
                "by other sharing rules (kWh)": [
                    f"{low:.4g}–{high:.4g}" if high - low > 1e-9 else ""
                    for low, high in zip(
                        energy["energy_low_kwh"], energy["energy_high_kwh"], strict=True
                    )
                ],
                "emissions": [range_text(one.emissions_kgco2e) for one in stated],
                "electricity": [range_text(one.electricity_cost) for one in stated],
            }
        ),
        f"energy-by-{by}",
    )
    st.subheader("Method and factors")
    st.write(
        "The boards' energy counters, counted once per board; where there is none, board power by "
        "trapezoid over gaps of at most five minutes. Of a board cut by MIG, idle power is shared "
        "by slices and the rest by slices times activity; holders of one device share equally. "
        "Site energy is board energy times PUE; emissions are site energy times the grid's annual "
        "average (location-based)."
    )
    apart = reader.energy_disagreements(**window)
    if len(apart):
        st.warning(
            f"On {len(apart)} boards the energy counter and the integral of power differ by more "
            "than a tenth: check their sensors before quoting their energy."
        )
        table(
            apart.rename(
                columns={
                    "gpu_uuid": "board",
                    "counter_kwh": "counter (kWh)",
                    "power_kwh": "power integral (kWh)",
                    "jumps": "jumps not believed",
                }
            ),
            "energy-disagreements",
        )
    for name, value in factors_of(settings, carbon):
        st.markdown(f"* {plain(name)}: {plain(value)}")
