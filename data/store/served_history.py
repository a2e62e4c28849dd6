"""What many services served, a bounded number at once: rows of replicas in, arrays by slot out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from data.store.serving_kernel import CACHE, FULL, FULLEST, REPLICAS, add_extremes, add_sums
from data.store.serving_slots import READINGS, READINGS_OF_SEVERAL, SUMS
from data.units import SLOT_SECONDS

_MAX_SERVICES = 2_000
_MAX_ROWS = 5_000_000
"""Of one question: less than a GiB. Each question passes over the rows of all services."""
_SERVICE = ["job_id", "nameless"]
_EXTREMES = {
    "fullest_requests": FULLEST,
    "full_requests": FULL,
    "kv_cache_ratio": CACHE,
    "replicas": REPLICAS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedHistory:
    """What one service served by slot, ascending from `starts` (s, epoch); NaN is unknown.

    `columns` are SUMS and the others of `ServiceReader.service`. Engine and model are the newest.
    """

    job_id: str
    nameless: str
    engine: str
    model: str
    starts: npt.NDArray[np.int64]
    columns: dict[str, npt.NDArray[np.float64]]


def served_histories(
    engines: pd.DataFrame,
    read: Callable[..., pa.Table],
    start: datetime,
    end: datetime,
    within: timedelta,
) -> Iterator[ServedHistory]:
    """Yield the services of `engines` (rows of ENGINES); `read` answers queries of their slots."""
    if engines.empty:
        return
    last_read = engines.groupby(_SERVICE)["newest"].transform("max")
    there = last_read >= engines["newest"].max() - within
    engines = engines.assign(latest=engines["newest"] == last_read)[there]
    engines = engines.assign(service=engines.groupby(_SERVICE).ngroup())
    engines["replica"] = engines.groupby(["service", "replica"]).ngroup()
    first = int(start.timestamp()) // SLOT_SECONDS
    slots = -int(-end.timestamp() // SLOT_SECONDS) - first
    rows = engines.groupby("service")["slots"].sum().cumsum().to_numpy()
    begin = 0
    while begin < len(rows):
        before = rows[begin - 1] if begin else 0
        after = int(np.searchsorted(rows, before + _MAX_ROWS, side="right"))
        after = min(max(after, begin + 1), begin + _MAX_SERVICES)
        chosen = engines[engines["service"].between(begin, after - 1)]
        yield from _histories(chosen, read, first, slots)
        begin = after


def _histories(
    engines: pd.DataFrame, read: Callable[..., pa.Table], first: int, slots: int
) -> Iterator[ServedHistory]:
    """Yield the services of these engines, of so many slots from slot `first` of the epoch on."""
    newest = engines[engines["latest"]].groupby("service")
    names = newest[[*_SERVICE, "engine", "model"]].max().itertuples(index=False)
    cells = _cells(engines, read, first, slots)
    for block, (job_id, nameless, engine, model) in zip(cells, names, strict=True):
        seen = np.flatnonzero(block[REPLICAS])
        known = block if len(seen) == slots else block[:, seen]
        yield ServedHistory(
            job_id=job_id,
            nameless=nameless,
            engine=engine,
            model=model,
            starts=(first + seen) * SLOT_SECONDS,
            columns=dict(zip(SUMS, known, strict=False))
            | {name: known[place] for name, place in _EXTREMES.items()},
        )


def _cells(
    engines: pd.DataFrame, read: Callable[..., pa.Table], first: int, slots: int
) -> npt.NDArray[np.float64]:
    """Return [services, sums and extremes, slots]; engines are of services one after another."""
    begin = int(engines["service"].iloc[0])
    several = bool(engines["replica"].duplicated().any())
    wanted = ("service", "replica", "label_id", "engine", "model", "address")
    rows = read(
        READINGS_OF_SEVERAL if several else READINGS,
        **{name: engines[name].tolist() for name in wanted},
    )
    services = int(engines["service"].iloc[-1]) + 1 - begin
    cells = np.zeros((services, len(SUMS) + len(_EXTREMES), slots))
    service, slot = rows["service"].to_numpy() - begin, rows["slot"].to_numpy() - first
    for place, name in enumerate(SUMS):
        add_sums(service, slot, place, rows[name].to_numpy(), cells)
    running, waiting, cache = (rows[name].to_numpy() for name in (*SUMS[:2], "kv_cache_ratio"))
    add_extremes(service, slot, running, waiting, cache, cells)
    return cells
