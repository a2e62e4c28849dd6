"""Configurations of each job: its present one first, then every other one that fits.

Guards, all on the safe side: memory is taken as sharded over the devices, so fewer devices need
more each, unless they are of copies that hold all of it themselves; a MIG slice is offered to jobs
with one device only, of a profile that a node of theirs offers; a job is reclaimed only after it
was seen idle for the whole stated time; a job that nobody can restart may only be capped or
reclaimed. What no applier can make is no option (`data.records.feasible_changes`), and devices are
those of the nodes that the job may be on.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from data.base.units import MIN_COVERAGE_RATIO, SAME_BOARDS
from data.catalogue.gpu_catalogue import GpuCatalogue, GpuModel
from data.facts.jobs import JobState, WorkloadKind
from data.records.feasible_changes import configuration_refusal, counts_below, delay_refusal
from data.records.forecasts import ForecastSkipped
from data.records.plans import Configuration
from data.settings.all_settings import PlanningSettings
from planner.costs.power_caps import cap_effect
from planner.costs.terms import Terms
from planner.fleet.fleet_nodes import Reach
from planner.jobs.elasticity import Elasticity
from planner.jobs.job_demand import JobDemand

_MAX_SIZES = 6
_LATELY_HOURS = 1.0
_SCALING = 0.85
"""Speed-up per doubling of GPUs of a job that uses all it has (planner method, 6.5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A configuration with its cost and its service.

    `boards` in board equivalents of its model; `service` in devices of the present configuration.
    `slowdown` is how much longer saturated work takes, as low, central, high. `paused`: it holds
    nothing for now and its work waits. `grows`: it is for demand that finds no board now.
    `autoscaled`: the autoscaler of a service goes there by itself, and nobody is asked for it.
    """

    configuration: Configuration
    boards: float
    service: float
    slowdown: tuple[float, float, float] = (1.0, 1.0, 1.0)
    paused: bool = False
    grows: bool = False
    autoscaled: bool = False


def keep_reason(demand: JobDemand, catalogue: GpuCatalogue, planning: PlanningSettings) -> str:
    """Return the reason why this job must stay as it is, '' when it may change."""
    if demand.standing.protected:
        return f"protected by planning.protected_jobs ({demand.standing.protected})"
    if demand.share is not None:
        return demand.share.why
    facts = demand.job.scheduler
    if facts is not None and facts.state is JobState.SUSPENDED:
        return "it is suspended, and whoever did that decides what comes next"
    if isinstance(demand.forecast, ForecastSkipped):
        return f"no forecast: {demand.forecast.reason}"
    if demand.forecast.borrowed_from:
        return f"too young: its forecast is borrowed from {demand.forecast.borrowed_from}"
    if catalogue.find(model := demand.job.gpu_model) is None:
        if all(catalogue.find(part) for part in model.split(",")):
            return f"it holds GPUs of several models: {model.replace(',', ', ')}"
        return f"GPU model {model!r} is not in the catalogue"
    if demand.coverage_ratio < MIN_COVERAGE_RATIO:
        return (
            f"only {100 * demand.coverage_ratio:.0f} % of its history is known, "
            f"{100 * MIN_COVERAGE_RATIO:.0f} % are needed"
        )
    if demand.memory_mib is None:
        return "its memory use was never reported"
    return _unread(demand, _lately(planning))


def _lately(planning: PlanningSettings) -> int:
    """Return the slots of the last hour, at least one."""
    return round(_LATELY_HOURS * 60 / planning.slot_minutes) or 1


def _unread(demand: JobDemand, slots: int) -> str:
    """Return the reason that in none of its last slots all boards of a job were read, else ''.

    A share that a scheduler hands out is not a board of its own.
    """
    count, boards = demand.job.gpu_count, demand.past.allocated_gpus[-slots:]
    if not len(boards) or demand.share is not None:
        return ""
    most = float(boards.max())
    if most < count - SAME_BOARDS:
        return f"{most:.3g} of its {count} GPUs were read in the last hour; see `trimtab doctor`"
    ratios = demand.past.utilization_ratio[-slots:][boards >= count - SAME_BOARDS]
    if np.isfinite(ratios).any():
        return ""
    return "the utilization of not all of its GPUs was read in the last hour; see `trimtab doctor`"


def may_grow(demand: JobDemand) -> bool:
    """Return whether a job may get more devices: it serves or is elastic, and no other scales it.

    Saturated training shows no need of more: it would only be done sooner.
    """
    standing = demand.standing
    scales = standing.elasticity in (Elasticity.SERVICE, Elasticity.ELASTIC)
    serves = demand.job.kind is not WorkloadKind.TRAINING
    return scales and serves and not standing.scaled_by and not demand.job.mig_profile


def present_option(demand: JobDemand, catalogue: GpuCatalogue) -> Option:
    """Return the configuration of now."""
    job = demand.job
    model = catalogue.find(job.gpu_model)
    profile = model.mig_profile(job.mig_profile) if model and job.mig_profile else None
    size = model.board_share(profile) if model and profile else 1.0
    boards = None if demand.share is None else demand.share.boards
    return Option(
        configuration=Configuration(
            gpu_model=job.gpu_model,
            gpu_count=job.gpu_count,
            mig_profile=job.mig_profile,
            boards=boards,
        ),
        boards=job.gpu_count * size if boards is None else boards,
        service=float(job.gpu_count),
    )


def options_for(
    demand: JobDemand,
    reach: Reach,
    *,
    terms: Terms,
    room: float = math.inf,
) -> tuple[Option, ...]:
    """Return the options of a job, the present one first; `reach` is what its nodes have.

    `room` devices are what quotas let it have more than now.
    """
    catalogue, planning = terms.catalogue, terms.planning
    present = present_option(demand, catalogue)
    most = demand.job.gpu_count + room
    present_boards = reach.boards.get(demand.job.gpu_model, 0)
    scaled = _autoscaled(demand, int(min(present_boards, most)))
    if keep_reason(demand, catalogue, planning):
        return (present, *scaled)
    here = catalogue.get(demand.job.gpu_model)
    memory = (demand.memory_mib or 0.0) * (1 + planning.memory_headroom_ratio)
    options = [present]
    if demand.standing.may_restart:
        if not demand.job.mig_profile:
            names = {here.name, *reach.models}
            models = [model for name in sorted(names) if (model := catalogue.find(name))]
            options += _whole_boards(demand, here, memory, models)
            options += [
                Option(
                    configuration=Configuration(gpu_model=here.name, gpu_count=count),
                    boards=float(count),
                    service=float(count),
                    grows=True,
                )
                for count in _larger_counts(demand, planning, present_boards)
                if count <= most
            ]
        if demand.job.gpu_count == 1:
            offered = reach.slices.get(here.name, frozenset())
            options += _slices(demand, here, memory, present, offered)
    if not demand.job.mig_profile:
        options += _power_caps(demand, here, terms)
    if demand.may_stop(planning):
        gone = Configuration(gpu_model=here.name, gpu_count=0)
        options.append(Option(configuration=gone, boards=0.0, service=0.0))
    elif _may_wait(demand, terms):
        off = Configuration(gpu_model=here.name, gpu_count=0)
        options.append(Option(configuration=off, boards=0.0, service=0.0, paused=True))
    feasible = [option for option in options[1:] if _can_be_made(demand, option, terms)]
    return (present, *feasible, *scaled)


def _can_be_made(demand: JobDemand, option: Option, terms: Terms) -> bool:
    """Return whether an applier can make it; of a job nobody describes a person can."""
    if option.paused:
        return not delay_refusal(demand.job)
    return not configuration_refusal(
        demand.job,
        option.configuration,
        may_requeue=terms.may_requeue,
        behind_others=terms.behind_others,
    )


def _may_wait(demand: JobDemand, terms: Terms) -> bool:
    restartable = demand.standing.elasticity is Elasticity.RESTARTABLE
    return restartable and terms.slack_slots > 0 and terms.planning.horizon_slots > 1


def _whole_boards(
    demand: JobDemand, here: GpuModel, memory: float, models: Sequence[GpuModel]
) -> list[Option]:
    """Return fewer boards of the same model, and as many or fewer of cheaper models."""
    now = demand.job.gpu_count
    options: list[Option] = []
    for model in models:
        same = model.name == here.name
        if not same and model.price_per_hour >= here.price_per_hour:
            continue
        if not model.runs_what_runs_on(here):
            continue
        fewer = () if demand.standing.scaled_by else counts_below(demand.job)
        speed = model.relative_speed / here.relative_speed
        options += [
            Option(
                configuration=Configuration(gpu_model=model.name, gpu_count=count),
                boards=float(count),
                service=count * speed,
                slowdown=(1.0, 1.0, _worst_slowdown(now, count) / min(speed, 1.0)),
            )
            for count in (*fewer, *(() if same else (now,)))
            if memory * now <= count * model.memory_mib
            or (same and demand.standing.is_of_copies and count % demand.standing.step == 0)
        ]
    return options


def _worst_slowdown(now: int, count: int) -> float:
    """Return the slowdown on fewer devices if their activity does not rise at all."""
    doublings = np.log2(now / count)
    return float((2 * _SCALING) ** doublings)


def limited_by(
    demand: JobDemand, reach: Reach, planning: PlanningSettings, room: float, why: str
) -> str:
    """Return `why` no more than `room` further devices are admitted, '' where that is enough."""
    sizes = _larger_counts(demand, planning, reach.boards.get(demand.job.gpu_model, 0))
    return why if any(size > demand.job.gpu_count + room for size in sizes) else ""


def _larger_counts(demand: JobDemand, planning: PlanningSettings, present: int) -> list[int]:
    """Return more boards of its model where the forecast with headroom exceeds what a job has.

    `present` are the boards in its reach.
    """
    now, standing = demand.job.gpu_count, demand.standing
    if demand.demand_q90 is None or not may_grow(demand):
        return []
    target = float(demand.demand_q90.max()) * (1 + planning.headroom_ratio)
    if target <= now:
        return []
    most = min(present, 2 * now if standing.most is None else standing.most)
    counts = {now + standing.step, now + 2 * standing.step, 2 * now}
    return [
        count
        for count in sorted(counts)
        if count <= max(most, now + standing.step) and count <= present
    ]


def _autoscaled(demand: JobDemand, present: int) -> list[Option]:
    """Return the forecast sizes of an autoscaled service, at most six.

    Whoever keeps Trimtab from changing the job, its autoscaler changes it.
    """
    if demand.foreseen_devices is None:
        return []
    job, step = demand.job, demand.standing.step
    sizes = np.unique(np.minimum(demand.foreseen_devices.astype(int), present // step * step))
    counts = sizes[np.unique(np.linspace(0, len(sizes) - 1, _MAX_SIZES).round().astype(int))]
    return [
        Option(
            configuration=Configuration(gpu_model=job.gpu_model, gpu_count=count),
            boards=float(count),
            service=float(count),
            grows=count > job.gpu_count,
            autoscaled=True,
        )
        for count in map(int, counts)
        if count not in (0, job.gpu_count)
    ]


def _slices(
    demand: JobDemand, here: GpuModel, memory: float, present: Option, offered: Collection[str]
) -> list[Option]:
    now = here.mig_profile(demand.job.mig_profile) if demand.job.mig_profile else None
    fraction = 1.0 if now is None else now.compute_fraction
    options = []
    for profile in here.mig_profiles:
        share = here.board_share(profile)
        if profile.name not in offered:
            continue
        if share < present.boards - 1e-9 and memory <= profile.memory_mib:
            service = profile.compute_fraction / fraction
            options.append(
                Option(
                    configuration=Configuration(
                        gpu_model=here.name, gpu_count=1, mig_profile=profile.name
                    ),
                    boards=share,
                    service=service,
                    slowdown=(1.0, 1.0, 1 / service),
                )
            )
    return options


def _power_caps(demand: JobDemand, here: GpuModel, terms: Terms) -> list[Option]:
    """Return capped configurations where the boards' power was seen to exceed the cap, and will.

    None where their power is read no more: what a cap would take from them now is unknown.
    `service` is what is left in the slot that the cap slows most.
    """
    law, count = terms.cap_laws.get(here.name), demand.job.gpu_count
    peak = demand.board_max_watts
    is_read = np.isfinite(demand.past.power_watts[-_lately(terms.planning) :]).any()
    if demand.power_q90 is None or law is None or peak is None or not is_read:
        return []
    watts = demand.power_q90 / count
    options = []
    for ratio in terms.planning.cap_ratios:
        cap = float(round(here.tdp_watts * ratio))
        if min(watts.max(), peak) <= cap:
            continue
        effect = cap_effect(law, watts, cap)
        if not effect.measured:
            continue
        rows = (effect.slowdown_low, effect.slowdown, effect.slowdown_high)
        low, middle, high = (float(row.max()) for row in rows)
        options.append(
            Option(
                configuration=Configuration(
                    gpu_model=here.name, gpu_count=count, power_cap_watts=cap
                ),
                boards=float(count),
                service=count / middle,
                slowdown=(low, middle, high),
            )
        )
    return options
