"""What two cycles propose for the simulated fleet can be made."""

from pathlib import Path

from beds.simulated import NOW, make_cluster
from beds.stated_time import clock_at
from outsiders.proposals import CYCLES, Fleet, Proposals

from collectors.simulated.cluster import SimulatedCluster
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from dashboard.apply.simulated.applier import SimulatedApplier
from data.settings.all_settings import Settings
from data.store import open_store


def test_what_is_proposed_can_be_made(tmp_path: Path) -> None:
    """97 % of the money of either cycle, on the fleet of the demo; what is not made is named."""
    proposals, cluster = Proposals(), make_cluster(tmp_path)
    with clock_at(NOW), open_store(f"duckdb:///{tmp_path}/proposals.duckdb") as store:
        fleet = Fleet(
            store=store,
            collector=collector_of(cluster),
            applier=SimulatedApplier(cluster, clock=lambda: fleet.now()),
            settings=Settings(),
            folder=tmp_path,
            slot_minutes=15,
        )
        for cycle in CYCLES:
            proposals.judge(cycle, f"seed {cluster.seed}", fleet.apply(fleet.cycle()))
    proposals.require_made(5)


def collector_of(cluster: SimulatedCluster) -> SimulatedFleetCollector:
    """A source of the fleet as the cluster's file has it."""
    return SimulatedFleetCollector(
        fleet=SimulatedFleet(seed=cluster.seed, nodes=cluster.nodes),
        step_seconds=300,
        changed=cluster.fleet,
    )
