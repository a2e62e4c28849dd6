"""Boards of each model worth keeping: their cost against the cost of missing them.

A board that is kept costs its price in every hour, used or not. A GPU-hour of demand above the
boards costs an on-demand one, or work that waits. Over hours of demand `D` and `c` boards,

    kept * c + missing * mean((D - c)+)

is convex in `c` and smallest at the quantile 1 - kept / missing of `D` (the newsvendor). Demand is
what jobs held and what they waited for, by the hour of the last weeks. `python -m
benchmarks.capacity` measures the rule on months that came later; forecasts of the month did worse.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from dashboard.accounting.cost.prices import UnitPrice, price_list
from dashboard.common.replay_clock import present
from data.base.units import SECONDS_PER_HOUR
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.cluster_names import cluster_in, name_in_cluster, named_in
from data.facts.jobs import Job, JobWait
from data.facts.queue_waits import is_waiting_for_boards
from data.settings.all_settings import Settings
from data.store import StoreReader

if TYPE_CHECKING:
    from forecasting.series.demand_series import DemandSeries, Values

WEEKS = 8
MIN_HOURS = 7 * 24
HOURS_PER_MONTH = 730.5
_WEEK = 7 * 24


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRow:
    """A GPU model: the boards there now, the demand of the last weeks, and how many to keep.

    A model of a further cluster is called MODEL@CLUSTER.
    Demand is in GPUs held or waited for. `to_keep` is a multiple of `boards_per_node`; `_low` and
    `_high` are what the single weeks of the history asked for alone. Costs are of a month, of the
    boards kept and of what is missing above them; None is unknown. `max_boards` is the largest
    demand in whole nodes: a lower limit of a node autoscaler would have refused some of it.
    """

    gpu_model: str
    boards: int
    boards_per_node: int
    hours_known: int
    demand_mean: float | None
    demand_q95: float | None
    waited_gpu_hours: float
    kept_price: float | None
    missing_price: float | None
    prices_from: str
    to_keep: int | None
    to_keep_low: int | None
    to_keep_high: int | None
    max_boards: int | None
    missing_gpu_hours: float | None
    cost_now: float | None
    cost_kept: float | None
    currency: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HourPrices:
    """Money per hour of a board that is kept, and of a GPU-hour for which there is no board."""

    board: float
    missing: float

    @property
    def quantile(self) -> float:
        """Return the quantile of demand up to which boards are worth keeping."""
        return max(0.0, 1 - self.board / self.missing) if self.missing > 0 else 0.0


def cost_per_hour(boards: float, hours: "Values", prices: HourPrices) -> float:
    """Return the cost of an hour of this demand (GPUs, [hours]) with so many boards."""
    missing = float((hours - boards).clip(min=0.0).mean())
    return prices.board * boards + prices.missing * missing


def boards_to_keep(hours: "Values", prices: HourPrices, *, step: int = 1) -> int:
    """Return the multiple of `step` boards with the minimum cost for this demand (GPUs, [hours]).

    Errors: ValueError without any hour.
    """
    import numpy as np

    if not len(hours):
        raise ValueError("no hour of demand is known")
    if not prices.quantile:
        return 0
    exact = float(np.quantile(hours, prices.quantile, method="inverted_cdf"))
    below = int(exact // step) * step
    return min((below, below + step), key=lambda boards: cost_per_hour(boards, hours, prices))


def capacity_rows(reader: StoreReader, settings: Settings) -> tuple[CapacityRow, ...]:
    """Return a row for each model of a cluster, the most expensive boards first.

    Waiting jobs that name no model count where their cluster has one model, and nowhere else.
    """
    end = reader.latest_sample_at() or present(reader)
    start = end - timedelta(weeks=WEEKS)
    nodes: dict[str, Counter[str]] = {}
    for uuid, node, model in {(gpu.gpu_uuid, gpu.node, gpu.gpu_model) for gpu in reader.gpus()}:
        if uuid and model:
            nodes.setdefault(named_in(model, cluster_in(node)), Counter())[node] += 1
    if not nodes:
        return ()
    demand, waited = _demand(reader, nodes, start, end)
    prices = price_list(settings, load_gpu_catalogue())
    rows = [
        _row(
            model,
            by_node,
            demand.get(model),
            waited.get(model, 0.0),
            prices.find(name_in_cluster(model), end),
            settings,
        )
        for model, by_node in nodes.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-(row.cost_now or 0.0), row.gpu_model)))


def _demand(
    reader: StoreReader, models: Mapping[str, Collection[str]], start: datetime, end: datetime
) -> tuple[Mapping[str, "Values"], Mapping[str, float]]:
    """Return GPUs held or waited for by model [hours], known hours alone; and GPU-hours waited.

    `models` have their nodes. Hours before one of these, or a job, had a board are unknown.
    """
    import numpy as np
    import pandas as pd

    from data.records.forecasts import GroupKind, Quantity
    from forecasting.series.group_series import group_series

    history = reader.group_history(start=start, end=end, slot_seconds=SECONDS_PER_HOUR)
    groups = [
        (group, series)
        for group in group_series(history, SECONDS_PER_HOUR)
        for series in group.series
        if series.quantity is Quantity.ALLOCATED_GPUS
    ]
    if not groups:
        return {}, {}
    fleet = next(series for group, series in groups if group.kind is GroupKind.FLEET)
    demand = {model: np.where(fleet.known, 0.0, np.nan) for model in models}
    demand |= {
        group.name: series.values.copy()
        for group, series in groups
        if group.kind is GroupKind.GPU_MODEL and group.name in demand
    }
    power = reader.node_power(start=start, end=end)
    for model, nodes in models.items():
        came = power[power["node"].isin(list(nodes))]["slot_start"].min()
        since = 0 if came is pd.NaT else (came.timestamp() - fleet.first_slot) // SECONDS_PER_HOUR
        is_before = np.arange(len(fleet.values)) < since
        demand[model][is_before & (np.nancumsum(demand[model]) == 0)] = np.nan
    waited: dict[str, float] = {}
    for job in reader.jobs(seen_since=start):
        local = [model for model in models if cluster_in(model) == job.cluster]
        sole = local[0] if len(local) == 1 else ""
        for wait in _waits(job, end):
            names = (named_in(name, job.cluster) for name in (wait.gpu_model, job.gpu_model))
            model = next((name for name in names if name in demand), "" if job.gpu_model else sole)
            if model in demand:
                waits = np.where(np.isfinite(demand[model]), _waiting(wait, fleet), 0.0)
                demand[model] = demand[model] + waits
                waited[model] = waited.get(model, 0.0) + float(waits.sum())
    return {model: row[np.isfinite(row)] for model, row in demand.items()}, waited


def _waits(job: Job, end: datetime) -> tuple[JobWait, ...]:
    """Return the times for which a job stood in its queue, the present one until `end`."""
    facts = job.scheduler
    if facts is None:
        return ()
    # Accounting keeps BeginTime of a run that was requeued: Slurm puts it off for some seconds.
    reason = "" if facts.earlier_waits and facts.started_at else facts.reason
    if facts.submitted_at is None or not is_waiting_for_boards(reason):
        return facts.earlier_waits
    until = facts.started_at or facts.ended_at or min(job.last_seen_at, end)
    latest = JobWait(
        submitted_at=facts.submitted_at,
        started_at=until,
        gpu_count=job.gpu_count,
        gpu_model=job.gpu_model,
    )
    return (*facts.earlier_waits, latest)


def _waiting(wait: JobWait, fleet: "DemandSeries") -> "Values":
    """Return the GPUs that were waited for, by slot of the fleet's series."""
    import numpy as np

    slots = np.arange(len(fleet.values))
    since, until = (
        (at.timestamp() - fleet.first_slot) / fleet.slot_seconds
        for at in (wait.submitted_at, wait.started_at)
    )
    share = np.clip(np.minimum(until, slots + 1) - np.maximum(since, slots), 0.0, 1.0)
    return np.asarray(share * wait.gpu_count, dtype=np.float64)


def _prices(price: UnitPrice | None, settings: Settings) -> tuple[HourPrices | None, str]:
    if price is None:
        return None, "no price of this model is stated"
    if price.listed > price.charged:
        return HourPrices(board=price.charged, missing=price.listed), f"{price.kind} and on-demand"
    weight = settings.planning.shortfall_weight
    prices_from = f"{price.kind}, missing {weight:g} times as much (planning.shortfall_weight)"
    return HourPrices(board=price.charged, missing=price.charged * weight), prices_from


def _row(
    model: str,
    by_node: Counter[str],
    hours: "Values | None",
    waited: float,
    price: UnitPrice | None,
    settings: Settings,
) -> CapacityRow:
    import numpy as np

    boards = by_node.total()
    step = Counter(by_node.values()).most_common(1)[0][0]
    demand = np.zeros(0) if hours is None else hours
    prices, prices_from = _prices(price, settings)
    to_keep: int | None = None
    span: tuple[int | None, int | None] = (None, None)
    costs: list[float | None] = [None, None]
    missing: float | None = None
    if prices is not None and len(demand) >= MIN_HOURS:
        to_keep = boards_to_keep(demand, prices, step=step)
        weeks = [demand[at : at + _WEEK] for at in range(0, len(demand) - _WEEK + 1, _WEEK)]
        counts = [to_keep, *(boards_to_keep(week, prices, step=step) for week in weeks)]
        span = (min(counts), max(counts))
        costs = [
            HOURS_PER_MONTH * cost_per_hour(count, demand, prices) for count in (boards, to_keep)
        ]
        missing = HOURS_PER_MONTH * float((demand - to_keep).clip(min=0.0).mean())
    return CapacityRow(
        gpu_model=model,
        boards=boards,
        boards_per_node=step,
        hours_known=len(demand),
        demand_mean=float(demand.mean()) if len(demand) else None,
        demand_q95=float(np.quantile(demand, 0.95)) if len(demand) else None,
        waited_gpu_hours=waited,
        kept_price=prices.board if prices else None,
        missing_price=prices.missing if prices else None,
        prices_from=prices_from,
        to_keep=to_keep,
        to_keep_low=span[0],
        to_keep_high=span[1],
        max_boards=int(-(-float(demand.max()) // step)) * step if len(demand) else None,
        missing_gpu_hours=missing,
        cost_now=costs[0],
        cost_kept=costs[1],
        currency=settings.energy.currency,
        advice=_advice(boards, to_keep, prices, len(demand)),
    )


def _advice(boards: int, to_keep: int | None, prices: HourPrices | None, hours: int) -> str:
    if prices is None:
        return "state what a board-hour costs (statement.prices)"
    if to_keep is None:
        return f"unknown: {hours} of {MIN_HOURS} hours of demand are known"
    if to_keep == boards:
        return f"keep {boards}"
    if to_keep < boards:
        return f"keep {to_keep}, return {boards - to_keep}"
    return f"keep {boards}, {to_keep - boards} more would pay"
