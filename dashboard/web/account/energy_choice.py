"""Choice on the page of energy, kept in its address so that a link shows the same."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import streamlit as st

from dashboard.accounting.energy.periods import Every
from dashboard.accounting.energy.statement import GroupBy
from dashboard.web.access.identity import current_world
from dashboard.web.frame.scope import Scope, asks_for
from data.base.clock import midnight

_BY = (
    GroupBy.TENANT,
    GroupBy.OWNER,
    GroupBy.JOB,
    GroupBy.MODEL,
    GroupBy.NODE,
    GroupBy.CLUSTER,
)
_EVERY = (Every.HOUR, Every.DAY, Every.WEEK)
_MAX_HOURLY_DAYS = 14
"""Bars of an hour are too thin to see over a longer range."""

SHOWN = ("kWh", "kgCO2e location-based", "kgCO2e market-based")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyChoice:
    """The range [start, end), by what it is told apart, the length of a bar, and its quantity."""

    start: datetime
    end: datetime
    days: int
    by: GroupBy
    every: Every
    quantity: str


def ask_energy_choice(newest: datetime, zone: str, scope: Scope) -> EnergyChoice:
    """Ask for it, starting with what the address says, and write the answer into the address."""
    days = scope.days
    # What single jobs used is not told apart by node.
    left_out = {GroupBy.NODE} if scope.chosen else set()
    if not asks_for("cluster", current_world().reader.job_choices()):
        left_out.add(GroupBy.CLUSTER)
    groups = [entry.value for entry in _BY if entry not in left_out]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        by = _choose("By", "by", groups, GroupBy.TENANT.value)
        every = _choose("Bars", "every", [entry.value for entry in _EVERY], Every.DAY.value)
        quantity = _choose("Show", "show", SHOWN, SHOWN[0])
        last = newest.astimezone(ZoneInfo(zone)).date()
        until = st.date_input("Until", _asked_day(last), max_value=last, key="until-day", width=150)
    end_day = until if isinstance(until, date) else last
    end = min(newest, _after(end_day, zone))
    if every == Every.HOUR.value and days > _MAX_HOURLY_DAYS:
        st.caption(f"Hours are shown for at most {_MAX_HOURLY_DAYS} days; these are days.")
        every = Every.DAY.value
    st.query_params.update({"by": by, "every": every, "show": quantity})
    if end_day != last:
        st.query_params["until"] = end_day.isoformat()
    elif "until" in st.query_params:
        del st.query_params["until"]
    return EnergyChoice(
        start=end - timedelta(days=days),
        end=end,
        days=days,
        by=GroupBy(by),
        every=Every(every),
        quantity=quantity,
    )


def _choose(label: str, name: str, options: Sequence[str], usual: str) -> str:
    value = st.query_params.get(name, usual)
    default = value if value in options else usual
    return str(st.radio(label, options, options.index(default), horizontal=True))


def _asked_day(last: date) -> date:
    try:
        return min(last, date.fromisoformat(st.query_params.get("until", "")))
    except ValueError:
        return last


def _after(day: date, zone: str) -> datetime:
    """Return the midnight (UTC) that ends a day of the zone."""
    return midnight(day + timedelta(days=1), ZoneInfo(zone))
