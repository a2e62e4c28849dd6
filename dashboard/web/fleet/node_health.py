"""Boards and nodes that need a look: silent, in error, closed, without power readings."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import pandas as pd

from dashboard.resources.alerts import (
    HOT_CELSIUS,
    HOT_MEMORY_CELSIUS,
    MEMORY_FAILS,
    REPLACE,
    slowed_text,
)
from data.base.counts import count_text
from data.catalogue.xid_table import meaning_of
from data.facts.fleet import Node

_COLUMNS = ["what", "where", "since or why"]
_SLOWED = 0.1
"""Of an hour; less is a short peak."""


def troubles(
    boards: pd.DataFrame,
    silent: pd.DataFrame,
    nodes: Sequence[Node],
    jumps: pd.DataFrame,
    xids: pd.DataFrame,
) -> pd.DataFrame:
    """Return a row per trouble: what, where, since when or why.

    `boards` are those of the last hour (StoreReader.boards), `silent` those that were seen before
    it alone (silent_boards), `jumps` the boards whose energy counter contradicts their power
    (energy_disagreements), and `xids` the errors of boards that are worth a look (xid_errors).
    Hot is what has reached a limit.
    """
    mute = boards[boards["power_watts"].isna()]
    closed = [node for node in nodes if node.gpu_count and not node.schedulable]
    rows = [
        *_silent_rows(silent),
        *(
            (
                f"XID {row['xid']}: {meaning_of(row['xid']).what}",
                f"{row['node']} · GPU {row['gpu_index']}",
                f"shown since {_time(row['first_seen_at'])}; {meaning_of(row['xid']).next_step}",
            )
            for row in xids.to_dict("records")
        ),
        *_unwell(boards),
        *(
            ("node takes no jobs", node.name, f"{node.state} {node.reason}".strip() or "not said")
            for node in closed
        ),
        *(
            (what, where, "energy is unknown")
            for what, where, _boards in _by_node(mute, "reports no power", "report no power")
        ),
        *(
            (
                "energy counter contradicts power",
                f"{entry['node']} · {entry['gpu_uuid']}",
                f"{entry['counter_kwh']:.3g} against {entry['power_kwh']:.3g} kWh in 24 h",
            )
            for entry in jumps.to_dict("records")
        ),
    ]
    return pd.DataFrame(rows, columns=_COLUMNS)


def _silent_rows(silent: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    for what, where, boards in _by_node(silent, "is silent", "are silent"):
        first, last = map(_time, (boards["last_seen_at"].min(), boards["last_seen_at"].max()))
        yield what, where, f"last seen {first if first == last else f'{first} to {last}'}"


def _by_node(
    boards: pd.DataFrame, one: str, several: str
) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield what is true of boards, node by node: a node that is down is one trouble, not eight."""
    for node, group in () if boards.empty else boards.groupby("node"):
        if len(group) == 1:
            yield f"GPU {one}", _place(group.to_dict("records")[0]), group
        else:
            yield f"{len(group):,} GPUs {several}", str(node), group


def _unwell(boards: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    """Yield the boards' own reports of bad health in the last hour."""
    for board in boards.to_dict("records"):
        place = _place(board)
        if board["remap_failed"] > 0:
            yield MEMORY_FAILS, place, REPLACE
        if board["uncorrected_errors"] > 0:
            errors = count_text(int(board["uncorrected_errors"]), "error")
            yield "uncorrectable memory errors", place, f"{errors} since the driver was loaded"
        if board["throttled_ratio"] >= _SLOWED:
            yield "clocks are slowed", place, slowed_text(board)
        for name, limit, what in (
            ("temperature_celsius", HOT_CELSIUS, "GPU is hot"),
            ("memory_temperature_celsius", HOT_MEMORY_CELSIUS, "memory is hot"),
        ):
            if board[name] >= limit:
                yield what, place, f"{board[name]:.0f} °C in the last hour, hot from {limit:.0f} °C"


def _place(board: Mapping[Any, object]) -> str:
    return f"{board['node']} · GPU {board['gpu_index']}"


def _time(at: object) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC" if isinstance(at, datetime) else "—"
