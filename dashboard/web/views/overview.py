"""What is wasted now, and what should be approved today."""

from datetime import timedelta

import pandas as pd
import streamlit as st

from dashboard.charts.fleet_timeline import fleet_timeline
from dashboard.figure_text import range_text
from dashboard.reports.esg.build import make_statement
from dashboard.saved_by_day import summed
from dashboard.web.choices import choose_days
from dashboard.web.inbox import every_row, findings_table
from dashboard.web.inbox_rows import InboxChoice, chosen_rows
from dashboard.web.page import UNKNOWN, chart, empty_state, figures, finding, number, tense
from dashboard.web.saved_days import saved_days
from dashboard.web.session import current_world
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.cluster import SourceState
from data.records.decisions import FOR_MEMORY, Range

_TOP = 5
_RECENT = timedelta(minutes=30)
world = current_world()
reader = world.reader
settings = world.settings.settings


def idle_cost(by_model: pd.DataFrame) -> float | None:
    """Return the cost of the idle GPU-hours by the catalogue; None when no model has a price."""
    catalogue = load_gpu_catalogue()
    rents = [
        float(row["idle_gpu_hours"]) * model.price_per_hour
        for row in by_model.to_dict("records")
        if (model := catalogue.find(str(row["key"]))) is not None
        and row["idle_gpu_hours"] == row["idle_gpu_hours"]
    ]
    return sum(rents) if rents else None


def total(rows: pd.DataFrame, column: str) -> float | None:
    """Return the sum of what is known, None when nothing is."""
    known = rows[column].dropna()
    return None if known.empty else float(known.sum())


def site_energy(used: Range | None, power_kilowatts: float | None) -> tuple[str, str]:
    """Return the energy of the site with its range, and the boards' power of the moment."""
    now_text = f"boards {tense('now', 'at its end')} {number(power_kilowatts, 'kW')}"
    if used is None:
        return UNKNOWN, f"power was never reported; {now_text}"
    bounds = f"{number(used.low, '').strip()}–{number(used.high, used.unit)}"
    return number(used.central, used.unit), f"{bounds}; {now_text}"


def show_findings() -> None:
    """Show the findings to decide on first, and what was saved to date."""
    left, right = st.columns([3, 1])
    with left:
        st.subheader(tense("Findings to decide on", "What would have been found"))
        rows = chosen_rows(every_row(), InboxChoice())
        if rows:
            findings_table(rows[:_TOP], "top-findings")
        else:
            st.write(
                tense(
                    "None waits. The plan keeps every job as it is, or no cycle ran yet.",
                    "None. The plan kept every job as it was, or is being made.",
                )
            )
        if len(rows) > _TOP:
            st.page_link("views/findings.py", label=f"All {len(rows)} findings")
    with right:
        st.subheader("Saved to date")
        (saved,) = summed(saved_days(), "all") or (None,)
        if saved is None:
            st.write(tense("Nothing is applied yet.", "Nothing was applied."))
            return
        for label, value in (
            ("money", saved.money),
            ("site energy", saved.energy_kwh),
            ("emissions", saved.emissions_kgco2e),
        ):
            st.metric(label, range_text(value))
        st.page_link("views/savings.py", label="Savings, by finding and day")


if not empty_state():
    end = reader.latest_sample_at() or world.clock()
    day_ago = end - timedelta(days=1)
    recent = reader.fleet_history(start=end - _RECENT, end=end, slot_seconds=300)
    if recent.empty:  # five-minute roll-ups are kept for a shorter time than hourly ones
        recent = reader.fleet_history(start=day_ago, end=end, slot_seconds=3600)
    # The last five minutes may have begun only: boards whose readings are to come are not free.
    now = recent[recent["boards"] >= recent["boards"].max()].iloc[-1]
    stored = [
        recommendation
        for recommendation in reader.recommendations(now=world.clock())
        if recommendation.state == "proposed"
    ]
    freed = sum(
        one.recommendation.savings.gpu_hours.central / one.recommendation.savings.horizon_hours
        for one in stored
        if one.recommendation.savings.gpu_hours and one.recommendation.action not in FOR_MEMORY
    )
    unseen = now["unknown_gpus"]
    unknown = f", of {unseen:.1f} nobody reported utilization" if unseen > 0 else ""
    if now["unattributed_gpus"] > 0.05:
        unknown += (
            f"; {now['unattributed_gpus']:.1f} more {tense('are', 'were')} busy for nobody known"
        )
    noun = "finding" if len(stored) == 1 else "findings"
    would = tense("would free", "would have freed")
    finding(
        f"{now['allocated_gpus']:.0f} of {now['boards']:.0f} GPUs "
        f"{tense('are', 'were')} allocated, {now['used_gpus']:.1f} {tense('are', 'were')} in use"
        f"{unknown}; {len(stored)} {noun} {would} {freed:.1f}."
    )
    day = reader.energy(start=day_ago, end=end, by="gpu_model")
    before = reader.energy(start=end - timedelta(days=2), end=day_ago, by="gpu_model")
    statement = make_statement(reader, start=day_ago, end=end, settings=settings).total
    rent = number(idle_cost(day), settings.energy.currency)
    power = None if pd.isna(now["power_watts"]) else float(now["power_watts"]) / 1000
    figures(
        {
            "GPUs in use": (
                f"{now['used_gpus']:.1f} of {now['boards']:.0f}",
                f"{now['idle_allocated_gpus']:.1f} allocated but idle, {now['free_gpus']:.1f} free",
            ),
            "idle while allocated, last 24 h": (
                number(total(day, "idle_gpu_hours"), "GPU-h"),
                f"{rent}; {number(total(before, 'idle_gpu_hours'), 'GPU-h')} the day before",
            ),
            "site energy, last 24 h": site_energy(statement.site_energy_kwh, power),
            "emissions, last 24 h": statement.location_kgco2e,
        }
    )
    show_findings()
    st.subheader("GPUs in use over time")
    days = choose_days()
    fleet = reader.fleet_history(start=end - timedelta(days=days), end=end, slot_seconds=3600)
    chart(fleet_timeline(fleet, reader.demand_total()), "fleet")
    known, skipped = reader.forecast_counts()
    st.caption(
        f"Per hour, last {days} d. The forecast adds up {known} of {known + skipped} jobs, their "
        "q10 and q90 as if all peaked together; the others have none, and jobs yet to come are "
        "not foreseen."
    )
    st.subheader("Data")
    reports = reader.source_reports()
    failed = [report.source for report in reports if report.state is SourceState.FAILED]
    st.write(
        f"{len(failed)} of {len(reports)} sources failed last time: see Health."
        if failed
        else tense(
            f"{len(reports)} of {len(reports)} sources answered last time.",
            "All of it was imported.",
        )
    )
    st.page_link("views/health.py", label="Health of the sources and the store")
