"""Traffic of many services, a bounded number at once: rows of replicas in, arrays by slot out.

What a service carried with another engine, model, image, command or GPUs than those of now says
nothing of what it carries now.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from data.base.units import SLOT_SECONDS
from data.store.facts.serving_slots import REPLICA_NAMES, SUMS, readings
from data.store.serving.serving_kernel import CACHE, FULL, FULLEST, REPLICAS, add_readings
from data.store.serving.zero_replica_spans import StoppedSpans, slots_without_replicas

_MAX_SERVICES = 5_000
"""Services with arrays at once, 0.5 GiB of a week: each time passes over the rows of all."""
_MAX_ROWS = 1_000_000
"""Of one question, if the rows of services are spread evenly: 0.1 GiB."""
_MAX_BLOCK = 50_000
"""Rows that are turned into one array, so that it stays in the cache."""
_SERVICE = ["job_id", "nameless"]
_SLOT = timedelta(seconds=SLOT_SECONDS)
_DERIVED_COLUMNS = {
    "fullest_requests": FULLEST,
    "full_requests": FULL,
    "kv_cache_ratio": CACHE,
    "replicas": REPLICAS,
}


_STOPPED = np.zeros(len(SUMS) + len(_DERIVED_COLUMNS))
_STOPPED[[0, 1, FULLEST, FULL, CACHE]] = np.nan  # of SUMS requests at work and waiting are first
_LATELY, _DAY = pd.Timedelta(hours=2), pd.Timedelta(days=1)
"""Boards are told by the hour, of which the newest may lack some."""
_ROLLOUT = pd.Timedelta(hours=1)
Spans = dict[int, dict[int, list[tuple[int, int]]]]
"""By service and replica: the first slot and the one after the last, slots since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedHistory:
    """The traffic of one service by slot, ascending from `starts` (s, epoch); NaN is unknown.

    `columns` are SUMS and the others of `ServiceReader.service`. Engine and model are the newest.
    `like_now` are the slots in which most replicas had an engine, model, image, command and GPUs
    that the service has now.
    """

    job_id: str
    nameless: str
    engine: str
    model: str
    starts: npt.NDArray[np.int64]
    columns: dict[str, npt.NDArray[np.float64]]
    like_now: npt.NDArray[np.bool_]


def served_histories(
    engines: pd.DataFrame,
    runs: pd.DataFrame,
    stopped: Mapping[str, StoppedSpans],
    read: Callable[..., pa.Table],
    start: datetime,
    end: datetime,
    within: timedelta,
) -> Iterator[ServedHistory]:
    """Yield the services of `engines` (rows of ENGINES); `read` answers queries of their slots.

    `runs` are rows of RUNS, `stopped` tells by job when no pod of it ran.
    """
    if engines.empty:
        return
    engines = engines.assign(lone=~engines["label_id"].duplicated(keep=False))
    engines = engines.assign(last_read=engines.groupby(_SERVICE)["newest"].transform("max"))
    since = engines["newest"].max() - within
    is_stopped = engines["job_id"].isin(
        [job_id for job_id, spans in stopped.items() if spans and spans[-1][1] > _slot_of(since)]
    )
    engines = engines[(engines["last_read"] >= since) | is_stopped]
    engines = engines.assign(service=engines.groupby(_SERVICE).ngroup())
    engines["replica"] = engines.groupby(["service", "replica"]).ngroup()
    former = former_spans(engines, runs)
    first = _slot_of(start)
    slots = -int(-end.timestamp() // SLOT_SECONDS) - first
    services = int(engines["service"].max()) + 1
    shape = (min(services, _MAX_SERVICES), slots, len(SUMS) + len(_DERIVED_COLUMNS))
    cells = np.zeros(shape, dtype=np.float32)  # of counts of five minutes, seven digits
    for begin in range(0, services, _MAX_SERVICES):
        end_of_these = min(begin + _MAX_SERVICES, services)
        selected = engines[engines["service"].between(begin, end_of_these - 1)]
        of_these = cells[: end_of_these - begin]
        yield from _histories(selected, former, stopped, read, first, of_these)


def _slot_of(at: datetime) -> int:
    return int(at.timestamp()) // SLOT_SECONDS


def _histories(
    engines: pd.DataFrame,
    former: Spans,
    stopped: Mapping[str, StoppedSpans],
    read: Callable[..., pa.Table],
    first: int,
    cells: npt.NDArray[np.float32],
) -> Iterator[ServedHistory]:
    """Yield the services of these engines from slot `first` of the epoch on.

    `cells` [services, slots, sums and extremes] is where they are added up. While no pod ran
    nothing was served; what was asked then is unknown.
    """
    newest = engines[engines["newest"] == engines["last_read"]].groupby("service")
    names = newest[[*_SERVICE, "engine", "model"]].max().itertuples()
    _fill(engines, read, first, cells)
    for block, (service, job_id, nameless, engine, model) in zip(cells, names, strict=True):
        is_read = block[:, REPLICAS] > 0
        if job_id in stopped:
            without = slots_without_replicas(stopped[job_id], first, is_read)
            block[without] = _STOPPED
            is_read |= without
        places = np.flatnonzero(is_read)
        rows = block if len(places) == len(block) else block[places]
        sums = np.array(rows.T, dtype=np.float64, order="C")
        yield ServedHistory(
            job_id=job_id,
            nameless=nameless,
            engine=engine,
            model=model,
            starts=(first + places) * SLOT_SECONDS,
            columns=dict(zip(SUMS, sums, strict=False))
            | {name: sums[place] for name, place in _DERIVED_COLUMNS.items()},
            like_now=current_kind_slots(first + places, sums[REPLICAS], former.get(service, {})),
        )


def _fill(
    engines: pd.DataFrame,
    read: Callable[..., pa.Table],
    first: int,
    cells: npt.NDArray[np.float32],
) -> None:
    """Add up what the engines served; they are of services one after another."""
    names = REPLICA_NAMES[:1] if engines["lone"].all() else REPLICA_NAMES
    query = readings(names, several=bool(engines["replica"].duplicated().any()))
    keys = {name: engines[name].tolist() for name in ("service", "replica", *names)}
    begin, first_us = int(engines["service"].iloc[0]), first * SLOT_SECONDS * 1_000_000
    cells[:] = 0.0
    for since, until in _questions(engines):
        rows = read(query, **keys, start=since, end=until)
        for block in rows.to_batches(max_chunksize=_MAX_BLOCK):
            service, start, *values = (column.to_numpy(zero_copy_only=False) for column in block)
            begun = start.astype("datetime64[us]").astype(np.int64) - first_us
            add_readings(service - begin, begun, np.stack(values), cells)


def _questions(engines: pd.DataFrame) -> Iterator[tuple[datetime, datetime]]:
    """Yield spans that follow each other, from the oldest reading of these engines to the newest.

    The rows lie by time in the store: of what lies outside a span little is read.
    """
    oldest, newest = engines["oldest"].min().to_pydatetime(), engines["newest"].max()
    slots = (newest.to_pydatetime() - oldest) // _SLOT + 1
    at_once = max(1, slots * _MAX_ROWS // int(engines["slots"].sum()))
    for slot in range(0, slots, at_once):
        yield oldest + slot * _SLOT, oldest + min(slot + at_once, slots) * _SLOT


def former_spans(engines: pd.DataFrame, runs: pd.DataFrame) -> Spans:
    """Return the spans of each replica in which it was of a kind that its service has no more.

    `engines` are rows of ENGINES with their `service`, its `last_read` and the `replica`, `runs`
    those of RUNS: what a label ran from `since` on, the first of them from the beginning. Unknown
    is no difference, nor is what boards tell of some pods and their scheduler of others.
    """
    reports = engines.assign(
        value=engines["engine"] + "\0" + engines["model"],
        told_by="engines",
        since=engines["oldest"],
        until=engines["newest"] + _SLOT,
    )
    labels = engines.groupby("label_id").agg(
        service=("service", "first"),
        replica=("replica", "first"),
        last_read=("last_read", "first"),
        oldest=("oldest", "min"),
        newest=("newest", "max"),
    )
    ran = runs.rename(columns={"runs": "value"}).sort_values(["label_id", "since"])
    by_label = ran.groupby("label_id")["since"]
    ran["next"], is_first = by_label.shift(-1), by_label.cumcount() == 0
    ran = ran.assign(is_first=is_first).join(labels, on="label_id", how="inner")
    ended = ran["newest"] + _SLOT
    ran["until"] = ran["next"].fillna(ended).clip(upper=ended)
    ran["since"] = ran["since"].clip(lower=ran["oldest"]).mask(ran["is_first"], ran["oldest"])
    by_service: Spans = defaultdict(lambda: defaultdict(list))
    for spans in (reports, ran[ran["since"] < ran["until"]]):
        for service, replica, since, until in _former(spans).itertuples(index=False):
            by_service[service][replica].append(
                (
                    int(since.timestamp()) // SLOT_SECONDS,
                    -int(-until.timestamp() // SLOT_SECONDS),
                )
            )
    return by_service


def _former(spans: pd.DataFrame) -> pd.DataFrame:
    """Return the spans whose kind, their value, is none of those that their service has now.

    It has those of the last two hours. Others of the last day count as well where one of these was
    there before they went, by more than a rollout takes: what comes by day alone is back tomorrow.
    """
    kinds = spans.groupby(["service", "told_by", "value"])
    came, went = kinds["since"].transform("min"), kinds["until"].transform("max")
    ago = spans["last_read"] - went
    began = came.where(ago < _LATELY).groupby([spans["service"], spans["told_by"]]).transform("min")
    overlap = went - began
    is_former = (ago >= _LATELY) & ((ago >= _DAY) | (overlap <= _ROLLOUT)) & began.notna()
    return spans.loc[is_former, ["service", "replica", "since", "until"]]


def current_kind_slots(
    slots: npt.NDArray[np.int64],
    replicas: npt.NDArray[np.float64],
    spans: dict[int, list[tuple[int, int]]],
) -> npt.NDArray[np.bool_]:
    """Return the slots in which at most half of the replicas there were of a former kind."""
    former = np.zeros(len(slots))
    for spans_of_one in spans.values():
        former += np.any(
            [(slots >= first) & (slots < after) for first, after in spans_of_one], axis=0
        )
    return former <= replicas / 2
