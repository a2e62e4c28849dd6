"""The parts of shared boards by use: what the work of each holder took of the board's time.

No reading tells the holders of a board apart. An engine tells its tokens, and what one takes of a
board is known from hours in which its service had boards alone. Where that is not known, or of one
holder only, each keeps its equal part. What the holders of a device have together never changes.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

import pandas as pd

from dashboard.accounting.energy.periods import Calendar
from data.base.clock import ceil_to_slot, floor_to_slot
from data.base.units import SECONDS_PER_HOUR
from data.store import StoreReader
from data.store.facts.energy_parts import Periods

_ALONE_FOR = timedelta(days=30)
"""So far before the range hours alone are looked for."""
_DEVICE = ["period", "hour", "gpu_uuid", "mig_instance"]


def parts_by_use(
    reader: StoreReader,
    start: datetime,
    end: datetime,
    *,
    calendar: Calendar,
    since: datetime,
    key_of: Callable[[pd.DataFrame], "pd.Series[str]"],
) -> pd.DataFrame:
    """Return the shared board-time of [start, end): a row per start (of a period), key and model.

    Columns use_ratio, of the time in equal parts, and unread_ratio: the part of it whose work is
    not known. `key_of` names the key of each row. Periods begin at `since` at the earliest.
    """
    frames = []
    for piece in calendar.pieces(start, end):
        rows = reader.sharing_hours(start=piece.start, end=piece.end, periods=piece.grid)
        numbers = rows["period"].unique()
        starts = {number: calendar.start_of(int(number), since) for number in numbers}
        frames.append(rows.assign(start=rows["period"].map(starts)))
    rows = pd.concat(frames, ignore_index=True)
    if rows.empty:
        return pd.DataFrame(columns=["start", "key", "model", "use_ratio", "unread_ratio"])
    rows = rows.assign(work=_work(reader, rows, end))[rows["shared_seconds"] > 0]
    seconds, devices = rows["shared_seconds"], [rows[name] for name in _DEVICE]
    is_read = rows["work"].notna()
    is_read &= is_read.groupby(devices).transform("sum") > 1
    work, room = rows["work"].where(is_read, 0.0), seconds.where(is_read, 0.0)
    together = work.groupby(devices).transform("sum")
    by_use = room.groupby(devices).transform("sum") * work / together
    parts = rows.assign(
        key=key_of(rows),
        model=rows["gpu_model"],
        use_ratio=by_use.where(is_read & (together > 0), seconds),
        unread_ratio=seconds - room,
    )
    keys, ratios = ["start", "key", "model"], ["use_ratio", "unread_ratio"]
    sums = parts.groupby(keys)[[*ratios, "shared_seconds"]].sum()
    return sums[ratios].div(sums["shared_seconds"], axis=0).reset_index()


def _work(reader: StoreReader, rows: pd.DataFrame, end: datetime) -> "pd.Series[float]":
    """Return the board-time that a holder's tokens take alone, NaN where it is not known.

    Of hours that it was beside others throughout. Those of several devices are spread evenly.
    """
    first = datetime.fromtimestamp(float(rows["hour"].min()), tz=end.tzinfo)
    begin = floor_to_slot(first - _ALONE_FOR, SECONDS_PER_HOUR)
    until = ceil_to_slot(end, SECONDS_PER_HOUR)
    tokens = reader.served_tokens(start=begin, end=until)
    at = pd.to_datetime(tokens["hour_start"], utc=True)
    tokens = tokens.assign(hour=at.dt.as_unit("s").astype("int64")).set_index(["job_id", "hour"])
    past = reader.sharing_hours(start=begin, end=until, periods=Periods())
    seconds = ["board_seconds", "shared_seconds", "used_seconds"]
    sums = past.groupby(["job_id", "hour"])[seconds].sum()
    sums = sums.assign(tokens=tokens["generation_tokens"].astype("float64"))
    alone = sums[(sums["shared_seconds"] == 0) & (sums["tokens"] > 0)].groupby("job_id").sum()
    pace = alone["used_seconds"] / alone["tokens"]
    shared = sums[sums["shared_seconds"] > 0.999 * sums["board_seconds"]]
    work = shared["tokens"] * pace.reindex(shared.index.get_level_values("job_id")).to_numpy()
    keys = pd.MultiIndex.from_frame(rows[["job_id", "hour"]])
    of_all = rows["shared_seconds"].groupby([rows["job_id"], rows["hour"]]).transform("sum")
    of_row = pd.Series(work.reindex(keys).to_numpy(), index=rows.index)
    return of_row * rows["shared_seconds"] / of_all.where(of_all > 0)
