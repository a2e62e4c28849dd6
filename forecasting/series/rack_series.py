"""Series of racks: power of the boards of a power domain, with jobs or not."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

import pandas as pd

from data.facts.columns import GROUP_HISTORY, check_frame
from data.records.forecasts import GroupKind
from data.settings.fleet import PowerDomain
from forecasting.series.group_series import GroupSeries, group_series


def rack_history(node_power: pd.DataFrame, domains: Sequence[PowerDomain]) -> pd.DataFrame:
    """Return the history of racks (columns GROUP_HISTORY) from that of nodes (`node_power`).

    A node counts for every domain whose pattern it fits. GPUs held are unknown: NaN.
    """
    frames = []
    for domain in domains:
        fits = [fnmatchcase(node, domain.nodes) for node in node_power["node"]]
        rack = node_power[fits].groupby("slot_start", as_index=False)
        sums = rack[["boards", "power_watts"]].sum(min_count=1)
        frames.append(sums[sums["boards"] > 0].assign(kind=str(GroupKind.RACK), name=domain.name))
    rows = pd.concat(frames) if frames else pd.DataFrame(columns=list(GROUP_HISTORY.required))
    return check_frame(rows.reset_index(drop=True), GROUP_HISTORY)


def rack_series(history: pd.DataFrame, slot_seconds: int) -> Iterator[GroupSeries]:
    """Yield the series of each rack; an hour with clearly fewer boards than usual is unknown."""
    for _name, rows in history.groupby("name", sort=True):
        yield from group_series(rows, slot_seconds)
