"""Nodes that a reservation takes soon: they look free, and are promised.

`scontrol show reservations` in lines, as releases before 23.11 know no JSON of it, or slurmrestd.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from collectors.slurm.records import Record, SlurmNode
from collectors.slurm.values import hosts_of, moment_of, text_of
from data.base.errors import CollectorError

RESERVATION_HORIZON = timedelta(hours=24)
"""A reservation that starts later than that keeps no node on yet."""
RESERVED_AHEAD = "reservation-ahead"
_FIELD = re.compile(r"(\w+)=(\S*)")


def reservations_in(text: str) -> list[Record]:
    """Return the reservations of `scontrol --oneliner show reservations`, times in UTC."""
    rows: list[Record] = []
    for line in text.splitlines():
        fields = dict(_FIELD.findall(line))
        if "ReservationName" in fields:
            rows.append(
                {
                    "node_list": fields.get("Nodes", ""),
                    "start_time": fields.get("StartTime", ""),
                    "end_time": fields.get("EndTime", ""),
                }
            )
    return rows


def with_reservations(
    nodes: Iterable[SlurmNode],
    ask: Callable[[], Iterable[Record]],
    now: datetime,
    ahead: timedelta = RESERVATION_HORIZON,
) -> tuple[tuple[SlurmNode, ...], tuple[str, ...]]:
    """Return (nodes, warnings): a word is added to the state of nodes that a reservation takes.

    Where reservations cannot be read the nodes stay as they are, with a warning.
    """
    try:
        promised = {
            name for reservation in ask() for name in _promised(reservation, now + ahead, now)
        }
    except (CollectorError, ValueError) as error:
        return tuple(nodes), (f"reservations of nodes are not visible: {error}",)
    marked = (
        replace(node, state=f"{node.state}+{RESERVED_AHEAD}") if node.name in promised else node
        for node in nodes
    )
    return tuple(marked), ()


def _promised(reservation: Record, until: datetime, now: datetime) -> tuple[str, ...]:
    """Return the nodes of a reservation that has begun or soon will. Errors: ValueError."""
    starts, ends = (moment_of(reservation.get(f"{name}_time")) for name in ("start", "end"))
    if (ends is not None and ends <= now) or (starts is not None and starts > until):
        return ()
    return hosts_of(text_of(reservation.get("node_list")))
