"""What a cycle proposes for the simulated fleet, and what its applier says to it."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from beds.simulated import NOW, make_cluster
from outsiders.proposals import Proposals

from collectors.simulated.cluster import SimulatedCluster
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from dashboard.apply.simulated.applier import SimulatedApplier
from dashboard.cycle.context import World
from dashboard.cycle.run_cycle import run_cycle
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.all_settings import PlanningSettings, Settings
from data.settings.energy import EnergySettings
from data.store import open_store


def test_the_applier_takes_what_is_proposed(tmp_path: Path) -> None:
    """At least 19 of 20, on the fleet of the demo; what is refused is named."""
    found = Proposals()
    settings = Settings(
        planning=replace(
            PlanningSettings(), model="seasonal-naive", history_days=2, budget_seconds=2
        ),
        energy=EnergySettings(region="DEU"),
    )
    cluster = make_cluster(tmp_path)
    with open_store(f"duckdb:///{tmp_path}/proposals.duckdb") as store:
        world = World(
            settings=settings,
            store=store,
            collectors=(collector_of(cluster),),
            catalogue=load_gpu_catalogue(),
            carbon=load_carbon_table().get("DEU"),
        )
        proposals = run_cycle(world, now=NOW).recommendations
    applier = SimulatedApplier(cluster, clock=lambda: NOW + timedelta(seconds=1))
    found.judge(applier, proposals, f"seed {cluster.seed}")
    found.require_few_refused(5)


def collector_of(cluster: SimulatedCluster) -> SimulatedFleetCollector:
    """A source of the fleet as the cluster's file has it."""
    return SimulatedFleetCollector(
        fleet=SimulatedFleet(seed=cluster.seed, nodes=cluster.nodes),
        step_seconds=300,
        changed=cluster.fleet,
    )
