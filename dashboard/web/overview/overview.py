"""Waste of now, and what should be approved today."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import pandas as pd
import streamlit as st

from dashboard.accounting.cost.prices import exclusion_words, price_list
from dashboard.accounting.energy.build import make_statement
from dashboard.accounting.energy.score import asked_score
from dashboard.accounting.energy.statement import GroupBy, Holder
from dashboard.accounting.savings.idle_bridge import idle_sum
from dashboard.charts.forecast_band import fleet_timeline
from dashboard.common.escaping import markdown
from dashboard.web.access.identity import current_world
from dashboard.web.findings.finding_list import every_row, findings_table, rows_in_scope
from dashboard.web.findings.finding_rows import STATES, InboxRow, choice_of_state, chosen_rows
from dashboard.web.findings.idle_bar import idle_answer, plan_in_scope, show_idle_bar
from dashboard.web.frame.page import (
    UNKNOWN,
    chart,
    drawer,
    empty_state,
    figures,
    finding,
    number,
    old_readings,
    past,
    show_link,
    tense,
)
from dashboard.web.frame.scope import current_scope, scoped_jobs
from dashboard.web.overview.usage import usage_now, usage_over
from dashboard.web.overview.week_ahead import show_week_ahead
from data.base.counts import count_text
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.jobs import Job
from data.records.forecasts import MIN_HISTORY_HOURS
from data.records.plans import Plan
from data.records.recommendations import Range

_TOP = 5
world = current_world()
reader = world.reader
settings = world.settings.settings


def answer(now: "pd.Series[float]", jobs: Mapping[str, Job] | None, plan: Plan | None) -> None:
    """Open with what is allocated and in use, and what of the rest can be freed."""
    are, unseen = past("are", "were"), now["unknown_gpus"]
    unknown = f", of {unseen:,.1f} nobody reported utilization" if unseen > 0.05 else ""
    if now["unattributed_gpus"] > 0.05:
        unknown += f"; {now['unattributed_gpus']:,.1f} more {are} busy for nobody known"
    all_of_them = count_text(
        now["boards"], past("GPU is", "GPU was"), past("GPUs are", "GPUs were")
    )
    usage = (
        f"{now['allocated_gpus']:,.1f} of {all_of_them} allocated"
        if jobs is None
        else f"Jobs of {current_scope().describe()} had {now['allocated_gpus']:,.1f} GPUs in the "
        "last hour"
    )
    no_plan = "the last plan has expired" if old_readings() else "no plan has been made yet"
    rest = no_plan if plan is None else idle_answer(idle_sum(plan))
    finding(f"{usage}, {now['used_gpus']:,.1f} {are} in use{unknown}; {rest}.")


def site_energy(used: Range | None, power_kilowatts: float | None) -> tuple[str, str]:
    """Return the energy of the site with its range, and the boards' power of the moment."""
    if used is None:
        return UNKNOWN, "power was never reported"
    now_text = f"GPUs {past('now', 'at the end')} {number(power_kilowatts, 'kW')}"
    bounds = f"{number(used.low, '').strip()}–{number(used.high, used.unit)}"
    return number(used.central, used.unit), f"{bounds}; {now_text}"


def work_done() -> dict[str, tuple[str, str]]:
    """Return the score of the last week as a figure; it is of the whole fleet."""
    week = asked_score(reader, settings, start=None, end=end)
    share, before = week.share, week.before
    bounds = "" if share is None else f"{share.low:.0f}–{number(share.high, share.unit)}; "
    at_work = UNKNOWN if share is None else number(share.central, share.unit)
    earlier = "unknown" if before is None else number(before.central, before.unit)
    note = f"{bounds}{earlier} the week before"
    return {"bought GPU-hours at work, last 7 d": (at_work, note)}


def history_line(end: datetime, hours: float) -> None:
    """Show the start of forecasts and proposals, while the history is too short for a picture."""
    start = end - timedelta(hours=hours)
    idle = settings.planning.reclaim_idle_hours
    forecasts, reclaim = (
        f"{start + timedelta(hours=after):%Y-%m-%d %H:%M} UTC ({after:g} h)"
        for after in (MIN_HISTORY_HOURS, idle)
    )
    st.write(
        f"History {60 * hours:.0f} min → reclaim of idle GPUs at "
        f"{reclaim} → forecasts and right-sizing by a job's own history at {forecasts}."
    )


def show_findings(every: Sequence[InboxRow]) -> None:
    """Show the findings to decide on first."""
    st.header(tense("Findings to decide on", "What would have been found"))
    rows = chosen_rows(every, choice_of_state(STATES[0]))
    if rows:
        findings_table(rows[:_TOP], "top-findings")
    else:
        st.write(
            tense(
                "No cycle has run yet."
                if reader.last_cycle() is None
                else "None waits for a decision.",
                "None. The plan kept every job as it was, or is being made.",
            )
        )
    if len(rows) > _TOP:
        show_link("findings", f"All {len(rows)} findings")


if not empty_state():
    end = reader.latest_sample_at() or world.clock()
    day_ago = end - timedelta(days=1)
    jobs = scoped_jobs()
    now = usage_now(end)
    if now is None:
        finding(f"No job of {current_scope().describe()} had a GPU in the last 24 h.")
        st.stop()
    plan = plan_in_scope()
    answer(now, jobs, plan)
    boards = {gpu.gpu_uuid: gpu.gpu_model for gpu in reader.gpus(start=day_ago, end=end)}
    for unknown in load_gpu_catalogue().lacking(boards.values()):
        st.warning(markdown(f"Unknown GPUs: {unknown}"), icon="⚠️")
    groups = GroupBy.MODEL
    day = make_statement(reader, start=day_ago, end=end, settings=settings, by=groups, jobs=jobs)
    before = make_statement(
        reader, start=end - timedelta(days=2), end=day_ago, settings=settings, jobs=jobs
    )
    is_watched = any(row.board_hours for row in before.rows if row.holder is not Holder.MISSING)
    yesterday = number(before.total.idle_gpu_hours if is_watched else None, "GPU-h")
    statement = day.total
    hours = [(row.key, row.idle_gpu_hours or 0.0) for row in day.groups]
    cost = price_list(settings, load_gpu_catalogue()).rent(hours, day.start, day.end)
    rent = cost.sentence(settings.energy.currency, exclusion_words(settings))
    power = None if pd.isna(now["power_watts"]) else float(now["power_watts"]) / 1000
    figures(
        {
            "GPUs in use": (
                f"{now['used_gpus']:,.1f} of {now['boards']:,.0f}",
                f"{now['idle_allocated_gpus']:,.1f} allocated but idle"
                + (f", {now['free_gpus']:,.1f} free" if jobs is None else ""),
            ),
            **(work_done() if jobs is None else {}),
            "idle while allocated, last 24 h": (
                number(statement.idle_gpu_hours, "GPU-h"),
                f"{rent}; {yesterday} the day before",
            ),
            "site energy, last 24 h": site_energy(statement.site_energy_kwh, power),
            "emissions, last 24 h": statement.location_kgco2e,
        }
    )
    rows = rows_in_scope(every_row())
    if plan is not None:
        show_idle_bar(plan, rows)
    show_findings(rows)
    st.header("GPUs in use over time")
    days = current_scope().days
    fleet = usage_over(end - timedelta(days=days), end)
    if len(fleet) < 2:
        length = sum(row.board_hours for row in day.rows if row.holder is not Holder.MISSING)
        history_line(end, length / now["boards"])
    else:
        chart(fleet_timeline(fleet, reader.demand_total() if jobs is None else None), "fleet")
        count, skipped = reader.forecast_counts()
        st.caption(
            f"Per hour, last {days} d: GPUs allocated to these jobs. The forecast is of the fleet."
            if jobs is not None
            else f"Per hour, last {days} d. The forecast adds up {count:,} of "
            f"{count_text(count + skipped, 'job')}, the q10 and q90 as if all peaked together; "
            "jobs yet to come are not foreseen."
        )
    drawer("Week ahead", "week-ahead", lambda: show_week_ahead(end))
