"""The week ahead on Overview: the forecast need of the fleet, and how far it can be trusted."""

from datetime import datetime

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.common.escaping import markdown
from dashboard.web.access.identity import current_world
from dashboard.web.frame.address_filters import pick
from dashboard.web.frame.page import figures, tense
from dashboard.web.frame.scope import current_scope
from dashboard.web.jobs.workload_forecast import show_path
from data.base.counts import count_text
from data.base.units import SECONDS_PER_HOUR
from data.records.forecasts import UNIT_OF, GroupForecast, GroupKind, Quantity
from forecasting.series.rack_series import rack_history

_TITLES = {
    Quantity.ALLOCATED_GPUS: "GPUs allocated",
    Quantity.EFFECTIVE_GPUS: "GPUs in use",
    Quantity.POWER: "GPU power",
}
_HISTORY = {"7 d": pd.Timedelta(days=7), "30 d": pd.Timedelta(days=30)}


def day_ahead(group: GroupForecast, quantity: Quantity) -> tuple[str, str]:
    """Return the mean of the next 24 h with its peak hour, as a figure and its small print."""
    path = group.path(quantity)
    if path is None:
        return "—", "never reported"
    peak = int(np.argmax(path.q90[:24]))
    unit = UNIT_OF[quantity]
    mean, most = float(np.mean(path.q50[:24])), path.q90[peak]
    texts = [
        f"{value:,.0f} W" if unit == "W" else count_text(value, "GPU") for value in (mean, most)
    ]
    return texts[0], f"q90 peaks at {texts[1]}, {group.slot_starts[peak]:%H:%M} UTC"


def show_week_ahead(end: datetime) -> None:
    """Show the need of the fleet or a group of it, and how the forecast of it was tested."""
    world = current_world()
    reader = world.reader
    groups = list(reader.group_forecasts())
    weeks = {(group.kind, group.name): group for group in groups if group.by_hour}
    scope = current_scope()
    filter_by_kind = {GroupKind.NAMESPACE: scope.namespace, GroupKind.GPU_MODEL: scope.model}
    filters = [item for item in filter_by_kind.items() if item[1]]
    if filters:
        weeks = {test: weeks[test] for test in filters if test in weeks}
    if not weeks:
        whose = scope.describe() or "the fleet"
        st.info(markdown(f"No forecast of {whose} is kept: too little is known of it."))
        return
    kind, name = next(iter(weeks)) if filters else (GroupKind.FLEET, "fleet")
    fleet = weeks[kind, name]
    whose = markdown("jobs" if kind is GroupKind.FLEET else f"jobs of {name}")
    allocated = fleet.path(Quantity.ALLOCATED_GPUS)
    if allocated is not None:
        ahead_text = tense(
            f"In the next 24 h {whose} will need",
            f"In the 24 h after it, {whose} would have needed",
        )
        st.write(
            f"{ahead_text} {count_text(float(np.mean(allocated.q50[:24])), 'GPU')} on average, "
            f"80 % interval of an hour {np.mean(allocated.q10[:24]):,.0f}–"
            f"{np.mean(allocated.q90[:24]):,.0f}, jobs yet to come included."
        )
    figures({_TITLES[title]: day_ahead(fleet, title) for title in _TITLES})
    names = {
        f"{kind}: {name}" if name != "fleet" else "fleet": (kind, name) for kind, name in weeks
    }
    with st.container(horizontal=True):
        group_title = st.selectbox("Group", list(names), key="group", bind="query-params")
        mine = [group for group in groups if (group.kind, group.name) == names[group_title]]
        quantities = {
            title: entry
            for entry, title in _TITLES.items()
            if any(group.path(entry) is not None for group in mine)
        }
        quantity = quantities[pick("Quantity", list(quantities), "quantity")]
        ahead = pick("Ahead", list(_HISTORY), "ahead")
    kind, name = names[group_title]
    forecast = next((entry for entry in mine if entry.by_hour == (ahead == "7 d")), None)
    start = end - _HISTORY[ahead]
    history = (
        rack_history(reader.node_power(start=start, end=end), world.settings.settings.power.domains)
        if kind is GroupKind.RACK
        else reader.group_history(start=start, end=end, slot_seconds=SECONDS_PER_HOUR)
    )
    rows = history[(history["kind"] == str(kind)) & (history["name"] == name)]
    title = _TITLES[quantity] + (" (W)" if quantity is Quantity.POWER else "")
    show_path(rows, forecast, quantity, title, "group")
