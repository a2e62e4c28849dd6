"""Series of groups of jobs: what a namespace, a GPU model or the fleet held and used.

A group without a row in an observed slot held nothing then. A slot in which clearly fewer boards
were observed than usual is unknown, since nobody can tell what the others did.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from data.records.forecasts import GROUP_QUANTITIES, GroupKind
from forecasting.demand_series import DemandSeries, Values, winsorised

_OBSERVED_SHARE = 0.9
_USUAL_SLOTS = 25
MOST_GROUPS = 40
"""Namespaces and models forecast at most, those that held most first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeries:
    """The series of one group, one per quantity that is known of it."""

    kind: GroupKind
    name: str
    series: tuple[DemandSeries, ...]
    known_slots: int


def group_series(history: pd.DataFrame, slot_seconds: int) -> Iterator[GroupSeries]:
    """Give the series of each group of a history (columns GROUP_HISTORY), the largest first."""
    if history.empty:
        return
    slots = history["slot_start"].astype("datetime64[us, UTC]").astype("int64") // 1_000_000
    first = int(slots.min())
    index = ((slots - first) // slot_seconds).to_numpy()
    boards = np.zeros(int(index.max()) + 1)
    boards[index] = history["boards"].to_numpy()
    observed = _observed(boards)
    history = history.assign(index=index)
    totals = history.groupby(["kind", "name"])["allocated_gpus"].sum()
    ranked = totals.sort_values(ascending=False, kind="stable").head(MOST_GROUPS)
    for kind, name in ranked.index:
        rows = history[(history["kind"] == kind) & (history["name"] == name)]
        series = tuple(_series(rows, observed, first, slot_seconds))
        yield GroupSeries(
            kind=GroupKind(kind), name=str(name), series=series, known_slots=int(observed.sum())
        )


def _observed(boards: Values) -> npt.NDArray[np.bool_]:
    """Say which slots saw nine tenths of the boards usual around them, at least one."""
    seen = pd.Series(boards)
    usual = seen.rolling(_USUAL_SLOTS, center=True, min_periods=1).median()
    return np.asarray((seen > 0) & (seen >= _OBSERVED_SHARE * usual))


def _series(
    rows: pd.DataFrame, observed: npt.NDArray[np.bool_], first: int, slot_seconds: int
) -> Iterator[DemandSeries]:
    index = rows["index"].to_numpy()
    for quantity in GROUP_QUANTITIES:
        found = rows[str(quantity)].to_numpy(dtype=float)
        if not np.isfinite(found).any():
            continue
        values = np.where(observed, 0.0, np.nan)
        values[index] = np.where(observed[index], found, np.nan)
        values, cut = winsorised(values)
        yield DemandSeries(
            quantity=quantity,
            first_slot=first,
            slot_seconds=slot_seconds,
            values=values,
            lower=0.0,
            upper=np.inf,
            winsorised=cut,
        )
