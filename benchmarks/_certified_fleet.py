"""Small fleets drawn over every feature of the planning problem on nodes."""

import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd

from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.columns import HISTORY, check_frame
from data.facts.fleet import Cluster, Gpu, Node
from data.facts.jobs import Job, JobState, Platform, SchedulerFacts, WorkloadKind
from data.records.forecasts import DemandForecast, QuantilePath, Quantity
from data.settings.all_settings import Pin, PlanningSettings
from data.settings.energy import EnergySettings
from data.settings.fleet import Maintenance, NodeSettings, TenantSettings, TenantShare
from planner.problem.planning_problem import FleetRules, PlanningProblem, make_problem

AS_OF = datetime(2026, 1, 5, 12, tzinfo=UTC)
MODELS = ("H100-SXM5-80GB", "A100-SXM4-80GB", "L40S-48GB")


@dataclass(frozen=True)
class FleetFeatures:
    """What a fleet and its settings have; the defaults are the plainest."""

    seed: int = 0
    nodes: int = 2
    boards: int = 4
    models: int = 1
    unlike: bool = False
    busy: float = 0.7
    slots: int = 3
    slot_minutes: int = 60
    training: bool = False
    slack_hours: float = 0.0
    mig: bool = False
    dips: bool = False
    cordoned: bool = False
    base_watts: float = 125.0
    boot_minutes: float = 10.0
    min_off_minutes: float = 0.0
    pins: bool = False
    protected: bool = False
    quotas: bool = False
    max_changes: int = 0
    caps: bool = False
    foreign: bool = False


def draw(source: random.Random) -> FleetFeatures:
    """Return features drawn from the whole cross product."""
    flag = lambda share=0.5: source.random() < share  # noqa: E731
    return FleetFeatures(
        seed=source.randrange(10**6),
        nodes=source.randint(1, 4),
        models=source.randint(1, 3),
        unlike=flag(),
        busy=source.choice((0.3, 0.7, 1.0)),
        slots=source.randint(2, 6),
        slot_minutes=source.choice((5, 15, 30, 60)),
        training=flag(),
        slack_hours=source.choice((0.0, 0.0, 2.0)),
        mig=flag(),
        dips=flag(),
        cordoned=flag(0.3),
        base_watts=source.choice((0.0, 125.0, 2000.0, 20_000.0)),
        boot_minutes=source.choice((0.0, 10.0, 120.0)),
        min_off_minutes=source.choice((0.0, 0.0, 60.0)),
        pins=flag(0.3),
        protected=flag(0.3),
        quotas=flag(0.3),
        max_changes=source.choice((0, 0, 1, 2)),
        caps=flag(),
    )


def at_usual_price(features: FleetFeatures) -> FleetFeatures:
    """Return the fleet with nodes that cost what the settings assume."""
    return replace(features, base_watts=125.0, boot_minutes=10.0)


def with_foreign_work(features: FleetFeatures) -> FleetFeatures:
    """Return the fleet with maintenance and a node on which something runs that nobody explains."""
    return replace(features, dips=True, foreign=True)


def problem_of(features: FleetFeatures) -> PlanningProblem:
    """Return the planning problem of a drawn fleet. Raises ImpossibleProblemError."""
    rng = np.random.default_rng(features.seed)
    catalogue = load_gpu_catalogue()
    gpus: list[Gpu] = []
    nodes: list[Node] = []
    jobs: list[Job] = []
    for number in range(features.nodes):
        model = MODELS[number % features.models]
        size = int(rng.choice([1, 2, 3, 4])) if features.unlike else features.boards
        name = f"node-{number}"
        profiles = catalogue.get(model).mig_profiles if features.mig else ()
        nodes.append(
            Node(
                name=name,
                gpu_model=model,
                gpu_count=size,
                seen_at=AS_OF,
                source="kubernetes",
                mig_instances=tuple((profile.name, 7) for profile in profiles),
                schedulable=not (features.cordoned and number == 0),
            )
        )
        first = 0
        while first < size:
            count = int(min(size - first, rng.choice([1, 2, 4])))
            held = not jobs or rng.random() < features.busy
            kind = "job" if features.training else "deployment"
            job_id = f"t{rng.integers(2)}/{kind}/w{number}-{first}" if held else ""
            if held:
                jobs.append(_job(job_id, model, count))
            gpus += [_gpu(name, first + step, model, job_id) for step in range(count)]
            first += count
    pin = Pin(job=jobs[0].job_id, gpu_model=jobs[0].gpu_model, gpu_count=jobs[0].gpu_count)
    planning = PlanningSettings(
        slot_minutes=features.slot_minutes,
        checkpointed_jobs="*",
        horizon_slots=features.slots,
        shift_slack_hours=features.slack_hours,
        max_changes_per_day=features.max_changes,
        protected_jobs=jobs[-1].job_id if features.protected else "",
        pins=(pin,) if features.pins else (),
        power_cap_ratios="0.6,0.8" if features.caps else "",
        board_sharing="none",
    )
    drawn = [_demand(job, planning, rng) for job in jobs]
    kept_on: frozenset[str] = frozenset()
    if features.foreign:
        busy = f"node-{features.seed % features.nodes}"
        free = [at for at, board in enumerate(gpus) if board.node == busy and not board.job_id]
        # Work without a name on a free board, or jobs that wait for the node.
        for at in free[:1]:
            gpus[at] = replace(gpus[at], unexplained_at=AS_OF)
        kept_on = frozenset(() if free else (busy,))
    return make_problem(
        Cluster(as_of=AS_OF, gpus=tuple(gpus), nodes=tuple(nodes), kept_on=kept_on),
        jobs,
        pd.concat([history for history, _forecast in drawn]),
        [forecast for _history, forecast in drawn],
        catalogue=catalogue,
        carbon=load_carbon_table().get("DEU"),
        planning=planning,
        energy=EnergySettings(region="DEU"),
        as_of=AS_OF,
        signals={job.job_id: "sm_active" for job in jobs},
        rules=_rules(features, len(gpus), rng),
    )


def _rules(features: FleetFeatures, boards: int, rng: np.random.Generator) -> FleetRules:
    slot = timedelta(minutes=features.slot_minutes)
    first, last = sorted(rng.integers(0, features.slots + 1, 2).tolist())
    away = Maintenance(
        nodes=f"node-{features.nodes - 1}",
        start=AS_OF + slot * (1 + first),
        end=AS_OF + slot * (1 + last + (first == last)),
    )
    shares = (
        TenantShare(name="t0", quota=max(1.0, boards / 4), borrowable=1.0),
        TenantShare(name="t1", quota=float(boards)),
    )
    return FleetRules(
        nodes=NodeSettings(
            base_watts_per_gpu=features.base_watts,
            boot_minutes=features.boot_minutes,
            min_off_minutes=features.min_off_minutes,
            maintenance=(away,) if features.dips else (),
        ),
        tenants=TenantSettings(shares=shares if features.quotas else ()),
    )


def _gpu(node: str, index: int, model: str, job_id: str) -> Gpu:
    return Gpu(
        gpu_uuid=f"GPU-{node}-{index}",
        mig_instance="",
        mig_profile="",
        node=node,
        gpu_model=model,
        memory_total_mib=80_000.0,
        job_id=job_id,
        last_seen_at=AS_OF,
    )


def _job(job_id: str, model: str, count: int) -> Job:
    namespace, workload, name = job_id.split("/")
    extra = (("gpus_per_pod", "1"), ("gpu_containers", "1"), ("pods", str(count)))
    return Job(
        job_id=job_id,
        name=name,
        namespace=namespace,
        owner="",
        kind=WorkloadKind.TRAINING if workload == "job" else WorkloadKind.INFERENCE,
        platform=Platform.KUBERNETES,
        gpu_model=model,
        gpu_count=count,
        gpu_memory_mib=80_000.0,
        mig_profile="",
        first_seen_at=AS_OF - timedelta(days=2),
        last_seen_at=AS_OF,
        source="kubernetes",
        scheduler=SchedulerFacts(
            state=JobState.RUNNING, workload=f"{workload}/{name}", extra=extra
        ),
    )


def _demand(
    job: Job, planning: PlanningSettings, rng: np.random.Generator
) -> tuple[pd.DataFrame, DemandForecast]:
    """Return two days of history and a forecast with a band; one job in eight is idle."""
    size, slots = job.gpu_count, planning.horizon_slots
    level = 0.0 if rng.random() < 1 / 8 else rng.uniform(0.05, 1.0) * size
    path = level * rng.uniform(0.3, 1.0, slots)
    memory = float(rng.integers(2, 60)) * 1000
    # What draws near its limit may get a cap.
    tdp = load_gpu_catalogue().get(job.gpu_model).tdp_watts
    power = size * (0.85 * tdp if planning.power_cap_ratios else 250.0)
    history = pd.DataFrame(
        {
            "job_id": job.job_id,
            "slot_start": pd.date_range(
                end=AS_OF - timedelta(hours=1), periods=48, freq="1h"
            ).as_unit("us"),
            "effective_gpus": level,
            "utilization_ratio": level / size,
            "utilization_max_ratio": level / size,
            "allocated_gpus": float(size),
            "memory_used_mib": memory,
            "power_watts": power,
            "sample_count": 60,
        }
    )
    slot = timedelta(minutes=planning.slot_minutes)
    bands = (
        (Quantity.EFFECTIVE_GPUS, path, 0.2),
        (Quantity.MEMORY, np.full(slots, memory), 0.0),
        (Quantity.POWER, np.full(slots, power), 0.1),
    )
    forecast = DemandForecast(
        job_id=job.job_id,
        slot_starts=tuple(AS_OF + slot * (1 + step) for step in range(slots)),
        paths=tuple(
            QuantilePath(
                quantity=quantity,
                model="seasonal-naive",
                q10=tuple((values * (1 - width)).tolist()),
                q50=tuple(values.tolist()),
                q90=tuple((values * (1 + width)).tolist()),
                backtest=None,
            )
            for quantity, values, width in bands
        ),
        missing=(),
        samples=48 * 60,
        history_slots=48,
        known_slots=48,
    )
    return check_frame(history, HISTORY), forecast
