"""Applications and workloads of sia_pollux, as far as DIR holds them."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from benchmarks._sia_cluster import PAPER_CLUSTER
from benchmarks.simulation.application import Application
from benchmarks.simulation.measured_profiles import applications_of
from benchmarks.simulation.workload import SubmittedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Jobs of one trace; `left_out` of an application that DIR does not describe."""

    family: str
    number: int
    jobs: tuple[SubmittedJob, ...]
    left_out: int

    @property
    def name(self) -> str:
        """The family and the number."""
        return f"{self.family} {self.number}"


def read_applications(folder: Path) -> dict[str, Application]:
    """Return the applications with steps on the GPU types of the paper's cluster, and curves."""
    return applications_of(
        pd.read_parquet(folder / "placements.parquet"),
        pd.read_parquet(folder / "scalability.parquet"),
        pd.read_parquet(folder / "validation_curves.parquet"),
        [pool.gpu_type for pool in PAPER_CLUSTER.pools],
    )


def read_workloads(
    folder: Path, applications: dict[str, Application], families: tuple[str, ...]
) -> list[Workload]:
    """Return all workloads of the families in their order."""
    rows = pd.read_parquet(folder / "workloads.parquet")
    found = []
    for family in families:
        of_family = rows[rows["family"] == family]
        for number in sorted(of_family["workload"].unique()):
            one = of_family[of_family["workload"] == number]
            jobs = tuple(
                SubmittedJob(
                    name=str(row.name),
                    submitted_at=float(row.time),
                    application=str(row.application),
                    gpus=int(row.num_replicas),
                    batch_size=int(row.batch_size),
                )
                for row in one.itertuples(index=False)
                if row.application in applications
            )
            found.append(
                Workload(
                    family=family,
                    number=int(number),
                    jobs=jobs,
                    left_out=len(one) - len(jobs),
                )
            )
    return found
