"""XID errors as pages show them: the last code of each board, and what it means.

A board shows the code of its last error until its driver is loaded again, so the code says that
the error happened, and the first time it was shown about when.
"""

from datetime import datetime

import pandas as pd

from data.catalogue.xid_table import NO_ERROR, meaning_of

NOT_REPORTED = (
    "no source reports XID errors: let dcgm-exporter publish DCGM_FI_DEV_XID_ERRORS, or look into "
    "the nodes' kernel logs"
)


def latest_xids(xids: pd.DataFrame) -> pd.DataFrame:
    """Return the row of each board's latest code (columns XIDS).

    `xids` as `board_xids` gives it.
    """
    return xids.drop_duplicates("gpu_uuid", ignore_index=True)


def xid_texts(boards: pd.DataFrame, xids: pd.DataFrame) -> pd.Series:
    """Return for each board its latest code, 'none', or None when nobody reports it."""
    latest = latest_xids(xids).set_index("gpu_uuid")["xid"]
    codes = boards["gpu_uuid"].map(latest)
    texts = [None if pd.isna(entry) else _text(int(entry)) for entry in codes]
    return pd.Series(texts, index=boards.index, dtype=object)


def _text(xid: int) -> str:
    return "none" if xid == NO_ERROR else str(xid)


def errors_in(xids: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that show an error, the latest first."""
    errors = xids[xids["xid"] != NO_ERROR]
    return errors.sort_values(
        ["last_seen_at", "first_seen_at", "gpu_uuid"],
        ascending=[False, False, True],
        ignore_index=True,
    )


def notable_errors(xids: pd.DataFrame, *, since: datetime) -> pd.DataFrame:
    """Return the boards' latest errors that do not concern a job alone, or are new since then.

    A job's own fault of last month is still shown by its board, and is nobody's trouble any more.
    """
    errors = errors_in(latest_xids(xids))
    old_fault = errors["xid"].map(lambda entry: meaning_of(entry).concerns == "job")
    return errors[~old_fault.astype(bool) | (errors["first_seen_at"] >= since)]


def board_rows(xids: pd.DataFrame) -> pd.DataFrame:
    """Return a row per board and error: where, the code, what it means, when it was shown."""
    return pd.DataFrame(
        [
            {
                "node": entry["node"],
                "gpu_index": entry["gpu_index"],
                "xid": entry["xid"],
                "concerns": meaning_of(entry["xid"]).concerns,
                "what": meaning_of(entry["xid"]).what,
                "first_seen_at": entry["first_seen_at"],
                "last_seen_at": entry["last_seen_at"],
                "next_step": meaning_of(entry["xid"]).next_step,
                "gpu_uuid": entry["gpu_uuid"],
            }
            for entry in errors_in(xids).to_dict("records")
        ]
    )
