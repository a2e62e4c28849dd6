"""Facility: the heat of the fleet and its racks, a day ahead, and boards that are badly cooled."""

from datetime import timedelta

import pandas as pd
import streamlit as st

from dashboard.accounting.facility.heat import HeatRow, heat_rows
from dashboard.accounting.facility.hot_spots import HOT_SPOT, boards_by_warmth
from dashboard.common.escaping import markdown
from dashboard.resources.alerts import HOT_CELSIUS
from dashboard.web.access.identity import current_world
from dashboard.web.frame.page import (
    UNKNOWN,
    empty_state,
    figures,
    finding,
    number,
    opener_of_rows,
    show_link,
    table,
    tense,
)
from data.base.clock import utc_now
from data.base.counts import count_text

_SHOWN, _WARMER = 200, 10.0
"""Boards listed; from so many °C above its model's usual on a board is called badly cooled."""
world = current_world()
reader, settings = world.reader, world.settings.settings


def answer_of(heat_kw: float | None, racks: tuple[HeatRow, ...]) -> str:
    """Return the page's sentence: the heat of all boards, and whether a rack has too much."""
    gives = tense("gives off", "gave off")
    now = "Power was never reported, so heat is unknown"
    if heat_kw is not None:
        now = f"The fleet {gives} {number(heat_kw, 'kW')} of heat"
    over = [row.rack for row in racks if row.over_limit]
    if not racks:
        return f"{now}; no rack is known."
    if over:
        racks_text = ", ".join(over[:3]) + (f" and {len(over) - 3} more" if len(over) > 3 else "")
        return f"{now}; within 24 h {racks_text} may exceed what the rack's power allows."
    if any(row.over_limit is None for row in racks):
        return f"{now}; what racks give off in the next 24 h is not forecast yet."
    return f"{now}; no rack is expected to exceed its limit in the next 24 h."


def rack_rows(racks: tuple[HeatRow, ...]) -> pd.DataFrame:
    """Return the table of racks."""
    return pd.DataFrame(
        {
            "rack": row.rack,
            "GPUs": row.boards,
            "heat now (kW)": row.heat_kw,
            "mean, 24 h ahead (kW)": row.mean_kw,
            "peak, 24 h ahead (kW)": row.peak_kw,
            "its q95 (kW)": row.peak_q95_kw,
            "at": row.peak_at,
            "limit of the GPUs (kW)": row.limit_kw,
            "over it": {None: "unknown", True: "yes", False: "no"}[row.over_limit],
            "cooling, 24 h ahead (kWh)": row.cooling_kwh,
        }
        for row in racks
    )


def show_racks(racks: tuple[HeatRow, ...]) -> None:
    """Show the racks; a row opens the rack's forecast."""
    st.header("Racks")
    if not racks:
        st.info("Name racks, their nodes and their power in the setting `power.domains`.")
        return
    opens = opener_of_rows(
        "overview", [{"week-ahead": "true", "group": f"rack: {row.rack}"} for row in racks]
    )
    table(rack_rows(racks), "racks", opens=opens)
    st.caption(
        f"Heat of {markdown(racks[0].counts)}, the newest whole hour; ahead as the latest cycle "
        "foresaw it. Limits are of the GPUs' power. A row opens the rack's forecast. The same "
        "by command: `trimtab heat`."
    )


def show_boards(warm: pd.DataFrame) -> None:
    """Show the warmest boards; a row opens its board."""
    st.header("Temperature of GPUs")
    if warm.empty:
        st.info(
            "No source tells a temperature. dcgm-exporter has `DCGM_FI_DEV_GPU_TEMP` by default."
        )
        return
    opens = opener_of_rows("fleet", [{"gpu": uuid} for uuid in warm["gpu_uuid"]])
    table(warm.head(_SHOWN), "warm-boards", every=lambda: warm, opens=opens)
    st.caption(
        "Largest of the last hour, the warmest first. Above its usual: warmer than GPUs of the "
        "same model at the same power, so cooling is worse there. Inlet and liquid temperatures "
        "are not read."
    )
    show_link("fleet", "Map of GPUs by temperature", colour="temperature")


if not empty_state():
    end = reader.latest_sample_at() or utc_now()
    boards = reader.boards(start=end - timedelta(hours=1), end=end)
    warm = boards_by_warmth(boards)
    racks = heat_rows(reader, settings)
    watts = boards["power_watts"].sum(min_count=1)
    heat_kw = None if watts != watts else watts * (1 + settings.power.host_ratio) / 1000
    finding(answer_of(heat_kw, racks))
    first = None if warm.empty else warm.iloc[0]
    hot = int((warm["temperature_celsius"] >= HOT_CELSIUS).sum())
    spots = int((warm[HOT_SPOT] >= _WARMER).sum())
    silent = int(boards["power_watts"].isna().sum())
    figures(
        {
            "heat of the fleet": (
                number(heat_kw, "kW"),
                f"{count_text(silent, 'GPU')} did not report power" if silent else "",
            ),
            "cooling and losses at this heat": (
                number(None if heat_kw is None else heat_kw * (settings.energy.pue - 1), "kW"),
                f"by energy.pue, {settings.energy.pue:g}",
            ),
            "warmest GPU": (UNKNOWN, "no temperature was told")
            if first is None
            else (
                number(float(first["temperature_celsius"]), "°C"),
                f"{first['node']} · GPU {first['gpu_index']}",
            ),
            "badly cooled GPUs": (UNKNOWN, "no temperature was told")
            if first is None
            else (
                f"{spots:,}",
                f"{_WARMER:g} °C above their usual; {hot:,} from {HOT_CELSIUS:g} °C",
            ),
        }
    )
    show_racks(racks)
    show_boards(warm)
