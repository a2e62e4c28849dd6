"""Builds the world from the settings: the only place where sources, store and catalogue meet."""

from collectors.base import Collector
from collectors.dcgm_metrics import PrometheusDcgmCollector
from collectors.prometheus_client import PrometheusClient
from collectors.simulated_fleet import SimulatedFleet, SimulatedFleetCollector
from collectors.slurm_jobs import slurm_collector
from dashboard.cycle import Progress, World, silent
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings import Settings
from data.store import Store, open_store


def build_collectors(settings: Settings) -> tuple[Collector, ...]:
    """Give the configured sources; none when nothing is configured."""
    catalogue = load_gpu_catalogue()
    collectors: list[Collector] = []
    if settings.prometheus.url:
        collectors.append(
            PrometheusDcgmCollector(
                PrometheusClient(settings.prometheus), settings.prometheus, catalogue
            )
        )
    if settings.slurm.mode:
        collectors.append(slurm_collector(settings.slurm, catalogue))
    if settings.fleet.enabled:
        fleet = SimulatedFleet(seed=settings.fleet.seed, nodes=settings.fleet.nodes)
        collectors.append(
            SimulatedFleetCollector(fleet=fleet, step_seconds=settings.prometheus.step_seconds)
        )
    return tuple(collectors)


def build_world(
    settings: Settings, *, store: Store | None = None, progress: Progress | None = None
) -> World:
    """Give the world that a cycle touches; opens the store unless one is handed in."""
    carbon = load_carbon_table().get(settings.energy.region)
    world_store = open_store(settings.store.url) if store is None else store
    return World(
        settings=settings,
        store=world_store,
        collectors=build_collectors(settings),
        catalogue=load_gpu_catalogue(),
        carbon=carbon,
        progress=progress or silent,
    )
