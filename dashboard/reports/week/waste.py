"""GPUs held and not used, by owner, with their cost in rent.

Idle GPU-hours are those of the store's hourly roll-ups: GPU-hours held less those in use, so a
GPU that works half of its time counts half. The rent is what the statement charges for the boards
that were held, an opportunity and no invoice: an idle board is paid for by its owner whether or not
somebody else would have used it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pandas as pd

from dashboard.accounting.cost.prices import Rent
from data.store.facts.energy_parts import NO_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class WasteRow:
    """Idle GPU-hours of one namespace (or partition) and owner.

    `rent` is None when no idle board has a price; `unpriced_hours` are idle GPU-hours that it does
    not cover, of `unpriced_models`. `largest_job` held most of the idle hours.
    """

    namespace: str
    owner: str
    gpu_hours: float
    idle_gpu_hours: float
    rent: float | None
    unpriced_hours: float
    unpriced_models: tuple[str, ...]
    largest_job: str

    @property
    def shown_names(self) -> tuple[str, str]:
        """Namespace and owner in words; the row's own are empty where nobody tells them."""
        return (self.namespace or NO_NAME, self.owner or NO_NAME)

    @property
    def idle_ratio(self) -> float:
        """Idle share of what was held, 0..1."""
        return self.idle_gpu_hours / self.gpu_hours if self.gpu_hours else 0.0

    @property
    def cost(self) -> Rent:
        """The rent with the models that it leaves out."""
        return Rent(amount=self.rent, unpriced_models=self.unpriced_models)


def waste_rows(
    holdings: pd.DataFrame,
    holders: pd.DataFrame,
    rent_of: Callable[[Iterable[tuple[str, float]]], Rent],
) -> tuple[WasteRow, ...]:
    """Return the waste per namespace and owner, largest first.

    `holdings` has key, gpu_model, gpu_hours and idle_gpu_hours; `holders` says whose the jobs are
    (StoreReader.job_holders), and what is of no such job does not count. `rent_of` is the rent of
    GPU-hours by model.
    """
    table = holdings[holdings["gpu_hours"] > 0].merge(holders, left_on="key", right_on="job_id")
    table["idle_gpu_hours"] = table["idle_gpu_hours"].fillna(0.0)
    rows = [
        _row(str(namespace), str(owner), group, rent_of)
        for (namespace, owner), group in table.groupby(["namespace", "owner"], sort=True)
    ]
    wasteful = [row for row in rows if row.idle_gpu_hours > 0]
    return tuple(sorted(wasteful, key=lambda row: -row.idle_gpu_hours))


def _row(
    namespace: str,
    owner: str,
    group: pd.DataFrame,
    rent_of: Callable[[Iterable[tuple[str, float]]], Rent],
) -> WasteRow:
    idle = group.groupby("gpu_model")["idle_gpu_hours"].sum()
    rent = rent_of((str(model), float(hours)) for model, hours in idle.items())
    unpriced = group["gpu_model"].isin(rent.unpriced_models)
    return WasteRow(
        namespace=namespace,
        owner=owner,
        gpu_hours=float(group["gpu_hours"].sum()),
        idle_gpu_hours=float(idle.sum()),
        rent=rent.amount,
        unpriced_hours=float(group.loc[unpriced, "idle_gpu_hours"].sum()),
        unpriced_models=rent.unpriced_models,
        largest_job=str(group.groupby("key")["idle_gpu_hours"].sum().idxmax()),
    )
