"""A plan as a picture: time to the right, GPUs upwards by node, jobs as blocks, idle hatched."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import numpy as np
import plotly.graph_objects as go

from dashboard.charts.forecast_band import draw_band
from dashboard.charts.palette import (
    FREE_COLOUR,
    HV,
    PROBLEM,
    PROPOSED,
    USED,
    draw_line,
    safe,
    with_layout,
    with_opacity,
)
from data.base.units import SECONDS_PER_HOUR
from data.records.plans import JobPlan, NodePlan, Plan

_SLICES = 8
_GAP = 1
"""Rows between two nodes."""


_Blocks = list[tuple[datetime, datetime, float, float, str, str]]
"""Bars of one kind: begin, end, lowest row, rows, what the hover says, and the job, if any."""


def plan_gantt(plan: Plan, nodes: Sequence[NodePlan], why: Mapping[str, str]) -> go.Figure:
    """Return the Gantt chart of some nodes; `why` says for a job what the plan is after.

    Blocks in the accent colour are jobs on another configuration or place; diamonds mark changes.
    """
    slot = timedelta(seconds=plan.slot_seconds)
    times = [at.replace(tzinfo=None) for at in plan.slot_starts]
    times.append(times[-1] + slot)
    by_node, ends = _by_node(plan), _ends_of_boards(plan)
    figure = go.Figure()
    unchanged, changed, idle, off = _Blocks(), _Blocks(), _Blocks(), _Blocks()
    marks: list[tuple[datetime, float, str]] = []
    ticks: list[tuple[float, str]] = []
    row = 0.0
    for node in nodes:
        lanes = np.zeros((node.gpus, len(plan.slot_starts)), dtype=np.bool_)
        boards: dict[int, int] = {}
        for job, at in by_node.get(node.node, []):
            stay = job.stays[at]
            begin, end = times[stay.start], times[stay.end]
            is_new = stay.moved or stay.start > 0 or job.steps[stay.start] != job.now
            blocks = changed if is_new else unchanged
            text = _hover(plan, job, at, why)
            for base, height in _lanes(lanes, boards, ends, job, at):
                blocks.append((begin, end, row + base, height, text, job.job_id))
                if is_new:
                    marks.append((begin, row + base + height / 2, text))
        _idle(node, lanes, times, row, idle, off)
        ticks.append((row + node.gpus / 2, f"{safe(node.node)}"))
        row += node.gpus + _GAP
    _bars(figure, unchanged, "job as it is now", USED, "")
    _bars(figure, changed, "changed by the plan", PROPOSED, "")
    _bars(figure, idle, "idle, node on", FREE_COLOUR, "/")
    _bars(figure, off, "node off", "rgba(0,0,0,0)", "")
    figure.add_scatter(
        x=[at for at, _row, _text in marks],
        y=[middle for _at, middle, _text in marks],
        name="change",
        mode="markers",
        marker={"symbol": "diamond", "size": 8, "color": PROPOSED, "line": {"width": 1}},
        hovertext=[text for _at, _row, text in marks],
        hoverinfo="text",
    )
    figure = with_layout(figure, y_title="", height=int(min(900, 140 + 9 * row)))
    figure.update_layout(barmode="overlay", bargap=0, hovermode="closest")
    figure.update_yaxes(
        tickvals=[at for at, _name in ticks],
        ticktext=[name for _at, name in ticks],
        range=[0, max(row, 1)],
        showgrid=False,
    )
    figure.update_xaxes(range=[times[0], times[-1]])
    return figure


def _by_node(plan: Plan) -> dict[str, list[tuple[JobPlan, int]]]:
    """Return the stays on every node, longest first, so that lanes stay straight."""
    stays_by_node: dict[str, list[tuple[JobPlan, int]]] = defaultdict(list)
    for job in plan.jobs:
        for number, stay in enumerate(job.stays):
            stays_by_node[stay.node].append((job, number))
    for stays in stays_by_node.values():
        stays.sort(key=lambda entry: _rank(entry[0], entry[1]))
    return stays_by_node


def _ends_of_boards(plan: Plan) -> dict[tuple[str, int], int]:
    """Return the slot in which the last slice of every cut board ends."""
    ends: dict[tuple[str, int], int] = defaultdict(int)
    for job in plan.jobs:
        for stay in job.stays:
            if stay.mig_board is not None:
                key = stay.node, stay.mig_board
                ends[key] = max(ends[key], stay.end)
    return ends


def _rank(job: JobPlan, number: int) -> tuple[int, int, str]:
    stay = job.stays[number]
    return stay.start, stay.start - stay.end, job.job_id


def _lanes(
    lanes: "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]",
    boards: dict[int, int],
    ends: Mapping[tuple[str, int], int],
    job: JobPlan,
    number: int,
) -> list[tuple[float, float]]:
    """Return (row, height) of the blocks of a stay on its node, in free lanes from below.

    A board cut by MIG keeps its lane in `boards` until its last slice ends.
    """
    stay = job.stays[number]
    window = slice(stay.start, stay.end)
    if stay.mig_board is not None:
        if stay.mig_board not in boards:
            window = slice(stay.start, ends[stay.node, stay.mig_board])
            free = np.flatnonzero(~lanes[:, window].any(axis=1))
            boards[stay.mig_board] = int(free[0]) if len(free) else len(lanes) - 1
            lanes[boards[stay.mig_board], window] = True
        lane = boards[stay.mig_board]
        profile = job.steps[stay.start].mig_profile
        # Memory slices of a profile such as 3g.40gb, as near as its name tells.
        compute = int(profile[0]) if profile[:1].isdigit() else 1
        width = 1 / _SLICES * {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}.get(compute, 1)
        return [(lane + (stay.mig_position or 0) / _SLICES, width)]
    free = np.flatnonzero(~lanes[:, window].any(axis=1))[: stay.gpus]
    lanes[free, window] = True
    groups = np.split(free, np.flatnonzero(np.diff(free) > 1) + 1) if len(free) else []
    return [(float(group[0]), float(len(group))) for group in groups]


def _hover(plan: Plan, job: JobPlan, number: int, why: Mapping[str, str]) -> str:
    stay = job.stays[number]
    hours = (stay.end - stay.start) * plan.slot_seconds / SECONDS_PER_HOUR
    lines = [
        safe(job.job_id),
        f"{safe(job.describe(job.steps[stay.start]))} on {safe(stay.node)}",
        f"from {plan.slot_starts[stay.start]:%d %b %H:%M} for {hours:.3g} h",
    ]
    if stay.moved:
        lines.append("moves here from another node")
    if job.steps[stay.start] != job.now:
        lines.append(f"now {safe(job.now.describe())}")
    if job.job_id in why:
        lines.append(safe(why[job.job_id]))
    return "<br>".join(lines)


def _idle(
    node: NodePlan,
    lanes: "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]",
    times: Sequence[datetime],
    row: float,
    idle: _Blocks,
    off: _Blocks,
) -> None:
    """Add the stretches in which a lane holds nothing, and those in which the node is off."""
    on = np.array(node.on)
    for begin, end in _stretches(~on):
        text = f"{safe(node.node)} is empty and off"
        off.append((times[begin], times[end], row, float(node.gpus), text, ""))
    for lane in range(node.gpus):
        for begin, end in _stretches(on & ~lanes[lane]):
            hours = (times[end] - times[begin]) / timedelta(hours=1)
            text = f"{safe(node.node)}: idle for {hours:.3g} h"
            idle.append((times[begin], times[end], row + lane, 1.0, text, ""))


def _stretches(flags: "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]") -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff([False, *flags, False]))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _bars(figure: go.Figure, blocks: _Blocks, name: str, colour: str, hatch: str) -> None:
    """Draw blocks of one kind, thin lines between them."""
    hatched = (
        {"shape": hatch, "fgcolor": with_opacity("#808080", 0.7), "size": 5} if hatch else None
    )
    drawn = colour.startswith("#")
    figure.add_bar(
        x=[begin + (end - begin) / 2 for begin, end, *_rest in blocks],
        width=[(end - begin) / timedelta(milliseconds=1) for begin, end, *_rest in blocks],
        base=[block[2] for block in blocks],
        y=[block[3] for block in blocks],
        name=name,
        hovertext=[block[4] for block in blocks],
        hoverinfo="text",
        customdata=[[block[5]] if block[5] else None for block in blocks],
        marker={
            "color": with_opacity(colour, 0.25 if hatch else 0.85) if drawn else colour,
            "line": {"width": 1, "color": "white" if drawn else FREE_COLOUR},
            "pattern": hatched,
        },
    )


def capacity_band(
    plan: Plan,
    planned: Sequence[float],
    demand: tuple[Sequence[datetime], Sequence[float], Sequence[float], Sequence[float]] | None,
    capacity: float,
) -> go.Figure:
    """Return the fleet's demand band q10-q90 with the boards that the plan holds, and the limit.

    `demand` is times, q10, q50, q90 in GPUs.
    """
    figure = go.Figure()
    if demand is not None:
        times, low, middle, high = demand
        draw_band(figure, times, (low, high), middle, "demand, q10–q90")
    starts = [at.replace(tzinfo=None) for at in plan.slot_starts]
    draw_line(figure, starts, list(planned), "planned", PROPOSED, width=2.5, line=HV)
    draw_line(figure, starts, [capacity] * len(starts), "capacity", PROBLEM, line={"dash": "dash"})
    return with_layout(figure, y_title="GPUs", height=280)
