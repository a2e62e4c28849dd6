"""Fleets of nodes with jobs on them, for plans over time and place."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from drawn import examples
from factories import make_job
from hypothesis import settings
from hypothesis import strategies as st
from planning_cases import A100, AS_OF, H100, L40S, case, forecast_of, history_of

from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.columns import HISTORY
from data.facts.fleet import Cluster, Gpu, Node
from data.facts.jobs import Job, Platform, SchedulerFacts, WorkloadKind
from data.records.plans import Plan
from data.settings.all_settings import PlanningSettings
from data.settings.energy import EnergySettings
from planner.plan import build_plan
from planner.problem.planning_problem import FleetRules, PlanningProblem, make_problem

MODELS = (H100, A100, L40S)
BRIEF = settings(max_examples=examples(10), deadline=None, derandomize=True)
seeds = st.integers(0, 10_000)
PODS = SchedulerFacts(extra=(("gpus_per_pod", "1"), ("gpu_containers", "1")))
"""Pods of one GPU in one container each: any number of them can be asked for."""


def gpu(node: str, index: int, model: str, job_id: str = "", **changes: Any) -> Gpu:
    """One board of a node."""
    values: dict[str, Any] = {
        "gpu_uuid": f"GPU-{node}-{index}",
        "mig_instance": "",
        "mig_profile": "",
        "node": node,
        "gpu_model": model,
        "memory_total_mib": 80_000.0,
        "job_id": job_id,
        "last_seen_at": AS_OF,
    }
    return Gpu(**(values | changes))


def node_of(name: str, model: str, gpus: int = 8, **changes: Any) -> Node:
    """A node as a scheduler describes it."""
    values: dict[str, Any] = {
        "name": name,
        "gpu_model": model,
        "gpu_count": gpus,
        "seen_at": AS_OF,
        "source": "test",
    }
    return Node(**(values | changes))


def whole_node(name: str, model: str, **changes: Any) -> Node:
    """A node of eight boards that offers every MIG profile of its model."""
    profiles = load_gpu_catalogue().get(model).mig_profiles
    return node_of(
        name, model, mig_instances=tuple((profile.name, 7) for profile in profiles), **changes
    )


def fleet_case(
    seed: int,
    *,
    nodes: int = 3,
    slots: int = 6,
    rules: FleetRules | None = None,
    planning: PlanningSettings | None = None,
    described: tuple[Node, ...] | None = None,
    busy: float = 0.8,
    **changes: Any,
) -> PlanningProblem:
    """Nodes of eight boards filled with jobs of 1 to 8 GPUs that use a random part of them.

    One scheduler describes the nodes, which offer every MIG profile, and runs the jobs.
    """
    rng = np.random.default_rng(seed)
    planning = planning or PlanningSettings(slot_minutes=60, horizon_slots=slots)
    planning = replace(planning, checkpointed_jobs=planning.checkpointed_jobs or "*")
    gpus, jobs, history, forecasts = [], [], [], []
    own_nodes = [whole_node(f"node-{number}", MODELS[number % 3]) for number in range(nodes)]
    for number in range(nodes):
        model, name = MODELS[number % len(MODELS)], f"node-{number}"
        at = 0
        while at < 8:
            size = int(min(8 - at, rng.choice([1, 2, 4, 8])))
            job_id = (
                "" if rng.random() > busy else f"t{rng.integers(3)}/deployment/job-{number}-{at}"
            )
            gpus += [gpu(name, at + index, model, job_id) for index in range(size)]
            at += size
            if not job_id:
                continue
            job = make_job(job_id, gpu_model=model, gpu_count=size, scheduler=PODS)
            demand = rng.uniform(0.05, 1.0) * size * rng.uniform(0.3, 1.0, planning.horizon_slots)
            memory = float(rng.integers(2, 40)) * 1000
            jobs.append(job)
            history.append(history_of(job, 0.3, memory, 250.0 * size))
            forecasts.append(forecast_of(job, list(demand), memory, 250.0 * size))
    values: dict[str, Any] = {
        "catalogue": load_gpu_catalogue(),
        "carbon": load_carbon_table().get("DEU"),
        "planning": planning,
        "energy": EnergySettings(region="DEU"),
        "as_of": AS_OF,
        "signals": {job.job_id: "sm_active" for job in jobs},
        "rules": rules,
    }
    return make_problem(
        Cluster(
            as_of=AS_OF,
            gpus=tuple(gpus),
            nodes=tuple(own_nodes) if described is None else described,
        ),
        jobs,
        pd.concat(history) if history else pd.DataFrame(columns=list(HISTORY.names)),
        forecasts,
        **(values | changes),
    )


def load_of(plan: Plan) -> dict[tuple[str, int], float]:
    """GPUs in use per node and slot, a board cut by MIG counted once."""
    used: dict[tuple[str, int], float] = defaultdict(float)
    cut: set[tuple[str, int, int]] = set()
    for job in plan.jobs:
        for stay in job.stays:
            for slot in range(stay.start, stay.end):
                if stay.mig_board is not None:
                    if (stay.node, stay.mig_board, slot) in cut:
                        continue
                    cut.add((stay.node, stay.mig_board, slot))
                used[stay.node, slot] += stay.gpus
    return used


SLURM, KUBERNETES = "slurm", "kubernetes prod"


def slurm_job(number: int, **changes: Any) -> Job:
    """A batch job of a connected Slurm that asked for GPUs by node, and may be requeued."""
    count = changes.get("gpu_count", 1)
    extra = dict(changes.pop("extra", ())) or {
        "requeue": "yes",
        "gres_per": "node",
        "gres": f"gpu:{count}",
        "nodes_requested": "1",
    }
    values: dict[str, Any] = {
        "namespace": "gpu",
        "platform": Platform.SLURM,
        "kind": WorkloadKind.TRAINING,
        "source": SLURM,
        "scheduler": SchedulerFacts(extra=tuple(extra.items())),
    }
    return make_job(f"slurm:{number}", **(values | changes))


def pods_job(name: str, kind: str = "deployment", **changes: Any) -> Job:
    """A workload of a connected Kubernetes, with pods of one GPU unless `extra` says otherwise."""
    extra = dict(PODS.extra) | dict(changes.pop("extra", ()))
    training = WorkloadKind.TRAINING if kind == "job" else WorkloadKind.INFERENCE
    facts = SchedulerFacts(workload=f"{kind}/{name}", extra=tuple(extra.items()))
    values = {"source": KUBERNETES, "kind": training, "scheduler": facts}
    return make_job(f"ml/{kind}/{name}", **(values | changes))


def foreign_job(number: int, **changes: Any) -> Job:
    """A job that telemetry alone names: its scheduler is not connected."""
    kind = changes.pop("kind", WorkloadKind.TRAINING)
    return make_job(f"slurm:9{number}", platform=Platform.SLURM, kind=kind, **changes)


def mixed_fleet(
    seed: int, *, planning: PlanningSettings, nodes: int = 5, nameless: Collection[str] = ()
) -> PlanningProblem:
    """Nodes of Slurm, Kubernetes, both or nobody, with jobs of either, foreign ones, and labels.

    Few jobs a node, so that emptying nodes pays. Some run where their scheduler has no node. On the
    last board of the nodes `nameless` something runs that carries no label.
    """
    rng = np.random.default_rng(seed)
    gpus, described, cases = [], [], []
    for number in range(nodes):
        name, model = f"n{number}.example", str(rng.choice([H100, A100]))
        owners = [[SLURM], [KUBERNETES], [], [SLURM, KUBERNETES]][
            rng.choice(4, p=[0.35, 0.35, 0.2, 0.1])
        ]
        described += [
            whole_node(f"n{number}", model, source=source, partitions=("gpu",) * (source == SLURM))
            for source in owners
        ]
        at = 0
        for _ in range(int(rng.integers(0, 4))):
            size, what = int(rng.choice([1, 1, 2, 4])), rng.random()
            if at + size > (7 if name in nameless else 8):
                break
            key = 10 * number + at
            source = str(rng.choice(owners)) if owners and what < 0.75 else ""
            source = source or str(rng.choice([SLURM, KUBERNETES]))
            shape: dict[str, Any] = {"gpu_model": model, "gpu_count": size}
            if what > 0.9:
                job_id = f"gone/pod-{key}"  # a label that no job explains
            else:
                job = foreign_job(key, **shape)
                if what < 0.8 and source == SLURM:
                    requeue = str(rng.choice(["yes", "no"]))
                    job = slurm_job(
                        key,
                        extra={"requeue": requeue, "gres_per": "node", "nodes_requested": "1"},
                        **shape,
                    )
                elif what < 0.8:
                    kind = str(rng.choice(["deployment", "job", "notebook"]))
                    job = pods_job(f"w{key}", kind, **shape)
                job_id = job.job_id
                cases.append((job, float(rng.uniform(0.1, 0.95)), 20_000.0, 250.0 * size))
            gpus += [gpu(name, at + index, model, job_id) for index in range(size)]
            at += size
        busy = AS_OF if name in nameless else None
        gpus += [
            gpu(name, index, model, unexplained_at=busy if index == 7 else None)
            for index in range(at, 8)
        ]
    cases = cases or [(foreign_job(0), 0.5, 20_000.0, 250.0)]
    return case(*cases, gpus=gpus, nodes=described, planning=planning, rules=FleetRules())


def plan_of(problem: PlanningProblem) -> Plan:
    """The plan, with time to spare."""
    return build_plan(problem, budget_seconds=60, created_at=AS_OF)
