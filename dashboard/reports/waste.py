"""What was held and not used, by whom, and what that costs in rent.

Idle GPU-hours are those of the store's hourly roll-ups: GPU-hours held less those in use, so a
GPU that works half of its time counts half. The rent is the catalogue's price of the job's model,
an opportunity and no invoice: an idle board is paid for by its owner whether or not somebody else
would have used it.
"""

from dataclasses import dataclass

import pandas as pd

from data.catalogue.gpu_catalogue import GpuCatalogue


@dataclass(frozen=True, slots=True, kw_only=True)
class WasteRow:
    """Idle GPU-hours of one namespace (or partition) and owner.

    `rent` is in the catalogue's currency, None when no job's model has a price; `unpriced_hours`
    are idle GPU-hours that it does not cover. `largest_job` held most of the idle hours.
    """

    namespace: str
    owner: str
    gpu_hours: float
    idle_gpu_hours: float
    rent: float | None
    unpriced_hours: float
    largest_job: str

    @property
    def idle_ratio(self) -> float:
        """Idle share of what was held, 0..1."""
        return self.idle_gpu_hours / self.gpu_hours if self.gpu_hours else 0.0


def waste_rows(
    by_job: pd.DataFrame, holders: pd.DataFrame, catalogue: GpuCatalogue
) -> tuple[WasteRow, ...]:
    """Return the waste per namespace and owner, largest first.

    `by_job` has key, gpu_hours and idle_gpu_hours; `holders` says whose the jobs are
    (StoreReader.job_holders), and what is of no such job does not count.
    """
    held = by_job[by_job["gpu_hours"] > 0].merge(holders, left_on="key", right_on="job_id")
    lines = []
    for row in held.to_dict("records"):
        model = catalogue.find(str(row["gpu_model"]))
        idle = float(row["idle_gpu_hours"]) if row["idle_gpu_hours"] == row["idle_gpu_hours"] else 0
        lines.append(
            {
                "namespace": row["namespace"],
                "owner": row["owner"],
                "job": row["key"],
                "held": float(row["gpu_hours"]),
                "idle": idle,
                "rent": (
                    None
                    if model is None or model.price_is_stated is False
                    else idle * model.price_per_hour
                ),
            }
        )
    frame = pd.DataFrame(lines, columns=["namespace", "owner", "job", "held", "idle", "rent"])
    rows = [
        _row(str(namespace), str(owner), group)
        for (namespace, owner), group in frame.groupby(["namespace", "owner"], sort=True)
    ]
    wasteful = [row for row in rows if row.idle_gpu_hours > 0]
    return tuple(sorted(wasteful, key=lambda row: -row.idle_gpu_hours))


def _row(namespace: str, owner: str, group: pd.DataFrame) -> WasteRow:
    priced = group[group["rent"].notna()]
    return WasteRow(
        namespace=namespace,
        owner=owner,
        gpu_hours=float(group["held"].sum()),
        idle_gpu_hours=float(group["idle"].sum()),
        rent=None if priced.empty else float(priced["rent"].sum()),
        unpriced_hours=float(group.loc[group["rent"].isna(), "idle"].sum()),
        largest_job=str(group["job"].iloc[int(group["idle"].argmax())]),
    )
