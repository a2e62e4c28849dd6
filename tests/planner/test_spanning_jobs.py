"""Jobs whose boards lie in several pools: their plan has a bound that is one."""

import random

import pandas as pd
import pytest
from drawn import examples
from factories import make_job
from fleet_cases import PODS, gpu, node_of, plan_of
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_cases import AS_OF, H100, forecast_of, history_of

from benchmarks._certified_nodes import exact_fleet
from benchmarks.exact_plan import solve_with_highs
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.columns import HISTORY
from data.facts.fleet import Cluster
from data.settings.all_settings import PlanningSettings
from data.settings.energy import EnergySettings
from data.settings.fleet import NodeSettings, PowerDomain, PowerSettings
from planner.problem.planning_problem import FleetRules, PlanningProblem, make_problem


def fleet(seed: int, *, slot_minutes: int) -> PlanningProblem:
    """Nodes of four boards in two racks; the boards of a job are drawn from all of them."""
    source = random.Random(seed)  # noqa: S311 a drawn fleet
    names = [f"node-{number}" for number in range(source.randint(2, 4))]
    boards = [(name, index) for name in names for index in range(4)]
    source.shuffle(boards)
    gpus, jobs, history, forecasts = [], [], [], []
    planning = PlanningSettings(
        slot_minutes=slot_minutes,
        horizon_slots=6,
        protected_jobs="kept/*" if source.random() < 0.7 else "",
    )
    while len(boards) > 3 and source.random() < 0.9:
        size = source.choice((1, 2, 4, 4, 8))
        mine, boards = boards[:size], boards[size:]
        team = source.choice(("kept", "free"))
        job = make_job(
            f"{team}/deployment/w{len(jobs)}", gpu_model=H100, gpu_count=len(mine), scheduler=PODS
        )
        gpus += [gpu(name, index, H100, job.job_id) for name, index in mine]
        jobs.append(job)
        history.append(history_of(job, 0.3, 20_000.0, 250.0 * size))
        demand = [source.uniform(0.05, 1.0) * len(mine) for _slot in range(6)]
        forecasts.append(forecast_of(job, demand, 20_000.0, 250.0 * size))
    gpus += [gpu(name, index, H100) for name, index in boards]
    rack = PowerDomain(name="rack a", nodes="node-[02]", limit_kw=1e6)
    return make_problem(
        Cluster(
            as_of=AS_OF, gpus=tuple(gpus), nodes=tuple(node_of(name, H100, 4) for name in names)
        ),
        jobs,
        pd.concat(history) if history else pd.DataFrame(columns=list(HISTORY.names)),
        forecasts,
        catalogue=load_gpu_catalogue(),
        carbon=load_carbon_table().get("DEU"),
        planning=planning,
        energy=EnergySettings(region="DEU"),
        as_of=AS_OF,
        signals={job.job_id: "sm_active" for job in jobs},
        rules=FleetRules(
            nodes=NodeSettings(
                base_watts_per_gpu=source.choice((125.0, 2000.0)),
                boot_minutes=source.choice((10.0, 120.0)),
            ),
            power=PowerSettings(domains=(rack,)),
        ),
    )


@given(st.integers(0, 10_000), st.sampled_from((5, 15, 60)))
@settings(max_examples=examples(40), deadline=None)
def test_the_bound_lies_below_the_cost_where_jobs_span_racks(seed: int, slot_minutes: int) -> None:
    """A bound above the plan raises PlanningError, and no plan is made."""
    problem = fleet(seed, slot_minutes=slot_minutes)
    plan = plan_of(problem)
    assert plan.lower_bound <= plan.cost


@pytest.mark.parametrize("seed", [16, 72, 104, 176])
def test_the_optimum_lies_between_bound_and_cost_where_jobs_span_racks(seed: int) -> None:
    """The exact model knows nodes by name and no pools."""
    problem = fleet(seed, slot_minutes=60)
    plan = plan_of(problem)
    exact = solve_with_highs(exact_fleet(problem), 60.0)
    assert exact.status == "optimal"
    assert plan.lower_bound <= exact.cost * (1 + 1e-5)
    assert exact.cost <= plan.cost * (1 + 1e-5)
