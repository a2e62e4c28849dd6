"""What each job may run on: its present configuration first, then every smaller one that fits.

Guards, all on the safe side: memory is taken as sharded over the devices, so fewer devices need
more each; a MIG slice is offered to jobs with one device only; a job is reclaimed only after it was
seen idle for the whole stated time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from data.catalogue.gpu_catalogue import GpuCatalogue, GpuModel, MigProfile
from data.records.forecasts import ForecastSkipped
from data.records.plans import Configuration
from data.settings import PlanningSettings
from planner.job_demand import JobDemand

CAP_SLOWDOWN_RATIO = 0.06
"""Largest median slowdown at 65-75 % of TDP (Zeus, NSDI'23 traces: V100 1.06, A40 1.02-1.05)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A configuration with what it takes and gives.

    `boards` in board equivalents of its model; `service` in devices of the present configuration.
    """

    configuration: Configuration
    boards: float
    service: float


def board_share(model: GpuModel, profile: MigProfile) -> float:
    """Give the share of a board that a profile takes: compute or memory, whichever is larger."""
    return max(profile.compute_fraction, profile.memory_mib / model.memory_mib)


def keep_reason(demand: JobDemand, catalogue: GpuCatalogue, planning: PlanningSettings) -> str:
    """Give why this job can only be kept as it is, '' when it may change."""
    if isinstance(demand.forecast, ForecastSkipped):
        return f"no forecast: {demand.forecast.reason}"
    if demand.forecast.borrowed_from:
        return f"too young: its forecast is borrowed from {demand.forecast.borrowed_from}"
    if catalogue.find(demand.job.gpu_model) is None:
        return f"GPU model {demand.job.gpu_model!r} is not in the catalogue"
    if demand.coverage_ratio < planning.minimum_coverage_ratio:
        return (
            f"only {100 * demand.coverage_ratio:.0f} % of its history is known, "
            f"{100 * planning.minimum_coverage_ratio:.0f} % are needed"
        )
    if demand.memory_mib is None:
        return "its memory use was never reported"
    return ""


def present_option(demand: JobDemand, catalogue: GpuCatalogue) -> Option:
    """Give the configuration of now."""
    job = demand.job
    model = catalogue.find(job.gpu_model)
    profile = model.mig_profile(job.mig_profile) if model and job.mig_profile else None
    share = board_share(model, profile) if model and profile else 1.0
    return Option(
        configuration=Configuration(
            gpu_model=job.gpu_model, gpu_count=job.gpu_count, mig_profile=job.mig_profile
        ),
        boards=job.gpu_count * share,
        service=float(job.gpu_count),
    )


def options_for(
    demand: JobDemand,
    models_present: Sequence[str],
    *,
    catalogue: GpuCatalogue,
    planning: PlanningSettings,
) -> tuple[Option, ...]:
    """Give the options of a job, the present one first."""
    present = present_option(demand, catalogue)
    if keep_reason(demand, catalogue, planning):
        return (present,)
    here = catalogue.get(demand.job.gpu_model)
    memory = (demand.memory_mib or 0.0) * (1 + planning.memory_headroom_ratio)
    options = [present]
    if not demand.job.mig_profile:
        options += _whole_boards(demand, here, memory, [catalogue.get(n) for n in models_present])
        options += _power_cap(demand, here, planning)
    if demand.job.gpu_count == 1:
        options += _slices(demand, here, memory, present)
    if demand.idle_hours >= planning.reclaim_idle_hours:
        gone = Configuration(gpu_model=here.name, gpu_count=0)
        options.append(Option(configuration=gone, boards=0.0, service=0.0))
    return tuple(options)


def _counts_up_to(count: int) -> list[int]:
    return [one for one in (1, 2, 4, 8, 16, 32, 64) if one < count]


def _whole_boards(
    demand: JobDemand, here: GpuModel, memory: float, models: Sequence[GpuModel]
) -> list[Option]:
    """Give fewer boards of the same model, and as many or fewer of cheaper models."""
    now = demand.job.gpu_count
    options: list[Option] = []
    for model in models:
        same = model.name == here.name
        if not same and model.price_per_hour >= here.price_per_hour:
            continue
        counts = (*_counts_up_to(now), *(() if same else (now,)))
        options += [
            Option(
                configuration=Configuration(gpu_model=model.name, gpu_count=count),
                boards=float(count),
                service=count * model.relative_speed / here.relative_speed,
            )
            for count in counts
            if memory * now <= count * model.memory_mib
        ]
    return options


def _slices(demand: JobDemand, here: GpuModel, memory: float, present: Option) -> list[Option]:
    now = here.mig_profile(demand.job.mig_profile) if demand.job.mig_profile else None
    whole = 1.0 if now is None else now.compute_fraction
    options = []
    for profile in here.mig_profiles:
        share = board_share(here, profile)
        if share < present.boards - 1e-9 and memory <= profile.memory_mib:
            options.append(
                Option(
                    configuration=Configuration(
                        gpu_model=here.name, gpu_count=1, mig_profile=profile.name
                    ),
                    boards=share,
                    service=profile.compute_fraction / whole,
                )
            )
    return options


def _power_cap(demand: JobDemand, here: GpuModel, planning: PlanningSettings) -> list[Option]:
    """Give a capped configuration where the board's power would reach the cap."""
    cap = round(here.tdp_watts * planning.power_cap_ratio)
    count = demand.job.gpu_count
    if demand.power_q90 is None or float(demand.power_q90.max()) / count <= cap:
        return []
    return [
        Option(
            configuration=Configuration(
                gpu_model=here.name, gpu_count=count, power_cap_watts=float(cap)
            ),
            boards=float(count),
            service=count * (1 - CAP_SLOWDOWN_RATIO),
        )
    ]
