"""The XID errors of the whole fleet on the page Health."""

from datetime import datetime, timedelta

import streamlit as st

from dashboard.web.page import plain, table
from dashboard.web.xid_errors import board_rows, code_rows, finding
from data.store.cached_reader import CachedReader

_DAYS = 7
_SHOWN = 200


def xid_section(reader: CachedReader, now: datetime) -> None:
    """Say which errors boards showed in the last days, code by code and board by board."""
    st.subheader("XID errors")
    end = reader.latest_sample_at() or now
    xids = reader.board_xids(since=end - timedelta(days=_DAYS))
    st.write(plain(finding(xids, end=end, days=_DAYS)))
    boards = board_rows(xids)
    if boards.empty:
        return
    table(code_rows(xids), "xid-codes")
    with st.expander(f"Boards ({len(boards):,})"):
        table(boards.head(_SHOWN), "xid-boards", every=lambda: boards)
