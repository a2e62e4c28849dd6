"""Series of groups of jobs: GPUs allocated and in use by namespace, GPU model or fleet.

A group without a row in an observed slot held nothing then. A slot is unknown in which boards of
the group were not seen that the same job held before and after; one board in fifty may be away. So
is one in which clearly fewer boards were observed than usual: of an outage that is not over nobody
saw its end. Boards that came or left for good are no outage, nor those that were switched off, or
reported by nobody, while no job held them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pandas as pd

from data.facts.cluster_names import named_in
from data.facts.jobs import Job, JobState
from data.records.forecasts import GROUP_QUANTITIES, GroupKind
from forecasting.series.demand_series import DemandSeries, Values, winsorised

_OBSERVED_SHARE = 0.9
_MAX_UNSEEN_RATIO = 0.02
_USUAL_SLOTS = 25
MAX_GROUPS = 40
"""Namespaces and models forecast at most, those that held most first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeries:
    """The series of one group, one per quantity that is known of it."""

    kind: GroupKind
    name: str
    series: tuple[DemandSeries, ...]
    known_slots: int


def names_of_groups(job: Job) -> tuple[str, ...]:
    """Return the namespace and the GPU model that a job counts to."""
    return (job.namespace, named_in(job.gpu_model, job.cluster))


def group_series(
    history: pd.DataFrame,
    slot_seconds: int,
    *,
    jobs: Sequence[Job] = (),
    names_of: Callable[[Job], tuple[str, ...]] = names_of_groups,
    max_groups: int = MAX_GROUPS,
) -> Iterator[GroupSeries]:
    """Yield the series of each group of a history (columns GROUP_HISTORY), the largest first.

    `jobs` tell when some of a group waited for GPUs: what it held then is less than it wanted, and
    these slots are counted as censored. `names_of` says to which groups a job counts.
    """
    if history.empty:
        return
    slots = history["slot_start"].astype("datetime64[us, UTC]").astype("int64") // 1_000_000
    first = int(slots.min())
    index = ((slots - first) // slot_seconds).to_numpy()
    boards = np.zeros(int(index.max()) + 1)
    boards[index] = history["boards"].to_numpy()
    usual = _observed(boards)
    history = history.assign(index=index)
    away = _unseen(history[history["kind"] == GroupKind.FLEET], len(boards))
    totals = history.groupby(["kind", "name"])["allocated_gpus"].sum()
    ranked = totals.sort_values(ascending=False, kind="stable").head(max_groups)
    waits: dict[str, list[Job]] = {}
    for job in jobs:
        for name in names_of(job):
            waits.setdefault(name, []).append(job)
    places = history.groupby(["kind", "name"]).indices
    for kind, name in ranked.index:
        rows = history.iloc[places[kind, name]]
        unseen = _unseen(rows, len(boards)) if kind == GroupKind.GPU_MODEL else away
        observed = usual & (unseen <= _MAX_UNSEEN_RATIO)
        mine = jobs if kind == GroupKind.FLEET else waits.get(str(name), ())
        waited = _waited(mine, first, slot_seconds, len(observed))
        series = tuple(_series(rows, observed, first, slot_seconds, int((waited & observed).sum())))
        yield GroupSeries(
            kind=GroupKind(kind), name=str(name), series=series, known_slots=int(observed.sum())
        )


def _observed(boards: Values) -> npt.NDArray[np.bool_]:
    """Return a mask of slots with nine tenths of the boards usual around them, at least one."""
    counts = pd.Series(boards)
    usual = counts.rolling(_USUAL_SLOTS, center=True, min_periods=1).median()
    return np.asarray((counts > 0) & (counts >= _OBSERVED_SHARE * usual))


def _unseen(rows: pd.DataFrame, slots: int) -> Values:
    """Return the share of boards that were not seen, by slot; 0 where nothing tells it."""
    unseen = np.zeros(slots)
    unseen[rows["index"].to_numpy()] = rows["unseen_ratio"].fillna(0.0).to_numpy(dtype=float)
    return unseen


def _waited(
    jobs: Sequence[Job], first: int, slot_seconds: int, slots: int
) -> npt.NDArray[np.bool_]:
    """Return a mask of slots in all of which one of these jobs stood in the queue."""
    waited = np.zeros(slots, dtype=bool)
    for job in jobs:
        facts = job.scheduling
        times: list[tuple[datetime, datetime | None]] = [
            (wait.submitted_at, wait.started_at) for wait in facts.earlier_waits
        ]
        ended = facts.started_at or facts.ended_at
        if facts.submitted_at and (ended is not None or facts.state is JobState.PENDING):
            times.append((facts.submitted_at, ended))
        for came, ended in times:
            since = -(-(int(came.timestamp()) - first) // slot_seconds)
            until = slots if ended is None else (int(ended.timestamp()) - first) // slot_seconds
            waited[max(0, since) : max(0, until)] = True
    return waited


def _series(
    rows: pd.DataFrame,
    observed: npt.NDArray[np.bool_],
    first: int,
    slot_seconds: int,
    censored: int,
) -> Iterator[DemandSeries]:
    index = rows["index"].to_numpy()
    for quantity in GROUP_QUANTITIES:
        readings = rows[str(quantity)].to_numpy(dtype=float)
        if not np.isfinite(readings).any():
            continue
        values = np.where(observed, 0.0, np.nan)
        values[index] = np.where(observed[index], readings, np.nan)
        values, cut = winsorised(values)
        yield DemandSeries(
            quantity=quantity,
            first_slot=first,
            slot_seconds=slot_seconds,
            values=values,
            lower=0.0,
            upper=np.inf,
            winsorised=cut,
            censored=censored,
        )
