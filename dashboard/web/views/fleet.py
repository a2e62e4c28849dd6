"""The fleet as it stands: nodes × GPUs, and one board in depth."""

from datetime import timedelta

import pandas as pd
import streamlit as st

from dashboard.charts.board_history import board_history
from dashboard.charts.fleet_map import MEASURES, fleet_map
from dashboard.charts.palette import safe
from dashboard.web.page import chart, empty_state, figures, finding, number, plain, table
from dashboard.web.session import current_world
from data.clock import utc_now

_NODES = 40
_ALL = "all"
_SORTS = {
    "least work first": ("unused", False),
    "name": ("node", True),
    "most power first": ("power_watts", False),
}
world = current_world()
reader = world.store.reader


def cell_texts(boards: pd.DataFrame) -> list[str]:
    """Give what hovering over each board says."""
    texts = []
    for board in boards.to_dict("records"):
        memory, power = board["memory_used_mib"] / 1024, board["power_watts"]
        work, allocated = number(board["work"], "%"), number(board["allocated"], "%")
        index = safe(board["gpu_index"]) or "?"
        lines = [
            f"{safe(board['node'])} · GPU {index} · {safe(board['gpu_model'])}",
            *([f"slices {safe(board['mig_profiles'])}"] if board["mig_profiles"] else []),
            f"work {work}, allocated {allocated}",
            f"memory {number(memory, 'GiB')}, power {number(power, 'W')}",
            *(safe(job) for job in str(board["jobs"]).split("\n")[:4]),
        ]
        texts.append("<br>".join(lines))
    return texts


def choose(label: str, options: list[str]) -> str:
    """Ask for one of the options, starting with what the address says."""
    asked = st.query_params.get(label.lower(), options[0])
    start = options.index(asked) if asked in options else 0
    return str(st.selectbox(label, options, index=start))


if not empty_state():
    end = reader.latest_sample_at() or utc_now()
    boards = reader.boards(start=end - timedelta(hours=1), end=end)
    boards["work"] = 100 * boards["used_ratio"]
    boards["allocated"] = 100 * boards["allocated_ratio"]
    boards["memory"] = 100 * boards["memory_used_mib"] / boards["memory_total_mib"]
    boards["unused"] = 1 - boards["used_ratio"].fillna(0)
    held = boards[boards["allocated_ratio"] > 0]
    idle = held[held["work"] < 100 * world.settings.settings.planning.idle_utilization_ratio]
    finding(
        f"{len(boards)} boards on {boards['node'].nunique()} nodes: {len(held)} were held in the "
        f"last hour, {len(idle)} of them did nothing."
    )
    figures(
        {
            "held boards' work, mean": number(held["work"].mean(), "%"),
            "held boards' memory, mean": number(held["memory"].mean(), "%"),
            "power of all boards": (
                number(boards["power_watts"].sum(min_count=1) / 1000, "kW"),
                f"{int(boards['power_watts'].isna().sum())} boards did not report it",
            ),
            "boards cut into slices": f"{int((boards['mig_profiles'] != '').sum())}",
        }
    )
    cells = st.columns([2, 2, 2, 3], vertical_alignment="bottom")
    with cells[0]:
        shown = choose("Colour", [one.title for one in MEASURES])
    with cells[1]:
        model = choose("Model", [_ALL, *sorted(set(boards["gpu_model"]))])
    with cells[2]:
        order = choose("Order", list(_SORTS))
    with cells[3]:
        search = st.text_input("Node or job", st.query_params.get("q", ""))
    st.query_params.from_dict(
        {
            name: value
            for name, value in (
                ("colour", shown if shown != MEASURES[0].title else ""),
                ("model", model if model != _ALL else ""),
                ("order", order if order != next(iter(_SORTS)) else ""),
                ("q", search),
                ("gpu", st.query_params.get("gpu", "")),
            )
            if value
        }
    )
    chosen = boards
    if model != _ALL:
        chosen = chosen[chosen["gpu_model"] == model]
    if search:
        text = chosen["node"] + " " + chosen["jobs"]
        chosen = chosen[text.str.contains(search, case=False, regex=False)]
    if chosen.empty:
        st.info("No board fits these filters. Clear the search or choose “all”.")
    else:
        column, ascending = _SORTS[order]
        ranks = (
            chosen.groupby("node", as_index=False)
            .agg({"unused": "sum", "power_watts": "sum"})
            .sort_values([column, "node"], ascending=[ascending, True])
        )
        pages = -(-len(ranks) // _NODES)
        page = st.number_input(f"Page of {pages}", 1, pages, 1) if pages > 1 else 1
        nodes = ranks["node"].iloc[(page - 1) * _NODES : page * _NODES].tolist()
        rows = chosen[chosen["node"].isin(nodes)].copy()
        rows["rank"] = rows["node"].map({name: place for place, name in enumerate(nodes)})
        rows = rows.sort_values(["rank", "gpu_index", "gpu_uuid"])
        rows["cell"] = rows.groupby("node").cumcount()
        rows["text"] = cell_texts(rows)
        chart(fleet_map(rows, next(one for one in MEASURES if one.title == shown)), "fleet-map")
        st.caption(
            "Means of the last hour, memory its largest. Grey: nobody holds it; orange to blue: "
            "held, from idle to busy; a cross: not reported."
        )
        ids = rows["gpu_uuid"].tolist()
        asked = st.query_params.get("gpu", "")
        names = dict(
            zip(ids, rows["node"] + " · GPU " + rows["gpu_index"] + " · " + ids, strict=True)
        )
        gpu = st.selectbox(
            "One GPU",
            ids,
            index=ids.index(asked) if asked in ids else 0,
            format_func=lambda one: names[one],
        )
        st.query_params["gpu"] = gpu
        history = reader.board_history(
            gpu, start=end - timedelta(days=1), end=end, slot_seconds=900
        )
        chart(board_history(history), "board")
        held_by = sorted({job for line in history["jobs"].dropna() for job in line.split(", ")})
        st.caption(
            plain(f"Held in the last 24 h by {', '.join(held_by[:8])}")
            if held_by
            else "Nobody held it in the last 24 h."
        )
        exported = rows.drop(columns=["text", "cell", "rank", "unused", "work", "allocated"])
        table(exported.drop(columns="memory"), "boards")
