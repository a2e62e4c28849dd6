"""The XID errors of the whole fleet on Admin, and of one board on Fleet."""

from datetime import datetime, timedelta

import streamlit as st

from dashboard.common.escaping import markdown
from dashboard.web.fleet.xid_errors import NOT_REPORTED, board_rows, code_rows, errors_in, finding
from dashboard.web.frame.page import table
from data.store.handles.cached_reader import CachedReader

_DAYS = 7
_SHOWN = 200
_BOARD_DAYS = 30
_PROSE = {"what": 260, "next_step": 260}


def xid_section(reader: CachedReader, now: datetime) -> None:
    """Show the errors of boards in the last days, code by code and board by board."""
    st.header("XID errors")
    end = reader.latest_sample_at() or now
    xids = reader.board_xids(since=end - timedelta(days=_DAYS))
    st.write(markdown(finding(xids, end=end, days=_DAYS)))
    boards = board_rows(xids)
    if boards.empty:
        return
    table(code_rows(xids), "xid-codes", prose=_PROSE)
    with st.expander(f"GPUs ({len(boards):,})"):
        table(boards.head(_SHOWN), "xid-boards", every=lambda: boards, prose=_PROSE)


def board_xid_section(reader: CachedReader, gpu: str, end: datetime) -> None:
    """Show which XID errors one board showed."""
    xids = reader.board_xids(since=end - timedelta(days=_BOARD_DAYS))
    mine = xids[xids["gpu_uuid"] == gpu]
    if mine.empty:
        st.caption(f"XID errors of this GPU are unknown: {NOT_REPORTED}.")
    elif errors_in(mine).empty:
        st.caption(f"No XID error in the last {_BOARD_DAYS} d.")
    else:
        table(board_rows(mine).drop(columns=["node", "gpu_index", "gpu_uuid"]), "board-xids")
        st.caption(
            "A GPU shows the code of its last error until its driver is loaded again: that it "
            "still does is no new error, and the same error twice looks like one."
        )
