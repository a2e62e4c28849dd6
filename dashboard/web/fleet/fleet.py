"""The fleet as it stands: every GPU at a glance, nodes × GPUs, one board in depth, its health."""

from datetime import datetime, timedelta

import pandas as pd
import streamlit as st

from dashboard.charts.board_history import board_history
from dashboard.charts.fleet_image import fleet_image
from dashboard.charts.fleet_map import MEASURES, MapMeasure, fleet_map
from dashboard.charts.palette import safe
from dashboard.common.escaping import markdown
from dashboard.web.access.identity import current_world
from dashboard.web.fleet.node_health import troubles
from dashboard.web.fleet.xid_errors import (
    NOT_REPORTED,
    board_rows,
    errors_in,
    notable_errors,
    xid_texts,
)
from dashboard.web.frame.address_filters import choose, choose_page
from dashboard.web.frame.page import chart, empty_state, figures, finding, number, show_link, table
from dashboard.web.frame.scope import current_scope, scoped_jobs
from dashboard.web.overview.usage import usage_now
from data.base.clock import utc_now
from data.base.counts import count_text
from data.facts.cluster_names import MAIN_CLUSTER, cluster_in
from data.facts.columns import ACTIVITY
from data.facts.gpu_resources import UNREAD_SUFFIX

_NODES, _NAMED_JOBS, _XID_DAYS = 40, 8, 30
_SLOT_SECONDS = {1: 900, 7: 3600, 30: 3600, 90: 10_800}
_NOBODY = "No known job had it in the last {days} d."
_COLUMN_PIXELS = {"what": 380, "since or why": 420}
_SORTS = {
    "least used first": ("unused", False),
    "name": ("node", True),
    "most power first": ("power_watts", False),
    "hottest first": ("temperature_celsius", False),
}
world = current_world()
reader = world.reader


def cell_texts(boards: pd.DataFrame) -> list[str]:
    """Return the hover text of each board."""
    texts = []
    for board in boards.to_dict("records"):
        memory, power = board["memory_used_mib"] / 1024, board["power_watts"]
        work, allocated = number(board["work"], "%"), number(board["allocated"], "%")
        index = safe(board["gpu_index"]) or "?"
        lines = [
            f"{safe(board['node'])} · GPU {index} · {safe(board['gpu_model'])}",
            *([f"MIG {safe(board['mig_profiles'])}"] if board["mig_profiles"] else []),
            f"in use {work}, allocated {allocated}",
            f"memory {number(memory, 'GiB')}, power {number(power, 'W')}",
            *(safe(job) for job in str(board["jobs"]).split("\n")[:4]),
        ]
        texts.append("<br>".join(lines))
    return texts


def boards_now(end: datetime) -> pd.DataFrame:
    """Return the boards of the last hour that are looked at, with the measures in %."""
    boards = reader.boards(start=end - timedelta(hours=1), end=end)
    boards["work"] = 100 * boards["used_ratio"]
    boards["allocated"] = 100 * boards["allocated_ratio"]
    boards["memory"] = 100 * boards["memory_used_mib"] / boards["memory_total_mib"]
    boards["xid"] = xid_texts(boards, reader.board_xids(since=end - timedelta(days=1)))
    boards["unused"] = 1 - boards["used_ratio"].fillna(0)
    scope, jobs = current_scope(), scoped_jobs()
    if scope.model:
        boards = boards[boards["gpu_model"] == scope.model]
    if scope.cluster:
        boards = boards[boards["node"].map(cluster_in) == scope.cluster.replace(MAIN_CLUSTER, "")]
    if jobs is not None and not set(scope.chosen) <= {"model", "cluster"}:
        in_scope = boards["jobs"].map(
            lambda names: any(part in jobs for part in str(names).split("\n"))
        )
        boards = boards[in_scope]
    return boards


def ranked(boards: pd.DataFrame, order: str) -> pd.DataFrame:
    """Return the boards node by node in the order asked for, numbered by node and within it."""
    column, ascending = _SORTS[order]
    ranks = (
        boards.groupby("node", as_index=False)
        .agg({"unused": "sum", "power_watts": "sum", "temperature_celsius": "max"})
        .sort_values([column, "node"], ascending=[ascending, True], ignore_index=True)
    )
    places = {name: place for place, name in enumerate(ranks["node"])}
    rows = boards.assign(rank=boards["node"].map(places))
    rows = rows.sort_values(["rank", "gpu_index", "gpu_uuid"], ignore_index=True)
    return rows.assign(cell=rows.groupby("rank").cumcount())


def show_boards(rows: pd.DataFrame, measure: MapMeasure, end: datetime) -> None:
    """Show the whole fleet, then a page of nodes, then one board of them."""
    nodes = int(rows["rank"].max()) + 1
    # The scale beside the map says what other colours mean.
    legend = "Grey: not allocated; orange to blue: allocated, from idle to busy. "
    legend *= measure.column == "work"
    if nodes > _NODES:
        chart(fleet_image(rows, measure), "fleet-image", opens=search_for)
        st.caption(
            f"All {nodes:,} nodes in this order, left to right and down; below, {_NODES} of them. "
            f"{legend}A click on a node shows it alone."
        )
    first = choose_page(nodes, _NODES) if nodes > _NODES else 0
    page = rows[(rows["rank"] >= first) & (rows["rank"] < first + _NODES)].copy()
    page["text"] = cell_texts(page)
    chart(fleet_map(page, measure), "fleet-map", opens=open_board)
    st.caption(
        "Of the last hour: means, of memory and temperature the largest. "
        f"{legend}A cross: not reported. A click on a GPU opens it below."
    )
    hidden = ["text", "cell", "rank", "unused", "work", "allocated", "memory"]
    left_out = [name for name in hidden if name != "text"]
    unknown = [name for name in ACTIVITY.names if name in page and page[name].isna().all()]
    columns = page.drop(columns=[*hidden, *unknown])
    at_first = ["node", "gpu_index", "gpu_model", "jobs", "gpu_uuid"]  # in sight on a laptop
    table(
        columns[at_first + [name for name in columns.columns if name not in at_first]],
        "boards",
        every=lambda: rows.drop(columns=left_out),
        links={"gpu_uuid": "fleet?gpu=", "node": "fleet?q=", "jobs": "jobs?job="},
        opens=lambda place: open_board(page["gpu_uuid"].iloc[place]),
        most=8,
    )
    show_board(rows, end)


def open_board(gpu: str) -> None:
    """Let the page draw this board below; the address says which."""
    st.query_params["gpu"] = gpu


def search_for(node: str) -> None:
    """Show the boards of one node alone."""
    st.session_state["q"] = node


def show_board(rows: pd.DataFrame, end: datetime) -> None:
    """Show the past of the board that the address names."""
    gpu = st.query_params.get("gpu", "")
    mine = rows[rows["gpu_uuid"] == gpu]
    if mine.empty:
        if gpu:
            st.warning(markdown(f"GPU {gpu} is not among these."))
        return
    st.header(markdown(f"{mine['node'].iloc[0]} · GPU {mine['gpu_index'].iloc[0]} · {gpu}"))
    days = current_scope().days
    history = reader.board_history(
        gpu, start=end - timedelta(days=days), end=end, slot_seconds=_SLOT_SECONDS[days]
    )
    chart(board_history(history), "board")
    show_xids(gpu, end)
    held_by = sorted({job for line in history["jobs"].dropna() for job in line.split(", ")})
    with st.container(horizontal=True, vertical_alignment="center", key="held-by"):
        caption = f"Allocated in the last {days} d to" if held_by else _NOBODY.format(days=days)
        st.caption(caption, width="content")
        for job in held_by[:_NAMED_JOBS]:
            show_link("job", job, job=job)
        if len(held_by) > _NAMED_JOBS:
            st.caption(f"and {len(held_by) - _NAMED_JOBS} more")


def show_xids(gpu: str, end: datetime) -> None:
    """Show which XID errors one board showed."""
    xids = reader.board_xids(since=end - timedelta(days=_XID_DAYS))
    mine = xids[xids["gpu_uuid"] == gpu]
    if mine.empty:
        st.caption(f"XID errors of this GPU are unknown: {NOT_REPORTED}.")
    elif errors_in(mine).empty:
        st.caption(f"No XID error in the last {_XID_DAYS} d.")
    else:
        table(board_rows(mine).drop(columns=["node", "gpu_index", "gpu_uuid"]), "board-xids")
        st.caption(
            "A GPU shows the code of its last error until its driver is loaded again: that it "
            "still does is no new error, and the same error twice looks like one."
        )


def show_health(boards: pd.DataFrame, silent: pd.DataFrame, end: datetime) -> None:
    """Show what of boards and nodes needs a look."""
    st.header("Health of GPUs and nodes")
    day = {"start": end - timedelta(days=1), "end": end}
    xids = reader.board_xids(since=day["start"])
    rows = troubles(
        boards,
        silent,
        reader.nodes(),
        reader.energy_disagreements(**day),
        notable_errors(xids, since=day["start"]),
    )
    if rows.empty:
        st.write("All GPUs of the last 24 h still report, with power; every node takes jobs.")
    else:
        table(rows.head(500), "health", every=lambda: rows, prose=_COLUMN_PIXELS)
    if xids.empty:
        st.caption(f"XID errors are unknown: {NOT_REPORTED}.")


for warning in (entry for report in reader.source_reports() for entry in report.warnings):
    if UNREAD_SUFFIX in warning:
        st.warning(markdown(f"{warning}."))
if not empty_state():
    end = reader.latest_sample_at() or utc_now()
    boards = boards_now(end)
    busy = boards[boards["allocated_ratio"] > 0]
    hour_ago = end - timedelta(hours=1)
    silent = reader.silent_boards(start=end - timedelta(days=1), end=end, since=hour_ago)
    mute = int(boards["power_watts"].isna().sum())
    now = usage_now(end)
    usage = (
        "none allocated in the last 24 h"
        if now is None
        else f"{now['allocated_gpus']:,.1f} allocated, {now['used_gpus']:,.1f} in use, "
        f"{now['idle_allocated_gpus']:,.1f} allocated but idle"
    )
    # A filter narrows the table to jobs; of all of them the total is that of every other page.
    total = len(boards) if now is None or current_scope().chosen else int(now["boards"])
    gone = (
        f"; {len(silent):,} more fell silent within the day"
        if len(silent) and not current_scope().chosen
        else ""
    )
    on = count_text(boards["node"].nunique(), "node")
    finding(f"{count_text(total, 'GPU')} on {on}: {usage}{gone}.")
    figures(
        {
            "utilization of allocated GPUs": number(busy["work"].mean(), "%"),
            "memory of allocated GPUs": number(busy["memory"].mean(), "%"),
            "power of all GPUs": (
                number(boards["power_watts"].sum(min_count=1) / 1000, "kW"),
                f"{count_text(mute, 'GPU')} did not report it" if mute else "",
            ),
            "GPUs with MIG instances": f"{int((boards['mig_profiles'] != '').sum())}",
        }
    )
    cells = st.columns([2, 2, 3], vertical_alignment="bottom")
    with cells[0]:
        measures = [entry for entry in MEASURES[1:] if boards[entry.column].notna().any()]
        title = choose("Colour", [entry.title for entry in (MEASURES[0], *measures)], "colour")
    with cells[1]:
        order = choose("Order", list(_SORTS), "order")
    with cells[2]:
        search = st.text_input("Node or job", key="q", bind="query-params")
    matches = boards
    if search:
        text = matches["node"] + " " + matches["jobs"]
        matches = matches[text.str.contains(search, case=False, regex=False)]
    if matches.empty:
        st.info("No GPU fits these filters. Clear the search, or choose other jobs above.")
    else:
        show_boards(
            ranked(matches, order),
            next(measure for measure in MEASURES if measure.title == title),
            end,
        )
    show_health(boards, silent, end)
