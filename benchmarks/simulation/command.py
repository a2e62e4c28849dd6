"""Workloads under several scheduling policies, side by side, as a program."""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dashboard.cli.terminal.output import print_rows, say
from data.base.errors import ImpossibleProblemError, TrimtabError

if TYPE_CHECKING:
    from benchmarks.simulation.application import Application
    from benchmarks.simulation.outcome import SimulationOutcome
    from benchmarks.simulation.workload import SubmittedJob, WorkloadCluster

_POLICIES = "first-in,least-attained,gavel,sia,has"
_CLUSTER = "A100-SXM4-40GB:2x8,L40S-48GB:3x8,T4-16GB:6x4"
_MIB_PER_GIB = 1024
_MAX_SEEDS = 100
_WORKLOAD = ("name", "time", "application", "num_replicas", "batch_size")
_PROFILES = ("placements", "scalability", "validation_curves")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of the policies and return the exit code: 1 error, 2 usage."""
    options = options_of(arguments)
    try:
        return scheduling(options)
    except TrimtabError as error:
        say(f"simulation: {error}", file=sys.stderr)
        return 1


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options, of the process where None is given. Errors: SystemExit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulation", description=__doc__)
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    parser.add_argument(
        "workload",
        nargs="?",
        metavar="WORKLOAD.csv",
        help=f"jobs with the columns {', '.join(_WORKLOAD)}; without it some are made from seeds",
    )
    parser.add_argument(
        "--cluster",
        default=_CLUSTER,
        metavar="SPEC",
        help=f"GPU type:nodes x GPUs of a node, by commas (default {_CLUSTER})",
    )
    parser.add_argument(
        "--policies",
        default=_POLICIES,
        metavar="NAMES",
        help=f"by commas (default {_POLICIES})",
    )
    parser.add_argument(
        "--profiles",
        metavar="DIR",
        help="measured applications: placements, scalability and validation_curves .parquet or "
        ".csv; their GPU types are those of --cluster",
    )
    parser.add_argument("--jobs", type=int, default=60, help="of a made workload (default 60)")
    parser.add_argument(
        "--hours", type=float, default=4.0, help="in which they are submitted (default 4)"
    )
    parser.add_argument(
        "--seed", type=int, default=7, help="of the first made workload (default 7)"
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=3,
        help="how many workloads are made, from --seed on; figures are means over them, with their "
        "standard deviation (default 3)",
    )
    parser.add_argument(
        "--declared-batch",
        action="store_true",
        help="goodput models may reach the application's largest batch, not the submitted one",
    )
    parser.add_argument("--format", choices=("table", "json", "csv"), default="table")
    return parser.parse_args(arguments)


def scheduling(options: argparse.Namespace) -> int:
    """Print one row of figures for every policy, and how HAS does beside the best other one."""
    from benchmarks.simulation.entries import entry_of
    from benchmarks.simulation.scheduling_rows import COLUMNS, comparison, rows_of
    from benchmarks.simulation.simulator import SimulationRules, simulate
    from benchmarks.simulation.step_fit import StepFits
    from dashboard.cli.terminal.context import progress_on_stderr

    entries = [entry_of(name.strip()) for name in options.policies.split(",") if name.strip()]
    cluster = cluster_of(options.cluster)
    applications = _applications(options, cluster)
    workloads = _workloads(options, cluster)
    rules = SimulationRules(declared_batch=options.declared_batch)
    fits = StepFits()
    outcomes: dict[str, list[SimulationOutcome]] = {entry.name: [] for entry in entries}
    jobs_in_all = sum(len(jobs) for jobs in workloads)
    with progress_on_stderr(options) as show:
        for entry in entries:
            finished = 0
            for jobs in workloads:
                outcome = simulate(
                    [replace(job, rigid=job.rigid or entry.rigid) for job in jobs],
                    cluster,
                    applications,
                    entry.make(),
                    rules=rules,
                    progress=lambda done, _, name=entry.name, before=finished: show(  # type: ignore[misc]  # defaults that bind the loop's names
                        name, before + done, jobs_in_all
                    ),
                    fits=fits,
                )
                finished += len(jobs)
                outcomes[entry.name].append(outcome)
    print_rows(rows_of(outcomes), options.format, columns=COLUMNS, empty="No policy was named.")
    if options.format == "table" and (text := comparison(outcomes)):
        print(f"\n{text}")
    return 0


def cluster_of(text: str) -> "WorkloadCluster":
    """Read `T4-16GB:6x4,A100-SXM4-40GB:2x8`; memory is the catalogue's, None where it has none.

    Errors: ImpossibleProblemError naming the part that cannot be read.
    """
    from benchmarks.simulation.workload import GpuPool, WorkloadCluster
    from data.catalogue.gpu_catalogue import load_gpu_catalogue

    catalogue = load_gpu_catalogue()
    pools = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([^:\s]{1,80}):(\d{1,6})x(\d{1,3})\s*", part)
        if match is None:
            raise ImpossibleProblemError(
                f"cannot read {part.strip()!r} of the cluster",
                f"write GPU type:nodes x GPUs of a node, such as {_CLUSTER}",
            )
        model = catalogue.find(match[1])
        pools.append(
            GpuPool(
                gpu_type=match[1],
                nodes=int(match[2]),
                gpus_per_node=int(match[3]),
                memory_gib=None if model is None else model.memory_mib / _MIB_PER_GIB,
            )
        )
    return WorkloadCluster(pools=tuple(pools))


def _applications(
    options: argparse.Namespace, cluster: "WorkloadCluster"
) -> "dict[str, Application]":
    if options.profiles:
        from benchmarks.simulation.measured_profiles import applications_of

        folder = Path(options.profiles)
        placements, scalability, curves = (_table(folder, name) for name in _PROFILES)
        gpu_types = [pool.gpu_type for pool in cluster.pools]
        found = applications_of(placements, scalability, curves, gpu_types)
        if not found:
            raise ImpossibleProblemError(
                f"{folder} has no application that was measured on all GPU types of the cluster",
                "name the GPU types of the tables in --cluster",
            )
        return found
    from benchmarks.simulation.synthetic import synthetic_applications
    from data.catalogue.gpu_catalogue import load_gpu_catalogue

    catalogue = load_gpu_catalogue()
    speeds = {}
    for pool in cluster.pools:
        model = catalogue.find(pool.gpu_type)
        if model is None:
            raise ImpossibleProblemError(
                f"the speed of {pool.gpu_type} is unknown",
                f"name one of {', '.join(entry.name for entry in catalogue)}, or give --profiles",
            )
        speeds[pool.gpu_type] = model.relative_speed
    return synthetic_applications(cluster, speeds)


def _table(folder: Path, name: str) -> Any:
    import pandas as pd

    for path in (folder / f"{name}.parquet", folder / f"{name}.csv"):
        if path.exists():
            return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    raise ImpossibleProblemError(
        f"{folder} has neither {name}.parquet nor {name}.csv", "give the folder of the profiles"
    )


def _workloads(
    options: argparse.Namespace, cluster: "WorkloadCluster"
) -> "tuple[tuple[SubmittedJob, ...], ...]":
    """Return the jobs of the file, or those of each seed."""
    if options.workload is not None:
        return (_read_jobs(Path(options.workload)),)
    from benchmarks.simulation.synthetic import synthetic_jobs

    if options.jobs < 1 or options.hours <= 0:
        raise ImpossibleProblemError(
            f"{options.jobs} jobs in {options.hours} h", "give 1 job or more and some time"
        )
    if not 1 <= options.seeds <= _MAX_SEEDS:
        raise ImpossibleProblemError(
            f"{options.seeds} made workloads", f"give --seeds from 1 to {_MAX_SEEDS}"
        )
    max_gpus = min(pool.nodes * pool.gpus_per_node for pool in cluster.pools)
    return tuple(
        synthetic_jobs(options.jobs, hours=options.hours, max_gpus=max_gpus, seed=seed)
        for seed in range(options.seed, options.seed + options.seeds)
    )


def _read_jobs(path: Path) -> "tuple[SubmittedJob, ...]":
    import pandas as pd

    from benchmarks.simulation.workload import SubmittedJob, in_order

    if not path.exists():
        raise ImpossibleProblemError(f"there is no workload {path}", "check the path")
    rows = pd.read_csv(path)
    missing = set(_WORKLOAD) - set(rows)
    if missing or rows.empty:
        raise ImpossibleProblemError(
            f"{path} lacks {', '.join(sorted(missing)) or 'jobs'}",
            f"give one row a job with the columns {', '.join(_WORKLOAD)}",
        )
    numbers = {
        name: pd.to_numeric(rows[name], errors="coerce")
        for name in ("time", "num_replicas", "batch_size")
    }
    for name, column in numbers.items():
        if column.isna().any():
            line = int(column.isna().to_numpy().argmax()) + 2
            raise ImpossibleProblemError(
                f"line {line} of {path} has no number for {name}", "give one for every job"
            )
    return in_order(
        SubmittedJob(
            name=str(name),
            submitted_at=float(at),
            application=str(application),
            gpus=int(gpus),
            batch_size=int(batch),
        )
        for name, application, at, gpus, batch in zip(
            rows["name"], rows["application"], *numbers.values(), strict=True
        )
    )
