"""XID codes of boards, with first and last times: one row per board and code.

Whatever the order in which readings come, and however often, the same rows stay: the first time is
the earliest, the last the latest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from data.facts.columns import XIDS, check_frame
from data.store.engine.bulk import incoming
from data.store.engine.dialects import make_temporary

if TYPE_CHECKING:
    import pandas as pd

_INCOMING = "incoming_xids"
_COLUMNS = ", ".join(XIDS.names)
_SAME = "t.gpu_uuid = i.gpu_uuid AND t.xid = i.xid"

LATEST = f"""
SELECT {_COLUMNS} FROM board_xids WHERE last_seen_at >= :since
ORDER BY gpu_uuid, last_seen_at DESC, xid DESC
"""  # noqa: S608 - our own names


def keep_xids(connection: sa.Connection, xids: pd.DataFrame) -> None:
    """Merge what boards showed (columns XIDS) with what is kept."""
    frame = check_frame(xids, XIDS)
    if frame.empty:
        return
    with incoming(connection, frame, _INCOMING):
        make_temporary(
            connection,
            "merged_xids",
            f"""
            SELECT gpu_uuid, xid,
                coalesce(arg_max(node, last_seen_at), '') AS node,
                coalesce(arg_max(gpu_index, last_seen_at), '') AS gpu_index,
                min(first_seen_at) AS first_seen_at, max(last_seen_at) AS last_seen_at
            FROM (
                SELECT {_COLUMNS} FROM {_INCOMING}
                UNION ALL SELECT {_COLUMNS} FROM board_xids AS t
                WHERE EXISTS (SELECT 1 FROM {_INCOMING} AS i WHERE {_SAME})
            ) AS told GROUP BY gpu_uuid, xid
            """,  # noqa: S608
        )
    connection.exec_driver_sql(
        "UPDATE board_xids AS t SET node = i.node, gpu_index = i.gpu_index, "  # noqa: S608
        "first_seen_at = i.first_seen_at, last_seen_at = i.last_seen_at "
        f"FROM merged_xids AS i WHERE {_SAME}"
    )
    connection.exec_driver_sql(
        f"INSERT INTO board_xids ({_COLUMNS}) SELECT {_COLUMNS} FROM merged_xids AS i "  # noqa: S608
        f"WHERE NOT EXISTS (SELECT 1 FROM board_xids AS t WHERE {_SAME})"
    )
