"""Fleets of nodes with jobs on them, for plans over time and place."""

from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd
from factories import make_job
from planning_cases import A100, AS_OF, H100, L40S, forecast_of, history_of

from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.cluster import Cluster, Gpu, Node
from data.records.plans import Plan
from data.settings import EnergySettings, PlanningSettings
from planner.problem import FleetRules, PlanningProblem, make_problem

MODELS = (H100, A100, L40S)


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


def fleet_case(
    seed: int,
    *,
    nodes: int = 3,
    slots: int = 6,
    rules: FleetRules | None = None,
    planning: PlanningSettings | None = None,
    described: tuple[Node, ...] = (),
    busy: float = 0.8,
    **changes: Any,
) -> PlanningProblem:
    """Nodes of eight boards filled with jobs of 1 to 8 GPUs that use a random part of them."""
    rng = np.random.default_rng(seed)
    planning = planning or PlanningSettings(slot_minutes=60, horizon_slots=slots)
    gpus, jobs, history, forecasts = [], [], [], []
    for number in range(nodes):
        model, name = MODELS[number % len(MODELS)], f"node-{number}"
        at = 0
        while at < 8:
            size = int(min(8 - at, rng.choice([1, 2, 4, 8])))
            job_id = "" if rng.random() > busy else f"t{rng.integers(3)}/job-{number}-{at}"
            gpus += [gpu(name, at + one, model, job_id) for one in range(size)]
            at += size
            if not job_id:
                continue
            job = make_job(job_id, gpu_model=model, gpu_count=size)
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
        Cluster(as_of=AS_OF, gpus=tuple(gpus), nodes=described),
        jobs,
        pd.concat(history) if history else pd.DataFrame(columns=["job_id"]),
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
